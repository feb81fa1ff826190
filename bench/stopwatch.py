"""Times small pieces of work."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

_BATCH_S = 0.001


def median_us(work: Callable[[], object], seconds: float) -> float:
    """Give the microseconds of one call: the median over many batches of calls.

    A batch is long enough for the clock, and so short that whoever else wants the core spoils
    only some of them.
    """
    calls = _calls(work)
    spent_s: list[float] = []
    deadline = time.perf_counter() + seconds
    while not spent_s or time.perf_counter() < deadline:
        spent_s.append(_time(work, calls))
    return 1e6 * statistics.median(spent_s) / calls


def _calls(work: Callable[[], object]) -> int:
    """Find how many calls fill a batch; warms the work up on the way."""
    calls = 1
    while (spent_s := _time(work, calls)) < _BATCH_S / 2:
        calls *= 2
    return max(1, round(calls * _BATCH_S / spent_s))


def _time(work: Callable[[], object], calls: int) -> float:
    began = time.perf_counter()
    for _ in range(calls):
        work()
    return time.perf_counter() - began
