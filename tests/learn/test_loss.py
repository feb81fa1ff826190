"""The loss by hand."""

from __future__ import annotations

import math

import pytest
import torch

from server.learn.loss import Batch, advantage_weight, double_dqn_target, hybrid_loss
from server.learn.network import Outputs


def batch(choice: list[list[int]], continuous: list[list[float]]) -> Batch:
    count = len(choice)
    nothing = torch.zeros(count)
    return Batch(
        torch.zeros(count, 1),
        torch.tensor(choice),
        torch.tensor(continuous).reshape(count, -1),
        nothing,
        nothing,
        torch.zeros(count, 1),
    )


def test_double_dqn_lets_one_network_choose_and_the_other_judge() -> None:
    online = torch.tensor([[1.0, 3.0, 2.0], [0.0, 0.0, 5.0]])
    target = torch.tensor([[10.0, 20.0, 30.0], [1.0, 2.0, 3.0]])
    got = double_dqn_target(
        torch.tensor([1.0, -1.0]), torch.tensor([0.9, 0.0]), online, target, (3,)
    )
    # Row 0: choice 1 by the online network, worth 20 by the target, not 30.
    assert got.tolist() == pytest.approx([1 + 0.9 * 20, -1.0])


def test_several_heads_share_the_mean_of_their_worth() -> None:
    online = torch.tensor([[1.0, 0.0, 0.0, 7.0, 0.0]])
    target = torch.tensor([[4.0, 9.0, 1.0, 2.0, 3.0]])
    got = double_dqn_target(torch.tensor([0.0]), torch.tensor([0.5]), online, target, (2, 3))
    assert got.tolist() == [0.5 * (4 + 2) / 2]


def test_the_huber_loss_of_the_chosen_values() -> None:
    values = torch.tensor([[1.0, 5.0], [0.0, 0.0]], requires_grad=True)
    online = Outputs(values, torch.zeros(2, 0))
    loss = hybrid_loss(
        online, torch.tensor([5.5, 3.0]), batch([[1], [0]], [[], []]), (2,), torch.tensor([0]), 1.0
    )
    # 0.5·0.5² inside the unit, 3 − 0.5 outside, then the mean.
    assert loss.total.item() == pytest.approx((0.125 + 2.5) / 2)
    loss.total.backward()  # type: ignore[no-untyped-call]
    assert values.grad is not None
    assert values.grad.tolist() == [[0.0, -0.25], [-0.5, 0.0]]


def test_each_head_is_trained_at_its_own_place() -> None:
    values = torch.zeros(1, 5, requires_grad=True)
    loss = hybrid_loss(
        Outputs(values, torch.zeros(1, 0)),
        torch.tensor([1.0]),
        batch([[1, 2]], [[]]),
        (2, 3),
        torch.tensor([0, 2]),
        1.0,
    )
    loss.total.backward()  # type: ignore[no-untyped-call]
    assert values.grad is not None
    assert values.grad.nonzero().tolist() == [[0, 1], [0, 4]]


def test_actions_that_did_better_than_expected_weigh_more() -> None:
    weight = advantage_weight(torch.tensor([-1.0, 1.0]))
    # The spread of the batch is 1, so the weights are e⁻¹ and e.
    assert weight.tolist() == pytest.approx([math.exp(-1), math.e], rel=2e-3)
    assert advantage_weight(torch.tensor([0.0] * 99 + [50.0])).max() == 10.0
    assert advantage_weight(torch.zeros(3)).tolist() == [1.0, 1.0, 1.0]


def test_continuous_controls_are_drawn_to_what_paid_off() -> None:
    continuous = torch.tensor([[0.0], [0.0]], requires_grad=True)
    online = Outputs(torch.zeros(2, 1), continuous)
    loss = hybrid_loss(
        online,
        torch.tensor([-1.0, 1.0]),
        batch([[0], [0]], [[-0.5], [0.5]]),
        (1,),
        torch.tensor([0]),
        2.0,
    )
    weights = advantage_weight(torch.tensor([-1.0, 1.0]))
    assert loss.total.item() == pytest.approx(0.5 + 2.0 * float((weights * 0.25).mean()))
    loss.total.backward()  # type: ignore[no-untyped-call]
    assert continuous.grad is not None
    pull = (-continuous.grad).flatten().tolist()
    assert pull[0] < 0 < pull[1]
    assert abs(pull[1]) > 5 * abs(pull[0])
