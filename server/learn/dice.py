"""Chance for the frames to come, rolled in advance where Python and lane.c both find it.

lane.c need not be told a frame's luck before it knows that there is a frame, and numpy rolls a
thousand at once. Whoever answers a frame takes the next row, so that the same frames meet the same
luck whichever way they go.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

ROWS = 1024  # rolled at once; the frames of one loop turn are no more


class Dice:
    """A stock of rolled dice, a row for each frame."""

    def __init__(self, seed: int, heads: Sequence[int], controls: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._sizes = np.array(heads)
        self.luck = np.empty((ROWS, 2))  # 0..1: below epsilon explores; below the ratio is guided
        self.choice = np.empty((ROWS, len(heads)), np.int32)  # what exploring frames do
        self.place = np.empty((ROWS, controls))  # the same of continuous controls, in -1..1
        self.noise = np.empty((ROWS, controls))  # normal, on the others' continuous controls
        self._next = ctypes.c_int64(ROWS)  # row; lane.c moves it on as well

    def addresses(self) -> dict[str, int]:
        """Give where lane.c finds them."""
        return {
            "luck": self.luck.ctypes.data,
            "explored_choice": self.choice.ctypes.data,
            "explored_place": self.place.ctypes.data,
            "noise": self.noise.ctypes.data,
            "next_dice": ctypes.addressof(self._next),
        }

    def ready(self, rows: int) -> None:
        """Have so many rows there; those that are too few for that are thrown away."""
        if self._next.value + rows <= ROWS:
            return
        rng = self._rng
        rng.random(out=self.luck)
        self.choice[:] = rng.random(self.choice.shape) * self._sizes
        self.place[:] = rng.uniform(-1.0, 1.0, self.place.shape)
        rng.standard_normal(out=self.noise)
        self._next.value = 0

    def take(self, rows: int) -> slice:
        """Say which rows are the next frames'."""
        self.ready(rows)
        first = self._next.value
        self._next.value = first + rows
        return slice(first, first + rows)
