"""Judges batches with both networks: the target, and the loss of the one that trains.

Each is some forty calls of torch, and after each call Python's lock must be had again, which the
event loop wants too. Where the calls are always the same they are traced once and then run as one,
without the lock: the same calls in the same order, so the same numbers bit for bit.
"""

from __future__ import annotations

import threading
import warnings
from typing import Any

import torch
from torch import Tensor, nn

from server.learn import loss as losses
from server.learn.loss import Batch, Loss, Target
from server.learn.network import HybridNetwork, Outputs

_MUNCHAUSEN_TEMPERATURE = 0.03  # as in the paper
_TRACED_ROWS = 4  # any number will do: nothing in a trace depends on it
_tracing = threading.Lock()  # torch keeps what it has traced so far in a global variable


class Judge:
    """Finds the loss of batches; the networks belong to the learner."""

    def __init__(
        self,
        online: HybridNetwork,
        target: HybridNetwork,
        *,
        munchausen: float = 0.0,
        continuous_weight: float = 1.0,
        traced: bool = True,
    ) -> None:
        self._continuous_weight = continuous_weight
        self._target_of = _TargetOf(online, target, munchausen)
        self._loss_of = _LossOf(online, continuous_weight)
        shape = online.shape
        # Images are few and long calls, noisy layers are rare, and what runs on a GPU does not wait
        # for its calls.
        device = next(online.parameters()).device.type
        self._traceable = traced and device == "cpu" and online.image is None and not shape.noisy
        self._traces: dict[bool, tuple[Any, Any]] = {}  # by whether transitions have weights

    def __call__(self, batch: Batch, cloning: float = 0.0) -> Loss:
        """Give the loss of a batch; ``cloning`` is how much an expert's choices count."""
        columns = tuple(column for column in batch if column is not None)
        # What an expert's choices count changes from step to step.
        traces = None if cloning or not self._traceable else self._traced(columns)
        if traces is None:
            with torch.no_grad():
                target = self._target_of(*batch)
            weights = losses.Weights(self._continuous_weight, cloning)
            return self._loss_of.with_weights(target, batch, weights)
        target_of, loss_of = traces
        with torch.no_grad():
            atoms, worth = target_of(*columns)
        return Loss(*loss_of(atoms, worth, *columns))

    def _traced(self, columns: tuple[Tensor, ...]) -> tuple[Any, Any] | None:
        # Of this thread. Run as written: what torch would optimise costs tenths of a second, and
        # gains nothing here.
        torch._C._set_graph_executor_optimize(False)
        weighted = len(columns) == len(Batch._fields)
        if weighted not in self._traces:
            few = tuple(column[:_TRACED_ROWS].clone() for column in columns)  # they are kept
            try:
                with torch.no_grad():
                    target_of = _trace(self._target_of, few)
                    target = target_of(*few)
                self._traces[weighted] = target_of, _trace(self._loss_of, (*target, *few))
            except Exception:  # a Python that torch cannot trace with: it is only slower without
                self._traceable = False
                return None
        return self._traces[weighted]


class _TargetOf(nn.Module):
    """What the chosen actions should be worth."""

    offsets: Tensor  # (heads,)

    def __init__(self, online: HybridNetwork, target: HybridNetwork, munchausen: float) -> None:
        super().__init__()
        self.online, self.target = online, target
        self.munchausen = munchausen
        self.heads = online.branches
        self.register_buffer("offsets", offsets(online), persistent=False)

    def forward(self, *columns: Tensor) -> Target:
        batch = Batch(*columns)
        following = self.online.scaled(batch.next_observation)  # once for both networks
        judged: Outputs = self.target(following)
        if self.munchausen:
            return losses.munchausen_target(
                batch,
                self.target(batch.observation),
                judged,
                self.offsets,
                self.heads,
                self.munchausen,
                _MUNCHAUSEN_TEMPERATURE,
            )
        chosen: Outputs = self.online(following)
        if self.online.shape.distribution == "categorical":
            return losses.categorical_target(batch, chosen, judged, self.heads, self.online.support)
        return losses.double_dqn_target(batch, chosen, judged, self.heads)


class _LossOf(nn.Module):
    """How far the network is from a target."""

    offsets: Tensor  # (heads,)

    def __init__(self, online: HybridNetwork, continuous_weight: float) -> None:
        super().__init__()
        self.online = online
        self.continuous_weight = continuous_weight
        self.register_buffer("offsets", offsets(online), persistent=False)

    def forward(self, atoms: Tensor, worth: Tensor, *columns: Tensor) -> Loss:
        weights = losses.Weights(self.continuous_weight)
        return self.with_weights(Target(atoms, worth), Batch(*columns), weights)

    def with_weights(self, target: Target, batch: Batch, weights: losses.Weights) -> Loss:
        """Give the same with other weights of its parts."""
        return losses.hybrid_loss(
            self.online(batch.observation),
            target,
            batch,
            self.online.branches,
            self.offsets,
            losses.DISTANCES[self.online.shape.distribution],
            weights,
        )


def offsets(network: HybridNetwork) -> Tensor:
    """Give where each head's choices start."""
    heads = network.branches
    starts = [sum(heads[:head]) for head in range(len(heads))]
    return torch.tensor(starts, device=next(network.parameters()).device)


def _trace(module: nn.Module, columns: tuple[Tensor, ...]) -> Any:
    with _tracing, warnings.catch_warnings():
        # That tracing will go is known, and torch is pinned; what depends on shapes is checked by
        # a test for every kind of network.
        warnings.simplefilter("ignore")
        return torch.jit.trace(module, columns, check_trace=False)  # type: ignore[no-untyped-call]
