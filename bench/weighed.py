"""Parts of a gradient step in the ways that were weighed: the one that is used, and another."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import torch
from torch.optim.adamw import adamw

from bench.stage import Stage
from server.learn.network import HybridNetwork

_RING = 100_000  # frames to gather from
_DRAWS = 64


def ways(stage: Stage) -> dict[str, Callable[[], object]]:
    """Give each way by its name, on the sizes of the stage."""
    return {**_gathers(stage), **_optimisers(stage), **_passes(stage)}


def _gathers(stage: Stage) -> dict[str, Callable[[], object]]:
    """Give a sample's observations out of a ring: by numpy, and by torch into the same memory."""
    # Not of zeros: memory that was never written is one page for all.
    ring = np.ones((_RING, stage.spaces.observation.values), np.uint8)
    rows = stage.rules.steps_per_sample * stage.rules.batch_size
    draws = np.random.default_rng(1).integers(0, _RING, (_DRAWS, rows))
    there, at = torch.from_numpy(ring), itertools.cycle(torch.from_numpy(draws))
    index = itertools.cycle(draws)  # other frames each time, as in a sample
    out = torch.empty((rows, ring.shape[1]), dtype=torch.uint8)
    return {
        "gather_take_us": lambda: ring.take(next(index), axis=0),
        "gather_select_us": lambda: torch.index_select(there, 0, next(at), out=out),
    }


def _optimisers(stage: Stage) -> dict[str, Callable[[], object]]:
    """Give AdamW's step over all parameters in one tensor: fused, and torch's usual one."""
    size = len(stage.weights.flat)

    def step(fused: bool) -> Callable[[], object]:
        flat, gradient, mean, square = (torch.full((size,), 1e-3) for _ in range(4))
        count = torch.zeros(())
        how = {"beta1": 0.9, "beta2": 0.999, "lr": 5e-4, "weight_decay": 1e-5, "eps": 1e-8}
        return lambda: adamw(
            *([flat], [gradient], [mean], [square], [], [count]),
            fused=fused,
            foreach=not fused,
            amsgrad=False,
            maximize=False,
            **how,  # type: ignore[arg-type]
        )

    return {"adamw_fused_us": step(True), "adamw_foreach_us": step(False)}


def _passes(stage: Stage) -> dict[str, Callable[[], object]]:
    """Give the passes of two batches through one network: one after the other, and joined."""
    network = HybridNetwork(stage.spaces, stage.shape)
    rows, values = stage.rules.batch_size, stage.spaces.observation.values
    first, second = (torch.rand((rows, values)) for _ in range(2))

    @torch.no_grad()
    def apart() -> object:
        return network(first), network(second)

    @torch.no_grad()
    def joined() -> object:
        return network(torch.cat([first, second]))

    return {"passes_apart_us": apart, "passes_joined_us": joined}
