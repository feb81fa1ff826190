"""Ways to pass observations through the network: the three that play, and two that lost to them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from bench.stage import Stage
from server.learn.network import (
    UINT8_SCALE,
    Inference,
    NativeInference,
    NumpyInference,
    TorchInference,
    Weights,
    make_inference,
)

Pass = Callable[[npt.NDArray[Any]], object]


def ways(stage: Stage) -> dict[str, Pass]:
    """Give each way by its name, with the same weights in all of them."""
    plain = NumpyInference(stage.spaces, stage.shape)
    module = TorchInference(stage.spaces, stage.shape, "cpu")
    compiled = make_inference(stage.spaces, stage.shape, "cpu")
    for way in (plain, module, compiled):
        way.load(stage.weights)
    layers = _layers(stage, stage.weights)
    native = {"native": _as_played(compiled)} if isinstance(compiled, NativeInference) else {}
    return {
        **native,
        "numpy": _as_played(plain),
        "turned": _turned(layers),
        "addmm": _addmm(layers),
        "torch": _as_played(module),
    }


def _as_played(inference: Inference) -> Pass:
    """Judge as the policy does: a lone observation goes a way of its own."""

    def judge(observation: npt.NDArray[Any]) -> object:
        if len(observation) == 1:
            return inference.best(observation.tobytes())
        return inference(observation)

    return judge


def _layers(stage: Stage, weights: Weights) -> list[tuple[npt.NDArray[Any], npt.NDArray[Any]]]:
    """Cut the weights into each layer's matrix (out, in) and bias."""
    outputs = sum(stage.spaces.actions.heads) + len(stage.spaces.actions.continuous)
    sizes = (stage.spaces.observation.values, *stage.shape.hidden_sizes, outputs)
    layers, at = [], 0
    for size, out in itertools.pairwise(sizes):
        matrix = weights.flat[at : at + out * size].reshape(out, size)
        layers.append((matrix, weights.flat[at + out * size : at + out * size + out]))
        at += out * size + out
    return layers


def _turned(layers: list[tuple[npt.NDArray[Any], npt.NDArray[Any]]]) -> Pass:
    """Multiply numpy matrices as torch lays them out: (out, in)."""

    def judge(observation: npt.NDArray[Any]) -> object:
        x = observation.astype(np.float32) * np.float32(UINT8_SCALE)
        for matrix, bias in layers[:-1]:
            x = np.maximum(x @ matrix.T + bias, 0)
        matrix, bias = layers[-1]
        return x @ matrix.T + bias

    return judge


def _addmm(layers: list[tuple[npt.NDArray[Any], npt.NDArray[Any]]]) -> Pass:
    """Call torch's products themselves, with no module around them."""
    tensors = [(torch.from_numpy(m).t().contiguous(), torch.from_numpy(b)) for m, b in layers]

    def judge(observation: npt.NDArray[Any]) -> object:
        with torch.inference_mode():
            x = torch.tensor(observation).float().mul_(UINT8_SCALE)
            for matrix, bias in tensors[:-1]:
                x = torch.addmm(bias, x, matrix).relu_()
            matrix, bias = tensors[-1]
            return torch.addmm(bias, x, matrix).numpy()

    return judge
