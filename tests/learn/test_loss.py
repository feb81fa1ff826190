"""The loss by hand."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from server.learn.loss import (
    DISTANCES,
    Batch,
    Loss,
    Target,
    Weights,
    advantage_weight,
    categorical_target,
    cross_entropy,
    double_dqn_target,
    hybrid_loss,
    margin,
    munchausen_target,
    projected,
    quantile_huber,
)
from server.learn.network import Outputs


def batch(
    choice: list[list[int]],
    continuous: list[list[float]] | None = None,
    reward: list[float] | None = None,
    discount: list[float] | None = None,
    expert: list[bool] | None = None,
    weight: list[float] | None = None,
) -> Batch:
    count = len(choice)
    return Batch(
        torch.zeros(count, 1),
        torch.tensor(choice),
        torch.tensor(continuous or [[]] * count).reshape(count, -1),
        torch.tensor(reward or [0.0] * count),
        torch.tensor(discount or [0.0] * count),
        torch.zeros(count, 1),
        torch.tensor(expert or [False] * count),
        None if weight is None else torch.tensor(weight),
    )


def outputs(values: list[list[float]], continuous: Tensor | None = None) -> Outputs:
    """Make outputs whose atoms are the worths themselves."""
    worth = torch.tensor(values, requires_grad=True)
    nothing = torch.zeros(len(values), 0)
    return Outputs(worth, nothing if continuous is None else continuous, worth[..., None])


def towards(worth: list[float]) -> Target:
    return Target(torch.tensor(worth)[:, None], torch.tensor(worth))


def plain_loss(
    online: Outputs,
    target: Target,
    given_batch: Batch,
    heads: tuple[int, ...],
    kind: str = "none",
    **weights: float,
) -> Loss:
    offsets = torch.tensor([sum(heads[:head]) for head in range(len(heads))])
    distance = DISTANCES[kind]
    return hybrid_loss(online, target, given_batch, heads, offsets, distance, Weights(**weights))


def gradient(worth: Tensor) -> list[list[float]]:
    assert worth.grad is not None
    rows: list[list[float]] = worth.grad.tolist()
    return rows


# --- targets --------------------------------------------------------------------------------


def test_double_dqn_lets_one_network_choose_and_the_other_judge() -> None:
    online = outputs([[1.0, 3.0, 2.0], [0.0, 0.0, 5.0]])
    target = outputs([[10.0, 20.0, 30.0], [1.0, 2.0, 3.0]])
    given_batch = batch([[0], [0]], reward=[1.0, -1.0], discount=[0.9, 0.0])
    got = double_dqn_target(given_batch, online, target, (3,))
    # Row 0: choice 1 by the online network, worth 20 by the target, not 30.
    assert got.worth.tolist() == pytest.approx([1 + 0.9 * 20, -1.0])
    assert got.atoms.tolist() == [[pytest.approx(19.0)], [pytest.approx(-1.0)]]


def test_several_heads_share_the_mean_of_their_worth() -> None:
    online = outputs([[1.0, 0.0, 0.0, 7.0, 0.0]])
    target = outputs([[4.0, 9.0, 1.0, 2.0, 3.0]])
    got = double_dqn_target(batch([[0, 0]], discount=[0.5]), online, target, (2, 3))
    assert got.worth.tolist() == [0.5 * (4 + 2) / 2]


def test_the_chosen_quantiles_are_discounted_one_by_one() -> None:
    online = outputs([[0.0, 1.0]])
    target = Outputs(None, None, torch.tensor([[[9.0, 9.0], [1.0, 5.0]]]))
    got = double_dqn_target(batch([[0]], reward=[2.0], discount=[0.5]), online, target, (2,))
    assert got.atoms.tolist() == [[2.5, 4.5]]
    assert got.worth.tolist() == [3.5]


def test_a_distribution_is_shared_between_its_neighbours() -> None:
    support = torch.tensor([-1.0, 0.0, 1.0])
    certain = torch.tensor([[0.0, 0.0, 1.0]])
    got = projected(certain, torch.tensor([0.25]), torch.tensor([0.5]), support)
    # All mass goes to 0.25 + 0.5 · 1 = 0.75: a quarter below, three quarters above.
    assert got.tolist() == [pytest.approx([0.0, 0.25, 0.75])]
    beyond = projected(certain, torch.tensor([9.0]), torch.tensor([1.0]), support)
    assert beyond.tolist() == [[0.0, 0.0, 1.0]]
    ended = projected(certain, torch.tensor([-1.0]), torch.tensor([0.0]), support)
    assert ended.tolist() == [[1.0, 0.0, 0.0]]


@given(
    st.lists(st.floats(0.01, 1.0), min_size=2, max_size=60),
    st.floats(-3, 3, width=32),
    st.floats(0, 1, width=32),
)
def test_a_projection_keeps_mass_and_mean(
    masses: list[float], reward: float, discount: float
) -> None:
    probability = torch.tensor([masses], dtype=torch.float64)
    probability = probability / probability.sum()
    support = torch.linspace(-8, 8, len(masses), dtype=torch.float64)
    shifted = torch.tensor([reward], dtype=torch.float64), torch.tensor([discount]).double()
    got = projected(probability, *shifted, support)
    assert (got >= 0).all()
    assert float(got.sum()) == pytest.approx(1.0)
    places = (shifted[0] + shifted[1] * support).clamp(-8, 8)
    assert float(got @ support) == pytest.approx(float(probability @ places), abs=1e-6)


def test_a_categorical_target_judges_the_online_networks_choice() -> None:
    support = torch.tensor([0.0, 1.0, 2.0])
    logits = torch.log(torch.tensor([[[0.8, 0.1, 0.1], [0.1, 0.1, 0.8]]]))
    given_batch = batch([[0]], reward=[0.0], discount=[1.0])
    got = categorical_target(
        given_batch, outputs([[5.0, 1.0]]), Outputs(None, None, logits), (2,), support
    )
    assert got.atoms.tolist() == [pytest.approx([0.8, 0.1, 0.1])]
    assert got.worth.tolist() == [pytest.approx(0.3)]


def test_munchausen_by_hand() -> None:
    temperature, share = 0.5, 0.9
    now, following = outputs([[1.0, 0.0]]), outputs([[0.0, 2.0]])
    given_batch = batch([[1]], reward=[3.0], discount=[0.9])
    got = munchausen_target(
        given_batch, now, following, torch.tensor([0]), (2,), share, temperature
    )
    log_now = -2.0 - math.log(1 + math.exp(-2))  # of choice 1: (0 - 1) / 0.5, normalised
    bonus = share * max(-1.0, temperature * log_now)
    log_next = [-4 - math.log(1 + math.exp(-4)), -math.log(1 + math.exp(-4))]
    soft = sum(
        math.exp(log) * (worth - temperature * log)
        for log, worth in zip(log_next, (0.0, 2.0), strict=True)
    )
    assert got.worth.tolist() == pytest.approx([3.0 + bonus + 0.9 * soft], rel=1e-5)


def test_the_munchausen_bonus_is_bounded() -> None:
    now, following = outputs([[1.0, 0.0]]), outputs([[0.0, 0.0]])
    given_batch = batch([[1]], discount=[0.0])
    got = munchausen_target(given_batch, now, following, torch.tensor([0]), (2,), 0.9, 0.01)
    assert got.worth.tolist() == pytest.approx([0.9 * max(-1.0, 0.01 * -100)])
    worse = outputs([[50.0, 0.0]])
    got = munchausen_target(given_batch, worse, following, torch.tensor([0]), (2,), 0.9, 0.01)
    assert got.worth.tolist() == pytest.approx([-0.9])


# --- distances ------------------------------------------------------------------------------


def test_the_quantile_loss_by_hand() -> None:
    chosen = torch.tensor([[[0.0, 4.0]]])
    # Levels 1/4 and 3/4. Errors to the target 1 and 2: (1, 2) and (-3, -2).
    # Huber: (0.5, 1.5) and (2.5, 1.5); tilted by 1/4 each, the mean over the target's quantiles.
    got = quantile_huber(chosen, torch.tensor([[1.0, 2.0]]))
    assert got.tolist() == [[pytest.approx(0.25 * (0.5 + 1.5) / 2 + 0.25 * (2.5 + 1.5) / 2)]]


def test_quantile_regression_finds_the_quantiles() -> None:
    rng = torch.Generator().manual_seed(1)
    quantiles = torch.zeros(1, 1, 5, requires_grad=True)
    optimizer = torch.optim.SGD([quantiles], lr=0.5)
    for _ in range(300):
        target = 10 * torch.rand(1, 64, generator=rng)
        optimizer.zero_grad()
        quantile_huber(quantiles, target).sum().backward()
        optimizer.step()
    assert quantiles.flatten().tolist() == pytest.approx([1, 3, 5, 7, 9], abs=0.6)


def test_cross_entropy_is_least_where_the_distributions_agree() -> None:
    target = torch.tensor([[0.2, 0.8]])
    same = cross_entropy(torch.log(target)[:, None], target)
    assert same.tolist() == [[pytest.approx(-0.2 * math.log(0.2) - 0.8 * math.log(0.8))]]
    other = cross_entropy(torch.log(torch.tensor([[[0.5, 0.5]]])), target)
    assert other.item() == pytest.approx(math.log(2)) and other > same


# --- the whole loss -------------------------------------------------------------------------


def test_the_huber_loss_of_the_chosen_values() -> None:
    online = outputs([[1.0, 5.0], [0.0, 0.0]])
    loss = plain_loss(online, towards([5.5, 3.0]), batch([[1], [0]]), (2,))
    # 0.5·0.5² inside the unit, 3 − 0.5 outside, then the mean.
    assert loss.total.item() == pytest.approx((0.125 + 2.5) / 2)
    assert loss.error.tolist() == pytest.approx([0.5, 3.0])  # the plain distance
    assert loss.chosen.mean((1, 2)).tolist() == [5.0, 0.0]
    loss.total.backward()  # type: ignore[no-untyped-call]
    assert gradient(online.values) == [[0.0, -0.25], [-0.5, 0.0]]


def test_a_rare_transition_counts_by_its_weight() -> None:
    online = outputs([[1.0, 5.0], [0.0, 0.0]])
    given_batch = batch([[1], [0]], weight=[1.0, 0.1])
    loss = plain_loss(online, towards([5.5, 3.0]), given_batch, (2,))
    assert loss.total.item() == pytest.approx((0.125 + 0.25) / 2)
    assert loss.error.tolist() == pytest.approx([0.5, 3.0])  # its priority does not


def test_a_priority_is_the_mean_distance_over_the_heads() -> None:
    online = outputs([[0.25, 9.0, 9.0, 9.0, -2.0]])
    loss = plain_loss(online, towards([0.5]), batch([[0, 2]]), (2, 3))
    # 0.25 of the first head, 2.5 of the second.
    assert loss.error.tolist() == pytest.approx([(0.25 + 2.5) / 2])
    assert not loss.error.requires_grad


def test_the_priority_of_quantiles_is_the_distance_of_their_means() -> None:
    chosen = torch.tensor([[[0.0, 4.0], [7.0, 7.0]]], requires_grad=True)
    online = Outputs(chosen.mean(-1), torch.zeros(1, 0), chosen)
    target = Target(torch.tensor([[1.0, 2.0]]), torch.tensor([1.5]))
    loss = plain_loss(online, target, batch([[0]]), (2,), "quantile")
    assert loss.error.tolist() == pytest.approx([0.5])  # 1.5 against 2
    assert loss.total.item() == pytest.approx(0.75)  # as by hand above
    assert not loss.error.requires_grad


def test_the_priority_of_a_histogram_is_its_loss() -> None:
    chosen = torch.log(torch.tensor([[[0.5, 0.5]]])).requires_grad_()
    online = Outputs(torch.zeros(1, 1), torch.zeros(1, 0), chosen)
    target = Target(torch.tensor([[0.2, 0.8]]), torch.tensor([0.8]))
    loss = plain_loss(online, target, batch([[0]]), (1,), "categorical")
    assert loss.error.tolist() == pytest.approx([math.log(2)])
    assert not loss.error.requires_grad


def test_each_head_is_trained_at_its_own_place() -> None:
    online = outputs([[0.0] * 5])
    loss = plain_loss(online, towards([1.0]), batch([[1, 2]]), (2, 3))
    loss.total.backward()  # type: ignore[no-untyped-call]
    assert online.values.grad is not None
    assert online.values.grad.nonzero().tolist() == [[0, 1], [0, 4]]


def test_actions_that_did_better_than_expected_weigh_more() -> None:
    weight = advantage_weight(torch.tensor([-1.0, 1.0]))
    # The spread of the batch is 1, so the weights are e⁻¹ and e.
    assert weight.tolist() == pytest.approx([math.exp(-1), math.e], rel=2e-3)
    assert advantage_weight(torch.tensor([0.0] * 99 + [50.0])).max() == 10.0
    assert advantage_weight(torch.zeros(3)).tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("expert", "weights"),
    [
        ([False, False], [math.exp(-1), math.e]),
        ([True, False], [math.e, math.e]),  # as much as the one that did best
        ([True, True], [math.e, math.e]),
    ],
)
def test_continuous_controls_are_drawn_to_what_paid_off(
    expert: list[bool], weights: list[float]
) -> None:
    continuous = torch.tensor([[0.0], [0.0]], requires_grad=True)
    online = outputs([[0.0], [0.0]], continuous)
    given_batch = batch([[0], [0]], [[-0.5], [0.5]], expert=expert)
    loss = plain_loss(online, towards([-1.0, 1.0]), given_batch, (1,), continuous=2.0)
    # Each is half a unit off: 2 · weight · 0.25, beside the Huber losses of one unit.
    expected = 0.5 + sum(2.0 * weight * 0.25 for weight in weights) / 2
    assert loss.total.item() == pytest.approx(expected, rel=2e-3)
    loss.total.backward()  # type: ignore[no-untyped-call]
    pull = [-row[0] for row in gradient(continuous)]
    assert pull == pytest.approx([-weights[0], weights[1]], rel=2e-3)


def test_an_experts_choice_should_be_best_by_a_margin() -> None:
    values = torch.tensor([[1.0, 0.5, 0.0], [0.0, 3.0, 0.0]])
    place = torch.tensor([[0], [1]])
    # 0.5 + 0.8 is over the expert's 1.0 by 0.3; the second choice is clear of all others.
    assert margin(values, place, (3,)).tolist() == pytest.approx([0.3, 0.0])
    two_heads = margin(torch.tensor([[0.0, 1.0, 0.0, 0.0]]), torch.tensor([[0, 3]]), (2, 2))
    assert two_heads.tolist() == pytest.approx([((1.8 - 0.0) + (0.8 - 0.0)) / 2])


def test_cloning_concerns_the_experts_frames_only() -> None:
    online = outputs([[0.0, 1.0], [0.0, 1.0]])
    given_batch = batch([[0], [0]], expert=[True, False])
    loss = plain_loss(online, towards([0.0, 0.0]), given_batch, (2,), cloning=0.5)
    assert loss.total.item() == pytest.approx(0.5 * 1.8 / 2)
    loss.total.backward()  # type: ignore[no-untyped-call]
    assert gradient(online.values) == [[-0.25, 0.25], [0.0, 0.0]]


def test_cloning_draws_continuous_controls_to_the_experts_values_whatever_their_weight() -> None:
    continuous = torch.tensor([[0.0, 0.0], [0.0, 0.0]], requires_grad=True)
    online = outputs([[0.0], [0.0]], continuous)
    values = [[0.5, -1.0], [0.5, -1.0]]
    given_batch = batch([[0], [0]], values, expert=[True, False])
    weights = {"continuous": 0.0, "cloning": 0.4}
    loss = plain_loss(online, towards([0.0, 0.0]), given_batch, (1,), **weights)
    # Squares 0.25 and 1, their mean 0.625, of the first frame alone.
    assert loss.total.item() == pytest.approx(0.4 * 0.625 / 2)
    loss.total.backward()  # type: ignore[no-untyped-call]
    assert gradient(continuous) == [pytest.approx([-0.1, 0.2]), [0.0, 0.0]]
