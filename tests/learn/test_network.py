"""Both ways to play give the same outputs, and the parameters really live in one tensor."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from server.learn.network import (
    HybridNetwork,
    NumpyInference,
    TorchInference,
    Weights,
    flatten_parameters,
    make_inference,
)
from server.spaces import Actions, Continuous, Discrete, Observation, Spaces

HIDDEN = (32, 16)
CASES = {
    "ram": Spaces(Observation("uint8", (128,)), Actions((Discrete("stick", 6),), ()), ("r",)),
    "features": Spaces(Observation("float32", (10,)), Actions((Discrete("s", 3),), ()), ("r",)),
    "paddle": Spaces(
        Observation("float32", (4,)), Actions((), (Continuous("paddle", 0, 255),)), ("r",)
    ),
    "hybrid": Spaces(
        Observation("uint8", (12,)),
        Actions((Discrete("a", 2), Discrete("b", 3)), (Continuous("x", -1, 1),)),
        ("r",),
    ),
    "joint": Spaces(
        Observation("float32", (3,)),
        Actions((Discrete("a", 2), Discrete("b", 3)), (), joint=True),
        ("r",),
    ),
}
IMAGE = Spaces(Observation("uint8", (84, 84, 1)), Actions((Discrete("s", 3),), ()), ("r",))


def observations(spaces: Spaces, count: int) -> np.ndarray:
    rng = np.random.default_rng(1)
    shape = (count, spaces.observation.values)
    if spaces.observation.dtype == "uint8":
        return rng.integers(0, 256, shape).astype(np.uint8)
    return rng.normal(size=shape).astype(np.float32)


def trained(spaces: Spaces) -> tuple[HybridNetwork, Weights]:
    network = HybridNetwork(spaces, HIDDEN)
    flat, _ = flatten_parameters(network)
    return network, Weights(1, 0, 0.0, flat.detach().numpy().copy())


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("count", [1, 7])
def test_numpy_torch_and_the_training_network_agree(name: str, count: int) -> None:
    spaces = CASES[name]
    network, weights = trained(spaces)
    plays = [NumpyInference(spaces, HIDDEN), TorchInference(spaces, HIDDEN, "cpu")]
    given = observations(spaces, count)
    with torch.no_grad():
        expected = network(torch.from_numpy(given))
    for play in plays:
        play.load(weights)
        got = play(given)
        np.testing.assert_allclose(got.values, expected.values.numpy(), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(
            got.continuous, expected.continuous.numpy(), rtol=1e-4, atol=1e-5
        )
        assert got.values.shape == (count, sum(spaces.actions.heads))
        assert got.continuous.shape == (count, len(spaces.actions.continuous))


def test_the_faster_way_is_chosen_and_images_go_through_torch() -> None:
    assert isinstance(make_inference(CASES["ram"], HIDDEN, "cpu"), NumpyInference)
    play = make_inference(IMAGE, HIDDEN, "cpu")
    assert isinstance(play, TorchInference)
    network, weights = trained(IMAGE)
    play.load(weights)
    given = observations(IMAGE, 3)
    with torch.no_grad():
        expected = network(torch.from_numpy(given)).values.numpy()
    np.testing.assert_allclose(play(given).values, expected, rtol=1e-4, atol=1e-5)


def test_one_tensor_holds_all_parameters_and_one_all_gradients() -> None:
    network, _ = trained(CASES["hybrid"])
    flat, gradient = flatten_parameters(network)
    out = network(torch.from_numpy(observations(CASES["hybrid"], 5)))
    (out.values.sum() + out.continuous.sum()).backward()
    assert torch.equal(
        gradient,
        torch.cat([p.grad.reshape(-1) for p in network.parameters() if p.grad is not None]),
    )
    assert gradient.abs().sum() > 0
    flat.zero_()
    assert all(not p.any() for p in network.parameters())


def test_loaded_weights_do_not_change_with_the_network_that_trains() -> None:
    spaces = CASES["features"]
    network, weights = trained(spaces)
    play = NumpyInference(spaces, HIDDEN)
    play.load(weights)
    given = observations(spaces, 2)
    before = play(given).values.copy()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(1.0)
    assert np.array_equal(play(given).values, before)
