"""The loss of one batch of transitions, in the order of the papers.

A choice's worth is described by atoms: one number, quantiles, or logits over a fixed support. All
of them go the same way: the next state's atoms are mixed by a policy, discounted into a target,
and the chosen atoms are drawn to it. With several heads the worth of a state is the mean of
theirs, as in branching Q-networks (Tavakoli et al. 2018, eq. 6).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from torch import Tensor

from server.learn.network import Outputs

_MARGIN = 0.8  # by which an expert's choice should be worth more than any other
_LOG_BOUND = -1.0  # of the Munchausen term


class Batch(NamedTuple):
    """Transitions as tensors on the learner's device."""

    observation: Tensor  # (batch, values)
    choice: Tensor  # (batch, heads) int64
    continuous: Tensor  # (batch, controls) in -1..1
    reward: Tensor  # (batch,)
    discount: Tensor  # (batch,)
    next_observation: Tensor  # (batch, values)
    expert: Tensor  # (batch,) whether an expert or a person chose: bool
    weight: Tensor | None = None  # (batch,) how much each counts; None: all the same

    def split(self, parts: int) -> list[Batch]:
        """Cut into equal batches, without copying."""
        size = len(self.reward) // parts
        columns = ([None] * parts if c is None else torch.split(c, size) for c in self)
        return [Batch(*column) for column in zip(*columns, strict=True)]


class Target(NamedTuple):
    """What the chosen actions should be worth."""

    atoms: Tensor  # (batch, width) as the network describes it
    worth: Tensor  # (batch,) its expectation


class Loss(NamedTuple):
    """The loss and what it was made of."""

    total: Tensor  # ()
    chosen: Tensor  # (batch, heads, width) atoms of the actions taken
    error: Tensor  # (batch,) how wrong each was: its priority


# --- who plays on ---------------------------------------------------------------------------


def best(values: Tensor, heads: tuple[int, ...]) -> Tensor:
    """Give the place of each head's best choice: (batch, heads)."""
    if len(heads) == 1:
        return values.argmax(1, keepdim=True)
    starts = accumulate(heads, initial=0)
    parts = zip(_by_head(values, heads), starts, strict=False)
    return torch.stack([worth.argmax(1) + start for worth, start in parts], 1)


def taken(atoms: Tensor, place: Tensor) -> Tensor:
    """Give the atoms of the choices at these places: (batch, heads, width)."""
    return atoms.gather(1, place[..., None].expand(-1, -1, atoms.shape[-1]))


def log_softened(values: Tensor, heads: tuple[int, ...], temperature: float) -> Tensor:
    """Give the logarithms of the policy that prefers better choices softly: (batch, choices)."""
    return torch.cat([F.log_softmax(v / temperature, 1) for v in _by_head(values, heads)], 1)


def mixed(atoms: Tensor, policy: Tensor, heads: tuple[int, ...]) -> Tensor:
    """Give the atoms of a state under a policy, as the mean over heads: (batch, width)."""
    return torch.bmm(policy.unsqueeze(1), atoms).squeeze(1) / len(heads)


# --- targets --------------------------------------------------------------------------------


def double_dqn_target(
    batch: Batch, online_next: Outputs, target_next: Outputs, heads: tuple[int, ...]
) -> Target:
    """Give the target: the online network chooses, the target network judges.

    van Hasselt et al. 2016, eq. 4. For numbers and for quantiles.
    """
    following = taken(target_next.atoms, best(online_next.values, heads)).mean(1)
    return _discounted(batch.reward, batch.discount, following)


def categorical_target(
    batch: Batch,
    online_next: Outputs,
    target_next: Outputs,
    heads: tuple[int, ...],
    support: Tensor,
) -> Target:
    """Give the same for distributions over a fixed support: their atoms are probabilities."""
    logits = taken(target_next.atoms, best(online_next.values, heads))
    following = torch.softmax(logits, -1).mean(1)
    atoms = projected(following, batch.reward, batch.discount, support)
    return Target(atoms, atoms @ support)


def projected(probability: Tensor, reward: Tensor, discount: Tensor, support: Tensor) -> Tensor:
    """Shift and shrink distributions, and share each atom between its neighbours on the support.

    Bellemare et al. 2017, algorithm 1.
    """
    low, high = support[0], support[-1]
    step = (high - low) / (len(support) - 1)
    places = (reward[:, None] + discount[:, None] * support).clamp(low, high)
    place = ((places - low) / step).clamp(0, len(support) - 1)
    below = place.floor()
    share = place - below  # of the atom above
    target = torch.zeros_like(probability)
    target.scatter_add_(1, below.long(), probability * (1 - share))
    target.scatter_add_(1, place.ceil().long(), probability * share)
    return target


def munchausen_target(
    batch: Batch,
    target_now: Outputs,
    target_next: Outputs,
    offsets: Tensor,
    heads: tuple[int, ...],
    share: float,
    temperature: float,
) -> Target:
    """Give the target of a policy that is soft, and paid for being sure of itself.

    Vieillard et al. 2020, eq. 1. With several steps only the first one's certainty is paid.
    """
    log_next = log_softened(target_next.values, heads, temperature)
    soft = target_next.atoms - temperature * log_next[..., None]
    following = mixed(soft, log_next.exp(), heads)
    log_now = log_softened(target_now.values, heads, temperature)
    sure = log_now.gather(1, batch.choice + offsets) * temperature
    reward = batch.reward + share * sure.clamp(_LOG_BOUND, 0).mean(1)
    return _discounted(reward, batch.discount, following)


def _discounted(reward: Tensor, discount: Tensor, following: Tensor) -> Target:
    atoms = reward[:, None] + discount[:, None] * following
    return Target(atoms, atoms.mean(1))


# --- how far the chosen atoms are from their target ------------------------------------------


def huber(chosen: Tensor, target: Tensor) -> Tensor:
    """Give the Huber loss of single numbers: (batch, heads)."""
    chosen = chosen.squeeze(-1)
    return F.smooth_l1_loss(chosen, target.expand_as(chosen), reduction="none")


def quantile_huber(chosen: Tensor, target: Tensor) -> Tensor:
    """Give the quantile regression loss: (batch, heads).

    Dabney et al. 2018, eq. 10: summed over the quantiles, the mean over the target's.
    """
    width = chosen.shape[-1]
    level = (torch.arange(width, device=chosen.device) + 0.5) / width
    error = target[:, None, None, :] - chosen[..., None]  # (batch, heads, quantile, target's)
    size = F.smooth_l1_loss(error, torch.zeros_like(error), reduction="none")
    tilt = (level[:, None] - (error.detach() < 0).float()).abs()
    return (tilt * size).mean(-1).sum(-1)


def cross_entropy(chosen: Tensor, target: Tensor) -> Tensor:
    """Give the cross entropy between a target distribution and the chosen logits."""
    return -(target[:, None] * F.log_softmax(chosen, -1)).sum(-1)


def surprise(chosen: Tensor, target: Tensor) -> Tensor:
    """Give how far the expected worths are from their target's: (batch, heads).

    The |delta| of prioritised replay (Schaul et al. 2016, section 3.3), of each branch by itself
    (Tavakoli et al. 2018). Not the loss: below 1 the Huber loss is a square, and a power of it
    would prefer the large errors about twice as much as ``priority_alpha`` says.
    """
    return (target.mean(1, keepdim=True) - chosen.mean(-1)).abs()


class Distance(NamedTuple):
    """How far chosen atoms are from a target: what is minimised, and what makes a priority."""

    loss: Callable[[Tensor, Tensor], Tensor]
    error: Callable[[Tensor, Tensor], Tensor] | None = None  # None: the loss itself


# The loss of whole distributions is their priority in Rainbow (Hessel et al. 2018).
DISTANCES: dict[str, Distance] = {
    "none": Distance(huber, surprise),
    "quantile": Distance(quantile_huber, surprise),
    "categorical": Distance(cross_entropy),
}


# --- the loss -------------------------------------------------------------------------------


class Weights(NamedTuple):
    """How much each part of the loss counts."""

    continuous: float = 1.0
    cloning: float = 0.0


def hybrid_loss(
    online: Outputs,
    target: Target,
    batch: Batch,
    heads: tuple[int, ...],
    offsets: Tensor,
    distance: Distance,
    weights: Weights,
) -> Loss:
    """Draw the chosen atoms to their target, and the continuous controls to what paid off.

    Cloning draws the choices and the continuous controls to what an expert did. The
    offsets say where each head's choices start.
    """
    place = batch.choice + offsets  # (batch, heads)
    chosen = taken(online.atoms, place)
    loss = distance.loss(chosen, target.atoms).mean(1)
    seen = chosen.detach()
    error = loss.detach() if distance.error is None else distance.error(seen, target.atoms).mean(1)
    missed = margin(online.values, place, heads) if weights.cloning else None
    if online.continuous.shape[1]:
        best = torch.stack([v.max(1).values for v in _by_head(online.values.detach(), heads)])
        weight = advantage_weight(target.worth - best.mean(0))
        weight = torch.where(batch.expert, weight.max(), weight)  # nobody's counts more
        gap = ((online.continuous - batch.continuous) ** 2).mean(1)
        loss = loss + weights.continuous * weight * gap
        missed = missed if missed is None else missed + gap
    if missed is not None:
        loss = loss + weights.cloning * batch.expert * missed
    if batch.weight is not None:
        loss = loss * batch.weight
    return Loss(loss.mean(), seen, error)


def advantage_weight(advantage: Tensor, most: float = 10.0) -> Tensor:
    """Weigh actions by how much better than expected they did, in units of the batch's spread.

    Advantage-weighted regression (Peng et al. 2019, eq. 3) with the temperature set by the batch.
    """
    scale = advantage.std(correction=0) + 1e-3
    return torch.exp(advantage / scale).clamp(max=most)


def margin(values: Tensor, place: Tensor, heads: tuple[int, ...]) -> Tensor:
    """Say by how much an expert's choices miss being the best by a margin: (batch,).

    Hester et al. 2018, eq. 1.
    """
    raised = values + _MARGIN
    raised = raised.scatter(1, place, values.gather(1, place))
    best = torch.stack([part.max(1).values for part in _by_head(raised, heads)], 1)
    return (best - values.gather(1, place)).mean(1)


def _by_head(values: Tensor, heads: tuple[int, ...]) -> tuple[Tensor, ...]:
    return torch.split(values, list(heads), 1)
