"""One learner of several that step together: its thread takes it for a learner of its own.

The first one's thread decides, as a lone learner's does: when to train, by which live settings,
when to give its state. It tells the others, and all do the same. Each computes a gradient on its
own share of the frames, all apply the mean of them with an optimizer of the same state, and so all
weights stay the same without ever being sent.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import torch

from server.controls import Controls
from server.learn.group import LONGEST_SILENCE_S, Group
from server.learn.learner import Gradient, Learner, Report
from server.learn.network import Weights
from server.train.trainer import State


class Member:
    """One learner, and its line to the others."""

    def __init__(self, learner: Learner, group: Group, enough: Callable[[], bool]) -> None:
        self._learner = learner
        self._group = group
        self._enough = enough  # whether its own frames are enough to learn from
        self._between_steps: Callable[[], None] = lambda: None
        self._wait_s = 0.0

    # --- for the first one's thread ---------------------------------------------------------

    @property
    def report(self) -> Report:
        """What all have done together; the seconds are this one's own."""
        report = self._learner.report
        return replace(report, spent=replace(report.spent, wait_s=self._wait_s))

    def steer(self, controls: Controls) -> None:
        """Put live settings in force, everywhere."""
        self._all("steer", controls=asdict(controls))

    def train(self, between_steps: Callable[[], None]) -> bool:
        """Take the steps of one sample each; False where one has nothing to learn from."""
        self._between_steps = between_steps
        trained: bool = self._all("train")
        return trained

    def weights(self) -> Weights:
        """Give a copy of the weights, which are the same everywhere."""
        return self._learner.weights()

    def get_state(self) -> State:
        """Give everything a checkpoint needs."""
        state: State = self._all("get_state")
        return state

    def set_state(self, state: State) -> None:
        """Go on from a kept state; each does so by itself, before they meet."""
        self._learner.set_state(state)

    def refresh_target(self) -> None:
        """Make the target equal to the network that trains, everywhere."""
        self._all("refresh_target")

    def breathe(self) -> None:
        """Let all hear of each other, if there was nothing to tell for a while."""
        if self._group.silence_s > LONGEST_SILENCE_S / 2:
            self._all("rest")

    def _all(self, deed: str, **told: Any) -> Any:
        self._group.tell({"deed": deed, **told})
        return _DEEDS[deed](self, **told)

    # --- for the others' threads ------------------------------------------------------------

    def follow(self) -> None:
        """Do as the first one does; it ends with an error, when that one is gone."""
        while True:
            told = self._group.hear()
            _DEEDS[told.pop("deed")](self, **told)

    # --- what all do at the same time -------------------------------------------------------

    def _steer(self, controls: dict[str, Any]) -> None:
        self._learner.steer(Controls(**controls))

    def _train(self) -> bool:
        steps = self._learner.gather() if self._enough() else []
        if not self._group.all(bool(steps)):
            return False
        for number, parts in enumerate(steps):
            if number:
                self._between_steps()
            own = self._learner.compute(parts)
            self._learner.learned(own)
            gradient = self._mean(own)
            self._learner.apply(gradient)
        self._learner.note_worth(gradient)
        return True

    def _mean(self, own: Gradient) -> Gradient:
        """Give the mean gradient of all; one that is not finite makes that of all so."""
        began = time.perf_counter()
        flat, loss = self._group.mean(own.flat, own.loss)
        self._wait_s += time.perf_counter() - began
        norm = torch.linalg.vector_norm(flat).item()
        batches = own.batches * self._group.size
        return own._replace(flat=flat, batches=batches, loss=loss, norm=norm)

    def _get_state(self) -> State:
        """Give the state, which is the first one's from now on.

        It was the same before, where the processors are; others may round otherwise.
        """
        state = self._learner.get_state()
        self._group.spread(state["tensors"].values())
        self._learner.take_over(state["tensors"])
        return state

    def _refresh_target(self) -> None:
        self._learner.refresh_target()

    def _rest(self) -> None:
        """Hear that all of them live."""
        self._group.all(True)


_DEEDS: dict[str, Callable[..., Any]] = {
    "steer": Member._steer,
    "train": Member._train,
    "get_state": Member._get_state,
    "refresh_target": Member._refresh_target,
    "rest": Member._rest,
}
