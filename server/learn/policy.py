"""Chooses actions: the network's best, a random one, or the expert's."""

from __future__ import annotations

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

    def __init__(self, inference: Inference, coding: Coding, rng: np.random.Generator) -> None:
        self._inference = inference
        self._rng = rng
        self.coding = coding
        self._starts = [sum(coding.heads[:head]) for head in range(len(coding.heads))]
        self.weights: Weights | None = None

    def load(self, weights: Weights) -> bool:
        """Play with these weights from now on; False, and no change, if any is not finite."""
        if not np.isfinite(weights.flat).all():
            return False
        self._inference.load(weights)
        self.weights = weights
        return True

    def act(self, observation: Array, experts: Sequence[Choice | None], mix: Mix) -> Decision:
        """Choose an action for each observation of a batch."""
        count = len(observation)
        values, continuous = self._inference(observation)
        choice = np.empty((count, len(self.coding.heads)), np.int64)
        for head, (start, size) in enumerate(zip(self._starts, self.coding.heads, strict=True)):
            values[:, start : start + size].argmax(axis=1, out=choice[:, head])
        source = np.zeros(count, np.uint8)
        if mix.noise and self.coding.controls:
            noise = mix.noise * self._rng.standard_normal(continuous.shape, np.float32)
            continuous = np.clip(continuous + noise, -1, 1)
        if mix.epsilon:
            self._explore(choice, continuous, source, mix.epsilon)
        if mix.expert_ratio and experts.count(None) != count:
            self._follow(choice, continuous, source, experts, mix.expert_ratio)
        return Decision(choice, continuous, source)

    def _explore(self, choice: Array, continuous: Array, source: Array, epsilon: float) -> None:
        """Replace a share of the actions by random ones."""
        rows = np.flatnonzero(self._rng.random(len(source)) < epsilon)
        if len(rows):
            choice[rows] = self._rng.integers(0, self.coding.heads, (len(rows), choice.shape[1]))
            shape = (len(rows), continuous.shape[1])
            continuous[rows] = self._rng.uniform(-1, 1, shape)
            source[rows] = Source.EXPLORATION

    def _follow(
        self,
        choice: Array,
        continuous: Array,
        source: Array,
        experts: Sequence[Choice | None],
        ratio: float,
    ) -> None:
        """Replace a share of the actions by the expert's, where there is one."""
        for row, follows in enumerate(self._rng.random(len(source)) < ratio):
            expert = experts[row]
            if follows and expert is not None:
                choice[row], continuous[row] = self.coding.from_wire(expert)
                source[row] = Source.EXPERT
