"""The loss of one batch of transitions, in the order of the papers."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from torch import Tensor

from server.learn.network import Outputs


class Batch(NamedTuple):
    """Transitions as tensors on the learner's device."""

    observation: Tensor  # (batch, values)
    choice: Tensor  # (batch, heads) int64
    continuous: Tensor  # (batch, controls) in -1..1
    reward: Tensor  # (batch,)
    discount: Tensor  # (batch,)
    next_observation: Tensor  # (batch, values)


class Loss(NamedTuple):
    """The loss and what it was made of."""

    total: Tensor  # ()
    chosen: Tensor  # (batch,) worth of the actions taken, mean over heads
    target: Tensor  # (batch,) what they should be worth


def double_dqn_target(
    reward: Tensor,
    discount: Tensor,
    online_next: Tensor,
    target_next: Tensor,
    heads: tuple[int, ...],
) -> Tensor:
    """Give the target: the online network chooses, the target network judges.

    van Hasselt et al. 2016, eq. 4. With several heads the worth of the next state is the mean of
    theirs, as in branching Q-networks (Tavakoli et al. 2018, eq. 6).
    """
    worth = torch.stack(
        [
            judged.gather(1, chosen.argmax(1, keepdim=True)).squeeze(1)
            for chosen, judged in zip(
                _by_head(online_next, heads), _by_head(target_next, heads), strict=True
            )
        ]
    ).mean(0)
    return reward + discount * worth


def hybrid_loss(
    online: Outputs,
    target: Tensor,
    batch: Batch,
    heads: tuple[int, ...],
    offsets: Tensor,
    continuous_weight: float,
) -> Loss:
    """Huber loss of the chosen values, and the continuous controls drawn to what paid off.

    The offsets say where each head's values start.
    """
    chosen = online.values.gather(1, batch.choice + offsets)  # (batch, heads)
    total = F.smooth_l1_loss(chosen, target[:, None].expand_as(chosen))
    if batch.continuous.shape[1]:
        worth = torch.stack([v.max(1).values for v in _by_head(online.values.detach(), heads)])
        weight = advantage_weight(target - worth.mean(0))
        error = ((online.continuous - batch.continuous) ** 2).mean(1)
        total = total + continuous_weight * (weight * error).mean()
    return Loss(total, chosen.detach().mean(1), target)


def advantage_weight(advantage: Tensor, most: float = 10.0) -> Tensor:
    """Weigh actions by how much better than expected they did, in units of the batch's spread.

    Advantage-weighted regression (Peng et al. 2019, eq. 3) with the temperature set by the batch.
    """
    scale = advantage.std(correction=0) + 1e-3
    return torch.exp(advantage / scale).clamp(max=most)


def _by_head(values: Tensor, heads: tuple[int, ...]) -> tuple[Tensor, ...]:
    return torch.split(values, list(heads), 1)
