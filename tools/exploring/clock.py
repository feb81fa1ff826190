"""Bytes that time alone changes: clocks, and countdowns that something sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tools.exploring.number import decoded, is_bcd
from tools.exploring.trace import Bytes, Column, wrapped

_REGULAR = 0.9  # share of the changes that must agree
_SURE_INTERVALS = 4  # fewer may be regular by accident
_SLOW_FRAMES = 16  # a clock this slow may stop; a faster one that stops is something that moves
_RELOAD = 4  # the smallest jump that sets a countdown again


@dataclass(frozen=True, slots=True)
class Clock:
    """Changes with time alone."""

    interval: int  # frames
    step: int  # 0: it alternates
    bcd: bool

    def describe(self) -> str:
        """Say it in words: 'every 60 frames, -1 (BCD)'."""
        when = "every frame" if self.interval == 1 else f"every {self.interval} frames"
        how = f"{self.step:+d}" if self.step else "to and fro"
        return f"{when}, {how}{' (BCD)' if self.bcd else ''}"


def find(columns: Sequence[Bytes]) -> Clock | None:
    """Recognise a byte that changes with time alone, in every run."""
    intervals = [np.diff(np.nonzero(np.diff(column))[0]) for column in columns]
    every = _interval(np.concatenate(intervals))
    if not every or any(len(i) >= _SURE_INTERVALS and not _interval(i) for i in intervals):
        return None
    running = sum(len(i) for i in intervals) / sum(len(column) for column in columns)
    if running * every < _REGULAR and every < _SLOW_FRAMES:
        return None
    if all(len(np.unique(column)) <= 2 for column in columns):
        return Clock(every, 0, bcd=False)
    codes = (False, True) if is_bcd(columns) else (False,)
    steps = {bcd: _steps(columns, bcd=bcd) for bcd in codes}
    bcd = max(codes, key=lambda code: _share(steps[code]))
    return Clock(every, _usual(steps[bcd]), bcd) if _share(steps[bcd]) >= _REGULAR else None


def _steps(columns: Sequence[Bytes], *, bcd: bool) -> Column:
    """Give how far a byte goes with each change."""
    every = [np.diff(decoded(column, bcd=bcd)) for column in columns]
    steps = np.concatenate(every)
    return steps[steps != 0] if bcd else wrapped(steps[steps != 0])


def _interval(intervals: Column) -> int:
    """Give the interval at which something happens, or 0 if it is not regular enough to say."""
    if len(intervals) < _SURE_INTERVALS:
        return 0
    usual = _usual(intervals)
    near = int(usual >= _SLOW_FRAMES)  # a frame that took too long moves everything by one
    return usual if (np.abs(intervals - usual) <= near).mean() >= _REGULAR else 0


def _usual(values: Column) -> int:
    """Give the most frequent value."""
    found, counts = np.unique(values, return_counts=True)
    return int(found[counts.argmax()])


def _share(values: Column) -> float:
    """Give the share of the most frequent value."""
    return float(np.unique(values, return_counts=True)[1].max() / len(values))


def is_countdown(columns: Sequence[Bytes]) -> bool:
    """Recognise a byte that is set to something, counts down one by one and waits to be set."""
    steps = np.concatenate([np.diff(column.astype(np.int64)) for column in columns])
    down, up = steps[steps < 0], steps[steps > 0]
    if len(down) < 2 * _RELOAD or not len(up):
        return False
    return bool((down == -1).mean() >= _REGULAR and (up >= _RELOAD).all())
