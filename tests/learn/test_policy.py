"""Who chooses an action, how often, and what goes over the wire."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.learn.network import (
    HybridNetwork,
    Shape,
    Weights,
    flatten_parameters,
    make_inference,
)
from server.learn.policy import Coding, Decision, Mix, Policy
from server.net.wire import Choice, Source
from server.spaces import Actions, Continuous, Discrete, Observation, Spaces

HYBRID = Spaces(
    Observation("float32", (4,)),
    Actions((Discrete("a", 2), Discrete("b", 5)), (Continuous("x", -3.0, 7.0),)),
    ("r",),
)
OBSERVATION = np.random.default_rng(0).normal(size=(400, 4)).astype(np.float32)


def make_policy(spaces: Spaces = HYBRID) -> Policy:
    flat, _ = flatten_parameters(HybridNetwork(spaces, Shape((16,))))
    policy = Policy(make_inference(spaces, Shape((16,)), "cpu"), Coding(spaces.actions), 1)
    assert policy.load(Weights(1, 0, 0.0, flat.detach().numpy().copy()))
    return policy


def act(policy: Policy, observation: npt.NDArray[Any], mix: Mix, one: bool = False) -> Decision:
    """Decide for all observations, in one batch or one by one."""
    if not one:
        return policy.act(observation, None, mix)
    rows = [policy.act_one(row.tobytes(), None, mix) for row in observation]
    choice, continuous, source = zip(*rows, strict=True)
    return Decision(np.array(choice), np.array(continuous), np.array(source))


@pytest.mark.parametrize("one", [False, True])
def test_greedy_is_the_best_of_each_head_and_repeats_itself(one: bool) -> None:
    policy = make_policy()
    first, second = (act(policy, OBSERVATION, Mix(), one) for _ in range(2))
    values, continuous, _ = policy._inference(OBSERVATION)
    best = np.stack([values[:, :2].argmax(1), values[:, 2:].argmax(1)], axis=1)
    assert first.choice.tolist() == second.choice.tolist() == best.tolist()
    np.testing.assert_allclose(first.continuous, continuous, rtol=1e-4, atol=1e-6)
    assert set(first.source) == {Source.POLICY}


@pytest.mark.parametrize("one", [False, True])
def test_epsilon_is_the_share_of_random_actions_over_all_choices(one: bool) -> None:
    policy = make_policy()
    decisions = [act(policy, OBSERVATION, Mix(epsilon=0.3), one) for _ in range(25)]
    choice, continuous, source = (np.concatenate(part) for part in zip(*decisions, strict=True))
    random = source == Source.EXPLORATION
    assert random.mean() == pytest.approx(0.3, abs=0.02)
    counts = np.bincount(choice[random, 1], minlength=5) / random.sum()
    assert counts == pytest.approx(np.full(5, 0.2), abs=0.03)
    spread = continuous[random]
    assert spread.min() < -0.95
    assert spread.max() > 0.95


@pytest.mark.parametrize("one", [False, True])
def test_noise_stays_in_range_and_is_still_the_policys_own(one: bool) -> None:
    policy = make_policy()
    quiet = act(policy, OBSERVATION, Mix(), one)
    noisy = act(policy, OBSERVATION, Mix(noise=0.5), one)
    assert np.abs(noisy.continuous - quiet.continuous).mean() > 0.1
    assert np.abs(noisy.continuous).max() <= 1.0
    assert np.array_equal(noisy.choice, quiet.choice)
    assert set(noisy.source) == {Source.POLICY}


def test_an_experts_proposal_is_followed_with_the_given_probability() -> None:
    experts = [Choice([1, 4], [7.0]) if row % 2 else None for row in range(400)]
    decision = make_policy().act(OBSERVATION, experts, Mix(expert_ratio=0.5))
    followed = np.array(decision.source) == Source.EXPERT
    assert not followed[::2].any()
    assert followed[1::2].mean() == pytest.approx(0.5, abs=0.12)
    assert (np.array(decision.choice)[followed] == [1, 4]).all()
    assert decision.continuous[followed] == pytest.approx(1.0)


def test_weights_that_are_not_finite_are_not_played() -> None:
    policy = make_policy()
    before = act(policy, OBSERVATION, Mix())
    assert policy.weights is not None
    bad = policy.weights.flat.copy()
    bad[3] = np.nan
    assert not policy.load(Weights(2, 10, 0.0, bad))
    assert policy.weights.version == 1
    assert np.array_equal(act(policy, OBSERVATION, Mix()).choice, before.choice)


@pytest.mark.parametrize("joint", [False, True])
@given(st.integers(0, 1), st.integers(0, 4), st.floats(-3, 7))
def test_a_choice_survives_the_coding(joint: bool, a: int, b: int, x: float) -> None:
    coding = Coding(Actions(HYBRID.actions.discrete, HYBRID.actions.continuous, joint))
    choice, continuous = coding.from_wire(Choice([a, b], [x]))
    discrete, values = coding.to_wire(choice, continuous)
    assert discrete == [a, b]
    assert values == pytest.approx([x], abs=1e-5)
    assert -3 <= values[0] <= 7


def test_a_game_with_a_paddle_only() -> None:
    spaces = Spaces(
        Observation("float32", (4,)), Actions((), (Continuous("paddle", 0, 255),)), ("r",)
    )
    policy = make_policy(spaces)
    for row in OBSERVATION[:3]:
        choice, continuous, _ = policy.act_one(row.tobytes(), None, Mix(epsilon=1.0, noise=0.1))
        discrete, (value,) = policy.coding.to_wire(choice, continuous)
        assert discrete == []
        assert 0 <= value <= 255
