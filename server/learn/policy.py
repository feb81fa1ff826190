"""Chooses actions: the network's best, a random one, or the expert's."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from server.learn.network import Inference, Weights
from server.net.wire import Choice, Source
from server.spaces import Actions

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Mix:
    """How much of what goes into the actions right now."""

    epsilon: float = 0.0
    noise: float = 0.0  # share of half a continuous control's range
    expert_ratio: float = 0.0


class Decision(NamedTuple):
    """The actions for a batch of frames, as the replay stores them."""

    choice: Array  # (batch, heads)
    continuous: Array  # (batch, controls) in -1..1
    source: Array  # (batch,)


class Coding:
    """Translates between the choices on the wire and the numbers the network works with."""

    def __init__(self, actions: Actions) -> None:
        self._sizes = tuple(control.choices for control in actions.discrete)
        self._joint = actions.joint and len(self._sizes) > 1
        self.heads = actions.heads
        self.controls = len(actions.continuous)
        low = np.array([control.low for control in actions.continuous], np.float64)
        high = np.array([control.high for control in actions.continuous], np.float64)
        self._low, self._high = low, high
        self._middle, self._half = (low + high) / 2, (high - low) / 2

    def to_wire(self, decision: Decision) -> tuple[list[list[int]], list[list[float]]]:
        """Give each frame's discrete choices and continuous values, as the game knows them."""
        count = len(decision.source)
        if self._joint:
            columns = np.unravel_index(decision.choice[:, 0], self._sizes)
            discrete = np.stack(columns, axis=1).tolist()
        elif self._sizes:
            discrete = decision.choice.tolist()
        else:
            discrete = [[]] * count
        if not self.controls:
            return discrete, [[]] * count
        # Clipped: a float32 just over 1 must not leave the announced range.
        values = np.clip(self._middle + self._half * decision.continuous, self._low, self._high)
        return discrete, values.tolist()

    def from_wire(self, choice: Choice) -> tuple[Array, Array]:
        """Give the stored form of one choice: (heads,) and (controls,)."""
        if self._joint:
            heads = np.array([np.ravel_multi_index(tuple(choice.discrete), self._sizes)])
        elif self._sizes:
            heads = np.array(choice.discrete)
        else:
            heads = np.zeros(1, np.int64)
        values = np.array(choice.continuous, np.float64)
        return heads, ((values - self._middle) / self._half).astype(np.float32)


class Policy:
    """Owns the weights that play; they are refreshed by the heartbeat."""

    def __init__(self, inference: Inference, coding: Coding, seed: int) -> None:
        self._inference = inference
        self._dice = random.Random(seed)
        self._rng = np.random.default_rng(seed)
        self.coding = coding
        self.weights: Weights | None = None

    def load(self, weights: Weights) -> bool:
        """Play with these weights from now on; False, and no change, if any is not finite."""
        if not np.isfinite(weights.flat).all():
            return False
        self._inference.load(weights)
        self.weights = weights
        return True

    def act(
        self, observation: Array, experts: Sequence[Choice | None] | None, mix: Mix
    ) -> Decision:
        """Choose an action for each observation of a batch; experts is None if none proposes."""
        count = len(observation)
        values, continuous = self._inference(observation)
        choice = self._best(values)
        source = np.zeros(count, np.uint8)
        if mix.noise and self.coding.controls:
            noise = mix.noise * self._rng.standard_normal(continuous.shape, np.float32)
            continuous = np.clip(continuous + noise, -1, 1)
        if mix.epsilon:
            for row in self._struck(count, mix.epsilon):
                self._explore(choice[row], continuous[row])
                source[row] = Source.EXPLORATION
        if experts is not None and mix.expert_ratio:
            for row in self._struck(count, mix.expert_ratio):
                expert = experts[row]
                if expert is not None:
                    choice[row], continuous[row] = self.coding.from_wire(expert)
                    source[row] = Source.EXPERT
        return Decision(choice, continuous, source)

    def _best(self, values: Array) -> Array:
        """Give the most valuable choice of each head: (batch, heads)."""
        heads = self.coding.heads
        if len(heads) == 1:
            best: Array = values.argmax(axis=1)[:, None]
            return best
        choice = np.empty((len(values), len(heads)), np.int64)
        start = 0
        for head, size in enumerate(heads):
            choice[:, head] = values[:, start : start + size].argmax(axis=1)
            start += size
        return choice

    def _struck(self, count: int, share: float) -> list[int]:
        """Give the rows that the dice strike; plain Python beats numpy for a few rows."""
        dice = self._dice.random
        return [row for row in range(count) if dice() < share]

    def _explore(self, choice: Array, continuous: Array) -> None:
        """Replace one action by a random one."""
        for head, size in enumerate(self.coding.heads):
            choice[head] = self._dice.randrange(size)
        for control in range(self.coding.controls):
            continuous[control] = self._dice.uniform(-1, 1)
