"""Both ways to play give the same outputs, and the parameters really live in one tensor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from server.learn.network import (
    TRUNKS,
    HybridNetwork,
    Inference,
    NoisyLinear,
    NumpyInference,
    Shape,
    Split,
    TorchInference,
    Weights,
    flatten_parameters,
    from_bins,
    make_inference,
    to_bins,
    to_flat,
    to_tensors,
)
from server.spaces import Actions, Continuous, Discrete, Observation, Spaces

HIDDEN = Shape((32, 16))
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


def observations(spaces: Spaces, count: int, stack: int = 1) -> np.ndarray:
    rng = np.random.default_rng(1)
    shape = (count, stack * spaces.observation.values)
    if spaces.observation.dtype == "uint8":
        return rng.integers(0, 256, shape).astype(np.uint8)
    return rng.normal(size=shape).astype(np.float32)


def trained(spaces: Spaces, shape: Shape = HIDDEN) -> tuple[HybridNetwork, Weights]:
    network = HybridNetwork(spaces, shape)
    flat, _ = flatten_parameters(network)
    return network, Weights(1, 0, 0.0, flat.detach().numpy().copy())


def assert_best(
    play: Inference, observation: Any, values: Any, continuous: Any, spaces: Spaces
) -> None:
    """Check that a lone observation gets the best of what its row in a batch was judged to be."""
    choices, places = play.best(observation.tobytes())
    start = 0
    for head, size in enumerate(spaces.actions.heads):
        assert choices[head] == values[start : start + size].argmax()
        start += size
    assert len(choices) == len(spaces.actions.heads)
    np.testing.assert_allclose(places, continuous, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("count", [1, 7])
def test_numpy_torch_and_the_training_network_agree(name: str, count: int) -> None:
    spaces = CASES[name]
    network, weights = trained(spaces)
    plays = [NumpyInference(spaces, HIDDEN), TorchInference(spaces, HIDDEN, "cpu")]
    plays += [make_inference(spaces, HIDDEN, "cpu")]  # in C, where there is a compiler
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
        assert_best(play, given[0], got.values[0], got.continuous[0], spaces)


SHAPES = {
    "dueling": Shape((32, 16), dueling=True),
    "quantile": Shape((32, 16), distribution="quantile", atoms=5),
    "dueling quantile": Shape((32, 16), dueling=True, distribution="quantile", atoms=5),
    "categorical": Shape((32, 16), dueling=True, distribution="categorical", atoms=11),
    "layer norm": Shape((32, 16), layer_norm=True),
    "factored": Shape((32, 16), bins=7, dueling=True),
    "stacked": Shape((32, 16), frame_stack=3),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", CASES)
def test_every_shape_plays_as_it_trains(name: str, shape: str) -> None:
    spaces = CASES[name]
    network, weights = trained(spaces, SHAPES[shape])
    rows = observations(spaces, 6, SHAPES[shape].frame_stack)
    with torch.no_grad():
        expected = network(torch.from_numpy(rows))
    slow = TorchInference(spaces, SHAPES[shape], "cpu")
    fast = make_inference(spaces, SHAPES[shape], "cpu")
    for play in (slow, fast):
        play.load(weights)
        got = play(rows)
        assert got.values.shape == (6, sum(spaces.actions.heads))
        assert got.continuous.shape == (6, len(spaces.actions.continuous))
        if spaces.actions.discrete:
            count = sum(spaces.actions.heads)
            np.testing.assert_allclose(
                got.values, expected.values[:, :count].numpy(), rtol=1e-4, atol=1e-5
            )
        for row in range(6):
            assert_best(play, rows[row], got.values[row], got.continuous[row], spaces)
    np.testing.assert_allclose(fast(rows).continuous, slow(rows).continuous, atol=1e-5)


def test_dueling_streams_by_hand() -> None:
    network = HybridNetwork(CASES["hybrid"], Shape((4,), dueling=True))
    raw = torch.tensor([[[1.0], [3.0], [0.0], [6.0], [3.0], [10.0]]])  # heads of 2 and 3, value
    got = (network.mix @ raw).flatten().tolist()
    assert got == pytest.approx([9.0, 11.0, 7.0, 13.0, 10.0])


def test_the_expected_worth_of_atoms() -> None:
    spaces = CASES["features"]
    quantile = HybridNetwork(spaces, Shape((4,), distribution="quantile", atoms=4))
    atoms = torch.tensor([[[1.0, 2.0, 3.0, 6.0]]])
    assert quantile.worth(atoms).tolist() == [[3.0]]
    shape = Shape((4,), distribution="categorical", atoms=3, value_low=-1.0, value_high=1.0)
    categorical = HybridNetwork(spaces, shape)
    logits = torch.log(torch.tensor([[[0.2, 0.3, 0.5]]]))
    assert categorical.worth(logits).tolist() == [[pytest.approx(0.3)]]


def test_a_binned_control_takes_the_middle_of_its_best_bin() -> None:
    split = Split(CASES["paddle"], Shape((4,), bins=5))
    out = np.array([[0.0, 0.0, 0.0, 9.0, 0.0], [1.0, 0.0, 0.0, 0.0, 0.0]], np.float32)
    assert split(out).continuous.tolist() == [[0.5], [-1.0]]
    assert split(out).values.tolist() == [[0.0], [0.0]]
    assert split(out[0]).continuous.tolist() == [0.5]


@given(st.integers(2, 64))
def test_bins_and_values_are_each_others_inverse(bins: int) -> None:
    numbers = torch.arange(bins)
    assert torch.equal(to_bins(from_bins(numbers.float(), bins), bins), numbers)


def test_noise_is_drawn_with_each_load_and_shrinks_with_what_is_learned() -> None:
    spaces = CASES["features"]
    shape = Shape((32, 16), noisy=True)
    network, weights = trained(spaces, shape)
    given_rows = observations(spaces, 4)
    play = make_inference(spaces, shape, "cpu", seed=5)
    assert isinstance(play, NumpyInference)
    seen = []
    for _ in range(2):
        play.load(weights)
        seen.append(play(given_rows).values)
    assert not np.allclose(seen[0], seen[1])
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if "spread" in name:
                parameter.zero_()
    flat = torch.cat([p.detach().reshape(-1) for p in network.parameters()]).numpy()
    play.load(Weights(2, 0, 0.0, flat))
    with torch.no_grad():
        expected = network(torch.from_numpy(given_rows)).values.numpy()
    np.testing.assert_allclose(play(given_rows).values, expected, rtol=1e-4, atol=1e-5)


def test_factorised_noise_has_the_papers_form() -> None:
    layer = NoisyLinear(3, 2)
    layer.renew(torch.Generator().manual_seed(1))
    drawn = torch.Generator().manual_seed(1)
    first, second = torch.randn(3, generator=drawn), torch.randn(2, generator=drawn)
    shaped = [x.sign() * x.abs().sqrt() for x in (first, second)]
    expected = layer.weight_mean + layer.weight_spread * torch.outer(shaped[1], shaped[0])
    assert torch.allclose(layer.weight, expected)
    assert torch.allclose(layer.bias, layer.bias_mean + layer.bias_spread * shaped[1])
    assert layer.weight_spread.flatten().tolist() == pytest.approx([0.5 / 3**0.5] * 6)


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


COLOUR = Spaces(Observation("uint8", (40, 48, 3)), Actions((Discrete("s", 2),), ()), ("r",))


@pytest.mark.parametrize("trunk", TRUNKS)
@pytest.mark.parametrize("spaces", [IMAGE, COLOUR], ids=["grey", "colour"])
def test_images_are_seen_by_both_trunks_as_stacked_channels(spaces: Spaces, trunk: str) -> None:
    shape = Shape((32,), frame_stack=4, trunk=trunk)
    network, weights = trained(spaces, shape)
    rows = observations(spaces, 3, 4)
    play = make_inference(spaces, shape, "cpu")
    play.load(weights)
    # The same by hand: each image turned to channels first, the four of them joined.
    images = torch.from_numpy(rows).view(3, 4, *spaces.observation.shape).float()
    channels = torch.cat([images[:, number].permute(0, 3, 1, 2) for number in range(4)], 1)
    assert network.convolutions is not None
    first, *rest = network.convolutions
    assert first.in_channels == 4 * spaces.observation.shape[2]
    assert (
        len([m for m in network.convolutions if isinstance(m, torch.nn.Conv2d)])
        == ({"small": 2, "nature": 3}[trunk])
    )
    with torch.no_grad():
        x = torch.nn.functional.conv2d(channels / 255, first.weight, first.bias, stride=4)
        for layer in rest:
            x = layer(x)
        expected = network.heads(network.trunk(x)).numpy()
    np.testing.assert_allclose(play(rows).values, expected, rtol=1e-3, atol=1e-5)
    assert play.best(rows[1].tobytes()) == ([expected[1].argmax()], [])


def test_the_nature_trunk_has_the_papers_size() -> None:
    network = HybridNetwork(IMAGE, Shape((512,), frame_stack=4, trunk="nature"))
    assert network.trunk[0].in_features == 3136
    # Mnih et al. 2015 with three actions: 3 convolutions, 512 units, one head.
    assert sum(p.numel() for p in network.parameters()) == 1_685_667


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


@pytest.mark.parametrize("distribution", ["none", "categorical"])
def test_without_a_seed_noisy_layers_play_without_their_noise(distribution: str) -> None:
    spaces = CASES["features"]
    shape = Shape((32, 16), noisy=True, distribution=distribution)
    network = HybridNetwork(spaces, shape)
    flat, _ = flatten_parameters(network)
    weights = Weights(1, 0, 0.0, flat.numpy().copy())
    observation = np.random.default_rng(1).standard_normal((5, 10)).astype(np.float32)
    with torch.no_grad():
        wanted = network(torch.from_numpy(observation)).values.numpy()  # no noise was drawn
    quiet, noisy = (make_inference(spaces, shape, "cpu", seed) for seed in (None, 1))
    for inference in (quiet, noisy):
        inference.load(weights)
    np.testing.assert_allclose(quiet(observation).values, wanted, rtol=1e-4, atol=1e-5)
    assert not np.allclose(noisy(observation).values, wanted, atol=1e-3)


@pytest.mark.parametrize("shape", [HIDDEN, Shape((8,), noisy=True, dueling=True, layer_norm=True)])
def test_weights_by_name_and_as_one_array_are_the_same(shape: Shape) -> None:
    spaces = CASES["hybrid"]
    flat, _ = flatten_parameters(HybridNetwork(spaces, shape))
    named = to_tensors(spaces, shape, flat.numpy())
    assert set(named) == set(HybridNetwork(spaces, shape).state_dict())
    assert np.array_equal(to_flat(spaces, shape, named), flat.numpy())
    assert Shape.from_plain(shape.to_plain()) == shape
