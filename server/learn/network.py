"""The network: a shared trunk, values for the discrete controls, a tanh for each continuous one.

``HybridNetwork`` is the torch module that trains. ``Weights`` is a whole copy of its parameters at
one moment. Two readers of Weights play: ``NumpyInference`` for a plain MLP on the CPU, where it is
faster and holds Python's lock for less, and ``TorchInference`` for everything else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from server.spaces import Observation, Spaces

Floats = npt.NDArray[np.float32]

UINT8_SCALE = 1.0 / 255.0
_MIN_IMAGE = 36  # pixels: what the convolutions need on each side


class Outputs(NamedTuple):
    """What the network says about a batch of observations."""

    values: Any  # (batch, sum of heads) worth of each choice, head after head
    continuous: Any  # (batch, controls) in -1..1


@dataclass(frozen=True, slots=True)
class Weights:
    """A whole copy of the network's parameters; newest wins."""

    version: int
    step: int
    time_s: float  # monotonic clock, when the copy was made
    flat: Floats  # every parameter, in the order of ``HybridNetwork.parameters()``


class HybridNetwork(nn.Module):
    """Trunk and heads for a game's spaces."""

    def __init__(self, spaces: Spaces, hidden_sizes: tuple[int, ...]) -> None:
        super().__init__()
        self.value_count = sum(spaces.actions.heads)
        self.scale = UINT8_SCALE if spaces.observation.dtype == "uint8" else 1.0
        self.image = image_shape(spaces.observation)
        self.convolutions = _convolutions(self.image) if self.image else None
        size = spaces.observation.values
        if self.convolutions is not None and self.image is not None:
            height, width, channels = self.image
            with torch.no_grad():
                size = self.convolutions(torch.zeros(1, channels, height, width)).shape[1]
        layers: list[nn.Module] = []
        for hidden in hidden_sizes:
            layers += [nn.Linear(size, hidden), nn.ReLU()]
            size = hidden
        self.trunk = nn.Sequential(*layers)
        # One matrix for all heads: a step should be few, large calls.
        self.heads = nn.Linear(size, self.value_count + len(spaces.actions.continuous))

    def forward(self, observation: Tensor) -> Outputs:
        """Judge a batch of observations as they came over the wire: (batch, values)."""
        x = observation.float()
        if self.scale != 1.0:
            x = x * self.scale
        if self.convolutions is not None and self.image is not None:
            x = self.convolutions(x.view(-1, *self.image).permute(0, 3, 1, 2))
        out = self.heads(self.trunk(x))
        return Outputs(out[:, : self.value_count], torch.tanh(out[:, self.value_count :]))


def flatten_parameters(module: nn.Module) -> tuple[Tensor, Tensor]:
    """Move all parameters and gradients of a module into one tensor each, and give these.

    Clipping, the optimizer, target updates and weight copies are then one call each, however
    many layers there are.
    """
    parameters = list(module.parameters())
    flat = torch.cat([p.detach().reshape(-1) for p in parameters])
    gradient = torch.zeros_like(flat)
    at = 0
    for p in parameters:
        end = at + p.numel()
        p.data = flat[at:end].view_as(p)
        p.grad = gradient[at:end].view_as(p)
        at = end
    return flat, gradient


def image_shape(observation: Observation) -> tuple[int, int, int] | None:
    """Give (height, width, channels) of an observation that deserves convolutions."""
    if len(observation.shape) < 2 or min(observation.shape[:2]) < _MIN_IMAGE:
        return None
    height, width = observation.shape[:2]
    return height, width, observation.shape[2] if len(observation.shape) == 3 else 1


def _convolutions(image: tuple[int, int, int]) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(image[2], 16, 8, stride=4),
        nn.ReLU(),
        nn.Conv2d(16, 32, 4, stride=2),
        nn.ReLU(),
        nn.Flatten(),
    )


class NumpyInference:
    """Plays with plain matrix products: for an MLP on the CPU."""

    def __init__(self, spaces: Spaces, hidden_sizes: tuple[int, ...]) -> None:
        self._value_count = sum(spaces.actions.heads)
        self._controls = len(spaces.actions.continuous)
        self._scale = UINT8_SCALE if spaces.observation.dtype == "uint8" else 1.0
        sizes = (spaces.observation.values, *hidden_sizes, self._value_count + self._controls)
        self._shapes = tuple(zip(sizes[1:], sizes[:-1], strict=True))  # (out, in)
        self._layers: list[tuple[Floats, Floats]] = []

    def load(self, weights: Weights) -> None:
        """Take over a copy of the weights."""
        layers = []
        at = 0
        for out, size in self._shapes:
            matrix = weights.flat[at : at + out * size].reshape(out, size)
            at += out * size
            # Contiguous the other way round: faster products with the few rows of a loop turn.
            layers.append((np.ascontiguousarray(matrix.T), weights.flat[at : at + out]))
            at += out
        # The scale of uint8 observations goes into the first matrix: one pass less per frame.
        layers[0][0][:] *= np.float32(self._scale)
        self._layers = layers

    def __call__(self, observation: npt.NDArray[Any]) -> Outputs:
        """Judge a batch of observations: (batch, values)."""
        x: Floats = observation.astype(np.float32, copy=False)
        alone = len(x) == 1
        if alone:
            x = x[0]  # a vector times a matrix skips the packing of a matrix product
        for matrix, bias in self._layers[:-1]:
            x = x @ matrix
            x += bias
            np.maximum(x, 0, out=x)
        matrix, bias = self._layers[-1]
        out = x @ matrix
        out += bias
        if alone:
            out = out[None]
        if not self._controls:
            return Outputs(out, out[:, self._value_count :])
        return Outputs(out[:, : self._value_count], np.tanh(out[:, self._value_count :]))


class TorchInference:
    """Plays with a torch module of its own: for images, and for a GPU."""

    def __init__(self, spaces: Spaces, hidden_sizes: tuple[int, ...], device: str) -> None:
        self._device = torch.device(device)
        self._network = HybridNetwork(spaces, hidden_sizes).to(self._device)
        self._flat, _ = flatten_parameters(self._network)

    def load(self, weights: Weights) -> None:
        """Take over a copy of the weights."""
        self._flat.copy_(torch.from_numpy(weights.flat))

    def __call__(self, observation: npt.NDArray[Any]) -> Outputs:
        """Judge a batch of observations: (batch, values)."""
        with torch.inference_mode():
            out = self._network(torch.tensor(observation, device=self._device))
        return Outputs(out.values.cpu().numpy(), out.continuous.cpu().numpy())


Inference = NumpyInference | TorchInference


def make_inference(spaces: Spaces, hidden_sizes: tuple[int, ...], device: str) -> Inference:
    """Choose the faster way to play for these spaces on this device."""
    if device == "cpu" and image_shape(spaces.observation) is None:
        return NumpyInference(spaces, hidden_sizes)
    return TorchInference(spaces, hidden_sizes, device)
