"""The learner's home as a gateway sees it: somewhere else, where frames go and weights come from.

One thread ships what the event loop has appended, one shipment at a time. While the learner is
slow or away the gateway's own ring keeps the frames, and nobody waits for anything; only what the
ring had to overwrite before it was shipped is lost, and counted. Several learners get a line and a
share of the frames each; their weights are the same, and come from the first.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import NamedTuple, Protocol

from server.controls import Controls
from server.learn import intake
from server.learn.intake import Shipment
from server.learn.learner import Report
from server.learn.network import Weights
from server.learn.replay import Replay
from server.learn.share import Share
from server.train.trainer import TrainerState, done

SHIP_S = 0.5  # between shipments: each takes some milliseconds of Python from the games
_IDLE_S = 1.0  # between questions while nobody plays: new weights are heard of with the answers
_MOST_FRAMES = 8192
_MOST_BYTES = 8 << 20  # of a shipment


class LostError(RuntimeError):
    """A learner that cannot be reached now; the message says why."""


class Ack(NamedTuple):
    """What a learner answers a gateway."""

    life: str  # of the learner: another one has another ring
    expected: int | None  # index of the gateway's frame to come next; None: nothing came so far
    version: int  # of the newest weights that it has put out


class Correspondent(Protocol):
    """A learner that can be reached; each of these waits for its answer, or raises LostError."""

    def hear(self, stream: str, head: int) -> Ack:
        """Ask how things are, with a stream that has frames up to the head."""

    def take(self, stream: str, life: str, shipment: Shipment) -> Ack:
        """Have frames taken by the learner of that life, and by no other."""

    def weights(self) -> Weights:
        """Fetch the newest weights that were put out."""


class Shipping(NamedTuple):
    """How shipping goes; the counters only grow."""

    shipments: int
    frames: int
    size_bytes: int
    seconds: float  # of the courier's own CPU time
    backlog: int  # frames that wait
    lost: int  # frames that went before they were shipped: overwritten, or flushed
    falls: int  # times that the learner was lost


class Line:
    """One learner, and how far it has got its share of the frames."""

    def __init__(
        self,
        stream: str,
        replay: Replay,
        reach: Callable[[], Correspondent],
        share: Share,
        tell: Callable[[str], None],
    ) -> None:
        self._stream = stream
        self._replay = replay
        self._reach = reach
        self._share = share
        self._tell = tell
        self._learner: Correspondent | None = None
        self._cursor = replay.oldest
        # Frames that may have been shipped, by us or before us. If the learner expects one beyond
        # them, the ring has lost some that it had, and their numbers are given out again.
        self._shipped = replay.head
        self._heard_s = 0.0
        row_bytes = replay.layout.size_bytes() // replay.layout.capacity + 1
        self._most = max(1, min(_MOST_FRAMES, _MOST_BYTES // row_bytes))
        self.life = ""
        self.version = -1  # of the weights that were fetched last
        self.news = False  # whether there are newer ones
        self.problem = ""  # why the learner cannot be reached; "" while it can
        self.shipments = self.frames = self.size_bytes = self.lost = self.falls = 0

    @property
    def backlog(self) -> int:
        """Frames that wait."""
        return self._share.count(self._cursor, self._replay.head)

    def attend(self, on_weights: Callable[[Weights], None] | None) -> None:
        """Ship what is there and hear what is new, or note why that cannot be."""
        try:
            self._converse(on_weights)
            self.problem = ""
        except LostError as error:
            self._lose(str(error))
        except Exception as error:  # the rim of the thread: told, and tried again like any other
            problem = f"{type(error).__name__}: {error}"
            if problem != self.problem:
                self._tell(f"frames are not shipped: {problem}")
            self._lose(problem)

    def _lose(self, problem: str) -> None:
        self.falls += self._learner is not None
        self._learner = None
        self.problem = problem

    def _converse(self, on_weights: Callable[[Weights], None] | None) -> None:
        if self._learner is None:
            learner = self._reach()
            self._hear(learner.hear(self._stream, self._shipped))
            self._learner = learner
        due = self._replay.head  # what comes meanwhile waits for its turn, or this would never end
        while (shipment := self._next(due)) is not None:
            self._shipped = max(self._shipped, shipment.stop)
            self._hear(self._learner.take(self._stream, self.life, shipment))
            self.shipments += 1
            self.frames += shipment.stop - shipment.first
            self.size_bytes += shipment.size_bytes
        if time.monotonic() - self._heard_s >= _IDLE_S:
            self._hear(self._learner.hear(self._stream, self._shipped))
        if self.news and on_weights is not None:
            weights = self._learner.weights()
            self.version, self.news = weights.version, False
            on_weights(weights)

    def _next(self, due: int) -> Shipment | None:
        """Pack frames up to the one that is due, as many as one shipment holds."""
        while True:
            alive = max(self._cursor, self._replay.oldest)
            self.lost += self._share.count(self._cursor, alive)
            self._cursor, end = self._share.run(alive)
            first, stop = self._cursor, min(due, self._cursor + self._most, end)
            if first >= stop:
                return None
            shipment = intake.pack(self._replay, first, stop, self._share)
            if shipment is not None:
                return shipment

    def _hear(self, ack: Ack) -> None:
        """Follow what the learner says: where to go on, and whether it has new weights."""
        self._heard_s = time.monotonic()
        if ack.expected is not None:
            self._cursor = ack.expected
        elif ack.life != self.life:  # its ring is new: it gets all that this one still holds
            self._cursor = min(self._cursor, self._replay.oldest)
        self.news |= ack.version != self.version or ack.life != self.life
        self.life = ack.life


class Courier:
    """Ships an agent's frames to its learners, and fetches the weights to play with."""

    def __init__(
        self,
        *,
        name: str,
        stream: str,
        replay: Replay,
        weights: Weights,
        reach: Callable[[int], Correspondent],
        on_weights: Callable[[Weights], None],
        tell: Callable[[str], None],
        learners: int = 1,
        gateway: int = 0,
    ) -> None:
        self._first_weights = weights
        self._on_weights = on_weights
        self._lines = [
            Line(
                stream,
                replay,
                functools.partial(reach, rank),
                Share(rank, learners, gateway),
                lambda text: tell(f"agent {name}: {text}"),
            )
            for rank in range(learners)
        ]
        self._seconds = 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"courier-{name}", daemon=True)

    # --- for the event loop -----------------------------------------------------------------

    @property
    def state(self) -> TrainerState:
        """Where the learner is: elsewhere, or not found yet."""
        known = all(line.life for line in self._lines)
        return TrainerState.ELSEWHERE if known else TrainerState.STARTING

    @property
    def report(self) -> Report:
        """Nothing: what the learner has done, it tells others."""
        return Report()

    @property
    def shipping(self) -> Shipping:
        """How shipping goes."""
        lines = self._lines
        return Shipping(
            sum(line.shipments for line in lines),
            sum(line.frames for line in lines),
            sum(line.size_bytes for line in lines),
            self._seconds,
            sum(line.backlog for line in lines),
            sum(line.lost for line in lines),
            sum(line.falls for line in lines),
        )

    @property
    def problem(self) -> str:
        """Why a learner cannot be reached; "" while all can."""
        return next((line.problem for line in self._lines if line.problem), "")

    def start(self) -> None:
        """Begin to ship."""
        self._thread.start()

    def frames_arrived(self, head: int) -> None:
        """Let the frames wait for the next shipment."""

    def set_controls(self, controls: Controls) -> None:
        """Leave it to others to tell the learner."""

    def set_clients(self, connected: bool) -> None:
        """Leave it to others: they know of all gateways."""

    def set_share(self, share: float) -> None:
        """Do nothing: on a cluster nothing is held."""

    def weights(self) -> Future[Weights]:
        """Give what there is to play with before the learner has put out any."""
        return done(self._first_weights)

    def refresh_target(self) -> Future[None]:
        """Leave it to others."""
        return done(None)

    def stop(self, timeout_s: float) -> bool:
        """End the thread after a last shipment; False if it did not end in time."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    # --- the thread -------------------------------------------------------------------------

    def _run(self) -> None:
        first, *others = self._lines
        last = False
        while not last:
            last = self._stopping.wait(SHIP_S)
            first.attend(self._on_weights)
            for line in others:
                line.attend(None)
            self._seconds = time.thread_time()
