"""Chooses actions: the network's best, a random one, or the expert's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from server.learn.dice import Dice
from server.learn.mlp import Mlp
from server.learn.network import Inference, Weights
from server.net.wire import Choice, Source
from server.spaces import Actions

Array = npt.NDArray[Any]

# Plain numbers: the members of an enum are slower to store and to pack.
_POLICY, _EXPLORATION, _EXPERT = int(Source.POLICY), int(Source.EXPLORATION), int(Source.EXPERT)
_NEAR = 0.1  # of -1..1: how far a continuous control may be from the expert's, and still agree


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
        self._ranges = tuple((control.low, control.high) for control in actions.continuous)

    def batch_to_wire(self, decision: Decision) -> tuple[list[list[int]], list[list[float]]]:
        """Give each frame's discrete choices and continuous values, as the game knows them."""
        if self._joint or self.controls:
            rows = zip(decision.choice.tolist(), decision.continuous.tolist(), strict=True)
            discrete, values = zip(*(self.to_wire(*row) for row in rows), strict=True)
            return list(discrete), list(values)
        return decision.choice.tolist(), [[]] * len(decision.choice)

    def to_wire(self, choice: list[int], continuous: list[float]) -> tuple[list[int], list[float]]:
        """Give one frame's discrete choices and continuous values, as the game knows them."""
        discrete = choice if self._sizes else []
        if self._joint:
            discrete = self._apart(choice[0])
        if not self.controls:
            return discrete, []
        # Bounded: a float32 just over 1 must not leave the announced range.
        values = [
            min(max(low + (value + 1) / 2 * (high - low), low), high)
            for value, (low, high) in zip(continuous, self._ranges, strict=True)
        ]
        return discrete, values

    def from_wire(self, choice: Choice) -> tuple[list[int], list[float]]:
        """Give the stored form of one choice: (heads,) and (controls,)."""
        if self._joint:
            heads = [self._together(choice.discrete)]
        else:
            heads = list(choice.discrete) if self._sizes else [0]
        values = [
            2 * (value - low) / (high - low) - 1
            for value, (low, high) in zip(choice.continuous, self._ranges, strict=True)
        ]
        return heads, values

    def _apart(self, joint: int) -> list[int]:
        """Give each control's choice out of the number of their combination."""
        choices = []
        for size in reversed(self._sizes):
            joint, choice = divmod(joint, size)
            choices.append(choice)
        return choices[::-1]

    def _together(self, choices: Sequence[int]) -> int:
        """Give the number of a combination of choices."""
        joint = 0
        for size, choice in zip(self._sizes, choices, strict=True):
            joint = joint * size + choice
        return joint


class Policy:
    """Owns the weights that play; they are refreshed by the heartbeat."""

    def __init__(self, inference: Inference, coding: Coding, seed: int) -> None:
        self._inference = inference
        self.coding = coding
        self.dice = Dice(seed, coding.heads, coding.controls)
        self.weights: Weights | None = None
        bins = len(self.middles)
        # Of choices, the nearest to what an expert proposes agrees, however far apart they are.
        self._near = max(_NEAR, 1.001 / (bins - 1)) if bins else _NEAR
        self._still = False  # whether noisy layers are without their noise
        self.compared = 0  # the expert's proposals so far
        self.agreed = 0  # of them, those that the network would have chosen too

    @property
    def in_c(self) -> bool:
        """Whether the network plays in C."""
        return self._inference.in_c

    @property
    def middles(self) -> list[float]:
        """What the choices of a continuous control stand for; none where it is a number."""
        return self._inference.split.middle

    @property
    def mlp(self) -> Mlp | None:
        """The network that plays in C, once there are weights."""
        return self._inference.mlp

    def load(self, weights: Weights) -> bool:
        """Play with these weights from now on; False, and no change, if any is not finite."""
        if not np.isfinite(weights.flat).all():
            return False
        self._inference.load(weights, still=self._still)
        self.weights = weights
        return True

    def keep_still(self, still: bool) -> None:
        """Play without the noise of noisy layers from now on, or with it again."""
        if still == self._still:
            return
        self._still = still
        if self.weights is not None:
            self._inference.load(self.weights, still=still)

    def act(
        self, observation: Array, experts: Sequence[Choice | None] | None, mix: Mix
    ) -> Decision:
        """Choose an action for each observation of a batch; experts is None if none proposes."""
        count = len(observation)
        values, continuous, _ = self._inference(observation)
        choice = self._best(values)
        source = np.zeros(count, np.uint8)
        if experts is not None:
            for row, expert in enumerate(experts):
                if expert is not None:
                    self._compare(choice[row].tolist(), continuous[row].tolist(), expert)
        dice, rows = self.dice, self.dice.take(count)
        if mix.noise and self.coding.controls:
            noise = (mix.noise * dice.noise[rows]).astype(np.float32)
            continuous = np.clip(continuous + noise, -1, 1)
        explored = dice.luck[rows, 0] < mix.epsilon
        if explored.any():
            choice[explored] = dice.choice[rows][explored]
            continuous[explored] = dice.place[rows][explored]
            source[explored] = _EXPLORATION
        if experts is not None and mix.expert_ratio:
            for row in np.flatnonzero(dice.luck[rows, 1] < mix.expert_ratio).tolist():
                expert = experts[row]
                if expert is not None:
                    choice[row], continuous[row] = self.coding.from_wire(expert)
                    source[row] = _EXPERT
        return Decision(choice, continuous, source)

    def act_one(
        self, observation: bytes, expert: Choice | None, mix: Mix
    ) -> tuple[list[int], list[float], int]:
        """Choose an action for a lone observation as it came: choice, continuous values, source."""
        choice, continuous = self._inference.best(observation)
        if expert is not None:
            self._compare(choice, continuous, expert)
        dice, row = self.dice, self.dice.take(1).start
        explored, guided = dice.luck[row].tolist()
        if mix.noise and continuous:
            continuous = [
                max(-1.0, min(1.0, value + mix.noise * noise))
                for value, noise in zip(continuous, dice.noise[row].tolist(), strict=True)
            ]
        source = _POLICY
        if explored < mix.epsilon:
            choice, continuous = dice.choice[row].tolist(), dice.place[row].tolist()
            source = _EXPLORATION
        if expert is not None and guided < mix.expert_ratio:
            choice, continuous = self.coding.from_wire(expert)
            source = _EXPERT
        return choice, continuous, source

    def _compare(self, choice: list[int], continuous: list[float], expert: Choice) -> None:
        """Note whether the network, before any dice, would do what the expert proposes."""
        proposed, places = self.coding.from_wire(expert)
        near = all(abs(a - b) <= self._near for a, b in zip(continuous, places, strict=True))
        self.compared += 1
        self.agreed += near and choice == proposed

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
