"""How an agent's returns went over the last frames: their mean and slope, in bounded memory.

A window is a row of buckets, each a hundredth of its frames. A bucket keeps sums, not episodes:
enough for the mean, and for the straight line that fits best (least squares).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from server.stats import ReturnWindow

WINDOWS = (100_000, 1_000_000, 5_000_000)  # frames
_BUCKETS = 100
# Of the episodes in a bucket: their number, and the sums that a straight line needs. x is the frame
# at which an episode ended, from the bucket's start and in widths of the window: small numbers.
_COUNT, _X, _XX, _Y, _XY = range(5)


class Trend:
    """The returns of the last so many frames."""

    def __init__(self, frames: int) -> None:
        self.frames = frames
        self._size = frames // _BUCKETS
        self._buckets: dict[int, list[float]] = {}  # by their number in the run
        self._shown: tuple[int, ReturnWindow] | None = None  # until anything changes

    def add(self, frame: int, episode_return: float) -> None:
        """Note an episode that ended at this frame of the agent."""
        number, rest = divmod(frame, self._size)
        sums = self._buckets.get(number)
        if sums is None:
            sums = self._buckets[number] = [0.0] * 5
            self._forget(number)
        x = rest / self.frames
        sums[_COUNT] += 1
        sums[_X] += x
        sums[_XX] += x * x
        sums[_Y] += episode_return
        sums[_XY] += x * episode_return
        self._shown = None

    def view(self, frame: int) -> ReturnWindow:
        """Give what the window shows when the agent is at this frame."""
        newest = frame // self._size
        if self._shown is None or self._shown[0] != newest:
            self._forget(newest)
            self._shown = newest, self._fitted(newest)
        return self._shown[1]

    def _forget(self, newest: int) -> None:
        """Drop the buckets that are no longer in the window."""
        for number in [number for number in self._buckets if number <= newest - _BUCKETS]:
            del self._buckets[number]

    def _fitted(self, newest: int) -> ReturnWindow:
        if not self._buckets:
            return ReturnWindow(self.frames, 0, None, None)
        sums = np.array(list(self._buckets.values()))  # (buckets, sums)
        count = sums[:, _COUNT].sum()
        mean = sums[:, _Y].sum() / count
        start = (np.array(list(self._buckets)) - newest) / _BUCKETS  # of each one, in widths
        x = start * sums[:, _COUNT] + sums[:, _X]
        xx = start**2 * sums[:, _COUNT] + 2 * start * sums[:, _X] + sums[:, _XX]
        xy = start * sums[:, _Y] + sums[:, _XY]
        middle = x.sum() / count
        spread = xx.sum() - count * middle**2
        rise = xy.sum() - count * middle * mean
        known = spread > 1e-12 * xx.sum()  # rounding leaves a spread where there is none
        slope = float(rise / spread * 1e6 / self.frames) if known else None
        return ReturnWindow(self.frames, int(count), float(mean), slope)

    def to_plain(self) -> list[list[float]]:
        """Give the buckets as JSON has them: which one it is, then its sums."""
        return [[number, *sums] for number, sums in self._buckets.items()]

    def restore(self, plain: Sequence[Sequence[Any]]) -> None:
        """Go on from what was kept."""
        self._buckets = {int(number): list(map(float, sums)) for number, *sums in plain}
        self._shown = None
