"""What every home of a learner offers to the event loop: thread, workers, process or elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from enum import Enum
from typing import Any, Protocol, TypeVar

from server.controls import Controls
from server.learn.learner import Report
from server.learn.network import Weights

T = TypeVar("T")
State = dict[str, Any]  # what Learner.get_state gives


class LearnerError(RuntimeError):
    """A learner that fell, or is not there to answer; the message says which."""


class TrainerState(Enum):
    """What the trainer is doing, in words for people."""

    STARTING = "starting"
    COLLECTING = "collecting frames"
    TRAINING = "training"
    PAUSED = "paused"
    ALONE = "waiting for clients"
    LIMITED = "limited by the replay ratio"
    YIELDING = "giving way to the games"
    ELSEWHERE = "elsewhere"
    STOPPED = "stopped"
    DEAD = "dead"


class Home(Protocol):
    """A learner's home, seen from the event loop: no call here waits for the learner."""

    @property
    def state(self) -> TrainerState:
        """What it is doing."""

    @property
    def report(self) -> Report:
        """What the learner has done so far; the newest.

        Its counters only grow, unless its process fell: it goes on from its newest state.
        """

    def start(self) -> None:
        """Begin to train as soon as there is enough to learn from."""

    def frames_arrived(self, head: int) -> None:
        """Wake the learner if it waits for these frames; cheap enough for every batch."""

    def set_controls(self, controls: Controls) -> None:
        """Put new live settings in force."""

    def set_clients(self, connected: bool) -> None:
        """Say whether anybody plays: with nobody there, the same frames would only wear in."""

    def set_share(self, share: float) -> None:
        """Use only that share of the time, so that the games come first; 0: rest until told."""

    def weights(self) -> Future[Weights]:
        """Ask for a whole copy of the weights."""

    def refresh_target(self) -> Future[None]:
        """Ask that the target network become equal to the one that trains."""

    def stop(self, timeout_s: float) -> bool:
        """End after the sample under way; False if it did not end in time.

        If it did, weights, and a state where there is one, can still be asked for.
        """


class Trainer(Home, Protocol):
    """A home whose learner is ours to keep: all but that of a gateway, which only plays."""

    def restore(self, state: State) -> None:
        """Go on from a kept state; only before the start."""

    def learner_state(self) -> Future[State]:
        """Ask for everything that a checkpoint needs."""


def fulfil(future: Future[Any], function: Callable[[], Any]) -> None:
    """Call a function for whoever waits for its result."""
    if not future.set_running_or_notify_cancel():
        return  # whoever asked has given up
    try:
        future.set_result(function())
    except Exception as error:  # carried to whoever asked
        future.set_exception(error)


def done(value: T) -> Future[T]:
    """Give a result that is there already."""
    future: Future[T] = Future()
    future.set_result(value)
    return future
