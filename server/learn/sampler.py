"""Chooses which transitions to learn from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from server.learn.replay import Ints, Replay, Transitions
from server.learn.schedule import Linear
from server.learn.tree import SumTree
from server.net.wire import ENDED

_LAPS = 64  # samples lost to a writer that laps the reader, before giving up
_REDRAWS = 16  # of frames without a successor


_LEAST_ERROR = 1e-3  # so that no transition is forgotten for good

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Sample:
    """Transitions, where they come from, and how much each counts."""

    index: Ints  # (batch,)
    transitions: Transitions
    weight: Floats | None  # (batch,) at most 1; None where all count the same


class UniformSampler:
    """Gives every transition in the replay the same chance."""

    def __init__(self, replay: Replay, seed: int, *, depth: int = 1) -> None:
        self._replay = replay
        self._depth = depth  # frames in the stack that an observation is
        self._rng = np.random.default_rng(seed)

    def sample(self, count: int, *, n_step: int, gamma: float, step: int = 0) -> Sample | None:
        """Gather that many transitions, or None where the replay has none to offer.

        The step is the learner's; a schedule may follow it.
        """
        for _ in range(_LAPS):
            index = self._draw(count)
            if index is None:
                return None
            weight = self._weigh(index, step)
            stack = self._replay.stack(index, self._depth)
            transitions = self._replay.gather(index, n_step=n_step, gamma=gamma, depth=self._depth)
            # The writer may have lapped us in the meantime: then what we read may be torn.
            if stack.min() >= self._replay.oldest:
                return Sample(index, transitions, weight)
        return None

    def learned(self, index: Ints, error: Floats) -> None:
        """Hear how wrong the network was about these; here it makes no difference."""

    def _pick(self, count: int, low: int, high: int) -> Ints:
        """Give that many frames of those in the replay, which are not none."""
        return self._rng.integers(low, high, count)

    def _weigh(self, index: Ints, step: int) -> Floats | None:
        return None

    def _draw(self, count: int) -> Ints | None:
        """Give that many frames that have a successor."""
        # Looked at once: the writer may empty the replay at any moment.
        low, high = self._replay.oldest, self._replay.head
        if low >= high:
            return None
        index = self._pick(count, low, high)
        for _ in range(_REDRAWS):
            missing: npt.NDArray[np.intp] = np.flatnonzero(~self._replay.linked(index))
            if not len(missing):
                return index
            index[missing] = self._pick(len(missing), low, high)
        # Few frames have a successor (very short episodes): repeat some that were found.
        linked = self._replay.linked(index)
        if not linked.any():
            return None
        index[~linked] = self._rng.choice(index[linked], int((~linked).sum()))
        return index


class PrioritySampler(UniformSampler):
    """Prefers the transitions that the network was most wrong about.

    Prioritised experience replay (Schaul et al. 2016), proportional. The priorities live here, on
    the learner's side: the writer knows nothing of them. New frames come in with the largest
    priority so far; frames that end an episode, or may be overwritten, have none.
    """

    def __init__(
        self, replay: Replay, seed: int, *, alpha: float, beta: Linear, depth: int = 1
    ) -> None:
        super().__init__(replay, seed, depth=depth)
        self._alpha = alpha
        self._beta = beta
        self._tree = SumTree(replay.layout.capacity)
        self._from = self._to = replay.oldest  # the frames that the tree knows
        self._most = 1.0  # largest priority so far

    def learned(self, index: Ints, error: Floats) -> None:
        """Hear how wrong the network was about these, and prefer them accordingly."""
        sound = np.isfinite(error) & (index >= self._from)
        priority = (np.abs(error[sound]) + _LEAST_ERROR).astype(np.float64) ** self._alpha
        if len(priority):
            self._most = max(self._most, float(priority.max()))
            self._tree.set(index[sound] % self._tree.size, priority)

    def _draw(self, count: int) -> Ints | None:
        self._follow()
        return super()._draw(count) if self._tree.total > 0 else None

    def _pick(self, count: int, low: int, high: int) -> Ints:
        """Draw from as many equal shares of the whole mass: it spreads better than pure chance."""
        mass = (np.arange(count) + self._rng.random(count)) * (self._tree.total / count)
        return self._replay.index_at(self._tree.find(mass), self._to)

    def _weigh(self, index: Ints, step: int) -> Floats:
        """Undo the bias of the choice, more and more (eq. 2 there): the rarest counts 1."""
        priority = self._tree.get(index % self._tree.size)
        weight: Floats = ((priority / priority.min()) ** -self._beta.at(step)).astype(np.float32)
        return weight

    def _follow(self) -> None:
        """Bring the tree up to what the writer did."""
        replay = self._replay
        head = replay.head
        # The writer may go round the ring between these two, so the order matters: never more than
        # a ring of frames is taken in, and frames that are gone already are left out.
        oldest = replay.oldest
        head = max(head, oldest)
        self._fill(self._from, min(oldest, self._to), np.zeros(1))
        self._from = oldest
        fresh = np.arange(max(oldest, self._to), head)
        ended = (replay.column("flags")[fresh % self._tree.size] & ENDED) != 0
        self._fill(max(oldest, self._to), head, np.where(ended, 0.0, self._most))
        self._to = head

    def _fill(self, start: int, stop: int, priority: npt.NDArray[np.float64]) -> None:
        """Set the priorities of a range of frames, which may go round the ring's end."""
        if start >= stop:
            return
        priority = np.broadcast_to(priority, (stop - start,))
        size = self._tree.size
        at = start % size
        first = min(stop - start, size - at)
        self._tree.fill(at, at + first, priority[:first])
        self._tree.fill(0, stop - start - first, priority[first:])

    def check_valid(self) -> None:
        """Raise an AssertionError if a rule of the tree is broken, or a dead frame has weight."""
        self._tree.check_valid()
        known = np.arange(self._from, self._to) % self._tree.size
        others = np.setdiff1d(np.arange(self._tree.size), known)
        if self._tree.get(others).any():
            raise AssertionError("a frame that is gone has a priority")
        ended = (self._replay.column("flags")[known] & ENDED) != 0
        if self._tree.get(known[ended]).any():
            raise AssertionError("a frame that ends its episode has a priority")
