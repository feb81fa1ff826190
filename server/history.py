"""The past of an agent's figures: the newest moments one by one, the older the coarser.

A point of tier t stands for 2**t seconds. When a tier is full, its two oldest points become one of
the next tier: a run of days is a few hundred points, and drawn one beside the other their time is
compressed as a logarithm compresses it.
"""

from __future__ import annotations

import math
from collections import deque

from server.stats import AgentView

TIER = 12  # points that each tier keeps
_MOST_TIERS = 26  # two years of seconds
AGE = "age_s"  # of the middle of each point

# The figures of an AgentView that have a past.
FIGURES = (
    "frames_per_s",
    "steps_per_s",
    "replay_ratio",
    "loss",
    "gradient_norm",
    "q_mean",
    "learning_rate",
    "epsilon",
    "latency_p50_ms",
    "latency_p99_ms",
    "return_mean",
)


class History:
    """One agent's past, in series of equal length, oldest first."""

    def __init__(self) -> None:
        self._tiers: list[deque[tuple[float, ...]]] = [deque()]
        self._series: dict[str, tuple[float, ...]] = {}

    def add(self, view: AgentView) -> None:
        """Note the figures of one more second."""
        values = (getattr(view, name) for name in FIGURES)
        point = tuple(math.nan if value is None else float(f"{value:.4g}") for value in values)
        self._push(0, point)
        self._series = {}

    def series(self) -> dict[str, tuple[float, ...]]:
        """Give each figure's values, and the age of each point, oldest first."""
        if not self._series:
            points = [point for tier in reversed(self._tiers) for point in tier]
            columns = zip(*points, strict=True) if points else ((),) * len(FIGURES)
            self._series = {AGE: self._ages(), **dict(zip(FIGURES, columns, strict=True))}
        return self._series

    def _push(self, number: int, point: tuple[float, ...]) -> None:
        if number == len(self._tiers):
            self._tiers.append(deque())
        tier = self._tiers[number]
        tier.append(point)
        if len(tier) <= TIER + 1:
            return
        first, second = tier.popleft(), tier.popleft()
        if number + 1 < _MOST_TIERS:
            self._push(number + 1, tuple(map(_mean, first, second)))

    def _ages(self) -> tuple[float, ...]:
        ages: list[float] = []
        age = 0.0
        for number, tier in enumerate(self._tiers):
            for _ in tier:
                ages.append(age + 2**number / 2)
                age += 2**number
        return tuple(reversed(ages))


def _mean(first: float, second: float) -> float:
    """Give the mean of what is known."""
    if math.isnan(first):
        return second
    return first if math.isnan(second) else float(f"{(first + second) / 2:.4g}")
