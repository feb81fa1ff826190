"""One training thread: takes samples from the replay and trains until it is told to rest.

It owns the learner while it runs. Others hand it work with ``call`` and read its report.
"""

from __future__ import annotations

import math
import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol, TypeVar

from server.controls import Controls
from server.learn.learner import Report
from server.learn.network import Weights
from server.learn.replay import Replay
from server.train.trainer import State, TrainerState, fulfil

T = TypeVar("T")
_RETRY_FRAMES = 64  # to collect after the replay had no transition to offer


class Trained(Protocol):
    """What a training thread needs to know of a learner."""

    @property
    def report(self) -> Report:
        """What the learner has done so far."""

    def steer(self, controls: Controls) -> None:
        """Put live settings in force."""

    def train(self, between_steps: Callable[[], None]) -> bool:
        """Take the steps of one sample; False where there is nothing to learn from."""

    def weights(self) -> Weights:
        """Give a copy of the weights."""

    def get_state(self) -> State:
        """Give everything a checkpoint needs."""

    def set_state(self, state: State) -> None:
        """Go on from what get_state gave."""

    def refresh_target(self) -> None:
        """Make the target equal to the network that trains."""


class TrainingThread:
    """The learner's home in a thread of the server."""

    def __init__(
        self,
        *,
        name: str,
        learner: Trained,
        replay: Replay,
        min_replay: int,
        max_replay_ratio: float,
        controls: Controls,
        on_death: Callable[[BaseException], None],
        on_progress: Callable[[], None] = lambda: None,
        niceness: int = 0,
        learners: int = 1,
        longest_rest_s: float | None = None,
        least_rest_s: float = 0.0,
    ) -> None:
        self.state = TrainerState.COLLECTING
        self.error: BaseException | None = None
        self._learner = learner
        self._replay = replay
        self._min_replay = min_replay
        self._max_replay_ratio = max_replay_ratio
        self._controls = controls
        self._steered: Controls | None = None  # what the learner goes by
        self._clients = True
        self._on_death = on_death
        self._on_progress = on_progress  # called by the thread: a sample is done, it rests or wakes
        self._niceness = niceness
        self._learners = learners  # that learn together, each from a replay like this one
        self._longest_rest_s = longest_rest_s  # others may wait for a word; None: nobody does
        self._least_rest_s = least_rest_s  # to which rests add up, before it gives way
        self._share = 1.0  # of its time that it may use
        self._began_s = 0.0  # when the work that is not counted yet began
        self._worked_s = 0.0  # work that it has not rested for
        self._requests: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._wake = threading.Event()
        self._idle = False
        self._wake_at: float = 0  # head of the replay from which there is something to do
        self._start: tuple[int, int] | None = None  # head and transitions when training began
        self._stopping = False
        self._running = False
        self._gate = threading.Lock()  # so that no request falls between the thread and its end
        self._thread = threading.Thread(target=self._run, name=f"trainer-{name}", daemon=True)

    # --- for the event loop -----------------------------------------------------------------

    @property
    def report(self) -> Report:
        """What the learner has done so far."""
        return self._learner.report

    @property
    def wake_at(self) -> float:
        """Head of the replay that the thread sleeps for; infinity while it does not."""
        return self._wake_at if self._idle else math.inf

    def restore(self, state: State) -> None:
        """Go on from a kept state; only before the start."""
        self._learner.set_state(state)

    def start(self) -> None:
        """Begin to train as soon as there is enough to learn from."""
        self._running = True
        self._thread.start()

    def frames_arrived(self, head: int) -> None:
        """Wake the trainer if it waits for these frames; cheap enough for every batch."""
        if self._idle and head >= self._wake_at:
            self._wake.set()

    def set_controls(self, controls: Controls) -> None:
        """Put new live settings in force."""
        self._controls = controls
        self._wake.set()

    def set_clients(self, connected: bool) -> None:
        """Say whether anybody plays: with nobody there, the same frames would only wear in."""
        self._clients = connected
        self._wake.set()

    def set_share(self, share: float) -> None:
        """Use only that share of the time; with 0, rest until told otherwise."""
        self._share = share
        self._wake.set()

    def weights(self) -> Future[Weights]:
        """Ask for a whole copy of the weights."""
        return self.call(self._learner.weights)

    def learner_state(self) -> Future[State]:
        """Ask for everything that a checkpoint needs."""
        return self.call(self._learner.get_state)

    def refresh_target(self) -> Future[None]:
        """Ask that the target network become equal to the one that trains."""
        return self.call(self._learner.refresh_target)

    def call(self, function: Callable[[], T]) -> Future[T]:
        """Have the learner's owner call a function between two samples, or while it gives way."""
        future: Future[T] = Future()
        with self._gate:
            if self._running:
                self._requests.put(lambda: fulfil(future, function))
                self._wake.set()
                return future
        fulfil(future, function)  # the thread does not run: nobody else touches the learner
        return future

    def request_stop(self) -> None:
        """Have the thread end after its sample."""
        self._stopping = True
        self._wake.set()

    def stop(self, timeout_s: float) -> bool:
        """End the thread after its sample; False if it did not end in time."""
        self.request_stop()
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    # --- the thread -------------------------------------------------------------------------

    def _run(self) -> None:
        if self._niceness and sys.platform == "linux":  # elsewhere it is the whole process's
            os.nice(self._niceness)
        self._began_s = time.monotonic()
        try:
            while not self._stopping:
                self._serve_requests()
                self._steer()
                if self._may_train():
                    if self._learner.train(self._give_way):
                        self._on_progress()
                        self._give_way()
                    else:
                        self._rest(TrainerState.COLLECTING, self._replay.head + _RETRY_FRAMES)
                if self.state is not TrainerState.TRAINING:
                    self._wait()
            self.state = TrainerState.STOPPED
        except BaseException as error:  # the rim of the thread: whatever it was, it is reported
            self.state = TrainerState.DEAD
            self.error = error
            self._on_death(error)
        finally:
            with self._gate:  # who asks from now on is answered without the thread
                self._running = False
            self._serve_requests()

    def _steer(self) -> None:
        """Hand the newest live settings to the learner."""
        controls = self._controls
        if controls is self._steered:
            return
        if self._steered and controls.max_replay_ratio != self._steered.max_replay_ratio:
            self._start = None  # a new limit counts from now: what was trained before is past
        self._learner.steer(controls)
        self._steered = controls

    def _serve_requests(self) -> None:
        while True:
            try:
                request = self._requests.get_nowait()
            except queue.Empty:
                return
            request()

    def _give_way(self) -> None:
        """Leave the machine to the games after a step, for as long as its share asks.

        Rests add up until one is worth it: others gain little from a core that has hardly fallen
        idle when it is wanted back. However long that is, others are heard meanwhile: the
        weights are whole between two steps.
        """
        ended_s = time.monotonic()
        self._worked_s += ended_s - self._began_s
        self._began_s = ended_s
        share = self._share  # once: it may be changed at any moment
        if share < 1 and self._owed_s(share) < self._least_rest_s:
            return
        while self._is_wanted():
            share = self._share
            rest_s = self._owed_s(share)
            left_s = ended_s + rest_s - time.monotonic()
            if left_s <= 0:
                break
            self.state = TrainerState.TRAINING if share else TrainerState.YIELDING
            self._on_progress()
            self._wake.wait(min(left_s, threading.TIMEOUT_MAX))
            self._wake.clear()
            self._serve_requests()
        self.state = TrainerState.TRAINING
        self._worked_s, self._began_s = 0.0, time.monotonic()

    def _owed_s(self, share: float) -> float:
        """Give the rest that the work so far asks for."""
        return self._worked_s / share - self._worked_s if share else math.inf

    def _is_wanted(self) -> bool:
        """Say whether training is to go on after a pause; if not, the pause is over."""
        return self._controls.training and self._clients and not self._stopping

    def _wait(self) -> None:
        """Sleep until there is something to do; never a loop of naps.

        Requests, controls and stop set the event, which keeps until it is cleared here. Frames
        set it only while idle: hence the look at the head after idle is set.
        """
        began_s, share = time.monotonic(), self._share
        self._idle = True
        self._on_progress()
        if self._replay.head < self._wake_at:
            self._wake.wait(self._longest_rest_s)
        self._wake.clear()
        self._idle = False
        self._on_progress()
        self._began_s = time.monotonic()
        rested_s = self._began_s - began_s  # that counts, too
        paid_s = rested_s * share / (1 - share) if 0 < share < 1 else math.inf
        self._worked_s = max(0.0, self._worked_s - paid_s)

    def _may_train(self) -> bool:
        """Say whether a sample may be trained now; note what to wait for if not."""
        if not self._controls.training:
            return self._rest(TrainerState.PAUSED, math.inf)
        if not self._share:
            return self._rest(TrainerState.YIELDING, math.inf)
        if not self._clients:
            return self._rest(TrainerState.ALONE, math.inf)
        head = self._replay.head
        if self._replay.size < self._min_replay:
            missing = self._min_replay - self._replay.size
            return self._rest(TrainerState.COLLECTING, head + missing)
        if self._start is None:
            self._start = (head, self._learner.report.transitions)
        chosen = self._controls.max_replay_ratio
        limit = self._max_replay_ratio if chosen is None else chosen
        if limit:
            first_head, first_transitions = self._start
            trained = (self._learner.report.transitions - first_transitions) / self._learners
            due = first_head + trained / limit
            if head < due:
                return self._rest(TrainerState.LIMITED, due)
        self.state = TrainerState.TRAINING
        return True

    def _rest(self, state: TrainerState, wake_at: float) -> bool:
        self.state = state
        self._wake_at = wake_at
        return False
