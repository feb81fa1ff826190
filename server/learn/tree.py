"""A tree of sums: draws places in proportion to their weights, a whole batch at once.

The rules:
- The leaves are the weights; each node above holds the sum of its FAN children.
- A node is always summed anew from its children, never corrected by differences, so rounding
  does not pile up.

A wide tree has few levels (four for a million leaves), and each level is one numpy call for the
whole batch: a binary tree would make five times as many calls.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from server.learn.replay import Ints

FAN = 32

Floats = npt.NDArray[np.float64]


class SumTree:
    """Weights that only one thread reads and writes."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._levels: list[Floats] = []  # the leaves first, one number last; rows of FAN
        count = size
        while True:
            rows = -(-count // FAN)
            self._levels.append(np.zeros((rows, FAN)))
            if rows == 1:
                break
            count = rows

    @property
    def total(self) -> float:
        """The sum of all weights."""
        return float(self._levels[-1].sum())

    def get(self, place: Ints) -> Floats:
        """Give the weights at these places."""
        weights: Floats = self._levels[0].reshape(-1)[place]
        return weights

    def set(self, place: Ints, weight: Floats | float) -> None:
        """Change weights; of several at one place the last counts."""
        if not len(place):
            return
        self._levels[0].reshape(-1)[place] = weight
        self._sum(np.unique(place // FAN))

    def fill(self, start: int, stop: int, weight: Floats | float) -> None:
        """Change a range of weights, which is cheaper than as many places."""
        if start >= stop:
            return
        self._levels[0].reshape(-1)[start:stop] = weight
        self._sum(np.arange(start // FAN, (stop - 1) // FAN + 1))

    def find(self, mass: Floats) -> Ints:
        """Give the place where the running sum of the weights passes each mass (0 to total).

        A place without weight is never found, as long as there is any weight at all.
        """
        node = np.zeros(len(mass), np.int64)
        left = mass.copy()
        for level in reversed(self._levels):
            running = np.cumsum(level[node], axis=1)
            # Rounding can leave a mass just beyond the last child: it belongs to the last one
            # that weighs anything.
            left = np.minimum(left, np.nextafter(running[:, -1], -np.inf))
            child = (running <= left[:, None]).sum(axis=1)
            before = np.where(child > 0, running[np.arange(len(node)), child - 1], 0.0)
            left = np.maximum(left - before, 0.0)
            node = node * FAN + child
        return node

    def check_valid(self) -> None:
        """Raise an AssertionError if any sum is not that of its children."""
        for below, above in zip(self._levels, self._levels[1:], strict=False):
            sums = above.reshape(-1)
            if not np.array_equal(sums[: len(below)], below.sum(axis=1)):
                raise AssertionError("a node is not the sum of its children")
            if sums[len(below) :].any():
                raise AssertionError("a node without children has a weight")
        leaves: Any = self._levels[0].reshape(-1)
        if not np.isfinite(leaves).all() or (leaves < 0).any() or leaves[self.size :].any():
            raise AssertionError("a weight is negative, not finite, or outside the tree")

    def _sum(self, rows: Ints) -> None:
        """Bring the nodes over these rows of leaves up to date, level by level."""
        for below, above in zip(self._levels, self._levels[1:], strict=False):
            above.reshape(-1)[rows] = below[rows].sum(axis=1)
            rows = np.unique(rows // FAN)
