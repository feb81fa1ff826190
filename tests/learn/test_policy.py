"""Who chooses an action, how often, and what goes over the wire."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.learn.network import HybridNetwork, Weights, flatten_parameters, make_inference
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
    flat, _ = flatten_parameters(HybridNetwork(spaces, (16,)))
    policy = Policy(make_inference(spaces, (16,), "cpu"), Coding(spaces.actions), 1)
    assert policy.load(Weights(1, 0, 0.0, flat.detach().numpy().copy()))
    return policy


def test_greedy_is_the_best_of_each_head_and_repeats_itself() -> None:
    policy = make_policy()
    first, second = (policy.act(OBSERVATION, None, Mix()) for _ in range(2))
    values, continuous = policy._inference(OBSERVATION)
    assert np.array_equal(first.choice[:, 0], values[:, :2].argmax(1))
    assert np.array_equal(first.choice[:, 1], values[:, 2:].argmax(1))
    assert np.array_equal(first.continuous, continuous)
    assert np.array_equal(first.choice, second.choice)
    assert set(first.source) == {Source.POLICY}


def test_epsilon_is_the_share_of_random_actions_over_all_choices() -> None:
    decision = make_policy().act(np.tile(OBSERVATION, (25, 1)), None, Mix(epsilon=0.3))
    random = decision.source == Source.EXPLORATION
    assert random.mean() == pytest.approx(0.3, abs=0.02)
    counts = np.bincount(decision.choice[random, 1], minlength=5) / random.sum()
    assert counts == pytest.approx(np.full(5, 0.2), abs=0.03)
    spread = decision.continuous[random]
    assert spread.min() < -0.95
    assert spread.max() > 0.95


def test_noise_stays_in_range_and_is_still_the_policys_own() -> None:
    policy = make_policy()
    quiet = policy.act(OBSERVATION, None, Mix())
    noisy = policy.act(OBSERVATION, None, Mix(noise=0.5))
    assert np.abs(noisy.continuous - quiet.continuous).mean() > 0.1
    assert np.abs(noisy.continuous).max() <= 1.0
    assert np.array_equal(noisy.choice, quiet.choice)
    assert set(noisy.source) == {Source.POLICY}


def test_an_experts_proposal_is_followed_with_the_given_probability() -> None:
    experts = [Choice([1, 4], [7.0]) if row % 2 else None for row in range(400)]
    decision = make_policy().act(OBSERVATION, experts, Mix(expert_ratio=0.5))
    followed = decision.source == Source.EXPERT
    assert not followed[::2].any()
    assert followed[1::2].mean() == pytest.approx(0.5, abs=0.12)
    assert (decision.choice[followed] == [1, 4]).all()
    assert decision.continuous[followed] == pytest.approx(1.0)


def test_weights_that_are_not_finite_are_not_played() -> None:
    policy = make_policy()
    before = policy.act(OBSERVATION, None, Mix())
    assert policy.weights is not None
    bad = policy.weights.flat.copy()
    bad[3] = np.nan
    assert not policy.load(Weights(2, 10, 0.0, bad))
    assert policy.weights.version == 1
    assert np.array_equal(policy.act(OBSERVATION, None, Mix()).choice, before.choice)


@pytest.mark.parametrize("joint", [False, True])
@given(st.integers(0, 1), st.integers(0, 4), st.floats(-3, 7))
def test_a_choice_survives_the_coding(joint: bool, a: int, b: int, x: float) -> None:
    coding = Coding(Actions(HYBRID.actions.discrete, HYBRID.actions.continuous, joint))
    choice, continuous = coding.from_wire(Choice([a, b], [x]))
    decision = Decision(choice[None], continuous[None], np.zeros(1, np.uint8))
    discrete, values = coding.to_wire(decision)
    assert discrete == [[a, b]]
    assert values[0] == pytest.approx([x], abs=1e-5)
    assert -3 <= values[0][0] <= 7


def test_a_game_with_a_paddle_only() -> None:
    spaces = Spaces(
        Observation("float32", (4,)), Actions((), (Continuous("paddle", 0, 255),)), ("r",)
    )
    policy = make_policy(spaces)
    decision = policy.act(OBSERVATION[:3], None, Mix(epsilon=1.0, noise=0.1))
    discrete, values = policy.coding.to_wire(decision)
    assert discrete == [[], [], []]
    assert all(0 <= value <= 255 for (value,) in values)
