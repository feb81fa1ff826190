"""Chooses which transitions to learn from."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from server.learn.replay import Ints, Replay, Transitions

_LAPS = 64  # samples lost to a writer that laps the reader, before giving up
_REDRAWS = 16  # of frames without a successor


class UniformSampler:
    """Gives every transition in the replay the same chance."""

    def __init__(self, replay: Replay, seed: int) -> None:
        self._replay = replay
        self._rng = np.random.default_rng(seed)

    def sample(self, count: int, *, n_step: int, gamma: float) -> Transitions | None:
        """Gather that many transitions, or None where the replay has none to offer."""
        for _ in range(_LAPS):
            index = self._draw(count)
            if index is None:
                return None
            transitions = self._replay.gather(index, n_step=n_step, gamma=gamma)
            # The writer may have lapped us in the meantime: then what we read may be torn.
            if index.min() >= self._replay.oldest:
                return transitions
        return None

    def _draw(self, count: int) -> Ints | None:
        low, high = self._replay.oldest, self._replay.head
        if high <= low:
            return None
        index = self._rng.integers(low, high, count)
        for _ in range(_REDRAWS):
            missing: npt.NDArray[np.intp] = np.flatnonzero(~self._replay.linked(index))
            if not len(missing):
                return index
            index[missing] = self._rng.integers(low, high, len(missing))
        # Few frames have a successor (very short episodes): repeat some that were found.
        linked = self._replay.linked(index)
        if not linked.any():
            return None
        index[~linked] = self._rng.choice(index[linked], int((~linked).sum()))
        return index
