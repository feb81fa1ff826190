"""One training thread: takes samples from the replay and trains until it is told to rest.

It owns the learner while it runs. Others hand it work with ``call`` and read ``learner.report``.
"""

from __future__ import annotations

import math
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from enum import Enum
from typing import Any, TypeVar

from server.controls import Controls
from server.learn.learner import Learner
from server.learn.replay import Replay

T = TypeVar("T")
_RETRY_FRAMES = 64  # to collect after the replay had no transition to offer


class TrainerState(Enum):
    """What the trainer is doing, in words for people."""

    COLLECTING = "collecting frames"
    TRAINING = "training"
    PAUSED = "paused"
    ALONE = "waiting for clients"
    LIMITED = "limited by the replay ratio"
    STOPPED = "stopped"
    DEAD = "dead"


class TrainingThread:
    """The learner's home in a thread of the server."""

    def __init__(
        self,
        *,
        name: str,
        learner: Learner,
        replay: Replay,
        min_replay: int,
        max_replay_ratio: float,
        controls: Controls,
        on_death: Callable[[BaseException], None],
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

    def call(self, function: Callable[[], T]) -> Future[T]:
        """Have the learner's owner call a function between two samples."""
        future: Future[T] = Future()
        with self._gate:
            if self._running:
                self._requests.put(lambda: _fulfil(future, function))
                self._wake.set()
                return future
        _fulfil(future, function)  # the thread does not run: nobody else touches the learner
        return future

    def stop(self, timeout_s: float) -> bool:
        """End the thread after its sample; False if it did not end in time."""
        self._stopping = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    # --- the thread -------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._serve_requests()
                self._steer()
                if self._may_train() and not self._learner.train():
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

    def _wait(self) -> None:
        """Sleep until there is something to do; never a loop of naps.

        Requests, controls and stop set the event, which keeps until it is cleared here. Frames
        set it only while idle: hence the look at the head after idle is set.
        """
        self._idle = True
        if self._replay.head < self._wake_at:
            self._wake.wait()
        self._wake.clear()
        self._idle = False

    def _may_train(self) -> bool:
        """Say whether a sample may be trained now; note what to wait for if not."""
        if not self._controls.training:
            return self._rest(TrainerState.PAUSED, math.inf)
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
            trained = self._learner.report.transitions - first_transitions
            due = first_head + trained / limit
            if head < due:
                return self._rest(TrainerState.LIMITED, due)
        self.state = TrainerState.TRAINING
        return True

    def _rest(self, state: TrainerState, wake_at: float) -> bool:
        self.state = state
        self._wake_at = wake_at
        return False


def _fulfil(future: Future[Any], function: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return  # whoever asked has given up
    try:
        future.set_result(function())
    except Exception as error:  # carried to whoever asked
        future.set_exception(error)
