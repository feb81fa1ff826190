"""Clients that number their frames and remember which were answered: none of those may be lost."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np

from client_py.link import Link, LinkError
from server.learn.replay import Layout, Replay
from server.net.wire import START, TERMINAL, TRUNCATED, Frame, Hello
from server.spaces import Actions, Discrete, Observation, Spaces

SPACES = Spaces(Observation("float32", (4,)), Actions((Discrete("stick", 3),), ()), ("score",))
AGENT = "witnessed"
EPISODE = 37  # frames
_SPLIT = 1 << 12  # a float32 holds such numbers exactly
_WAIT_S = 20.0


class Witness(threading.Thread):
    """Plays in lockstep, comes back to whatever server there is, and notes what was answered."""

    def __init__(self, number: int) -> None:
        super().__init__(daemon=True)
        self.number = number
        self.answered = -1  # the newest frame that was
        self.doubtful: set[int] = set()  # sent, and never answered: may be stored or not
        self.problem: BaseException | None = None
        self._port: int | None = None
        self._there = threading.Condition()
        self._done = self._cut = False
        self.start()

    def turn_to(self, port: int | None) -> None:
        """Say where the server is now; None while there is none."""
        with self._there:
            self._port = port
            self._there.notify()

    def hang_up(self) -> None:
        """Drop the connection as a client that is killed does; it comes back as another one."""
        self._cut = True

    def finish(self) -> None:
        """End, and raise what went wrong."""
        with self._there:
            self._done = True
            self._there.notify()
        self.join(_WAIT_S)
        if self.problem is not None:
            raise self.problem

    def run(self) -> None:
        """Play until told to end."""
        try:
            while (port := self._next_port()) is not None:
                try:
                    self._play(port)
                except LinkError:
                    time.sleep(0.02)  # it was killed, or is not there yet
        except BaseException as error:
            self.problem = error

    def _next_port(self) -> int | None:
        with self._there:
            self._there.wait_for(lambda: self._done or self._port is not None)
            return None if self._done else self._port

    def _play(self, port: int) -> None:
        link = Link("127.0.0.1", port, timeout_s=_WAIT_S, connect_timeout_s=_WAIT_S)
        try:
            link.greet(Hello(f"witness-{self.number}", "1", AGENT, AGENT, SPACES))
            number = max([self.answered, *self.doubtful]) + 1
            for sequence in range(1 << 30):
                if self._done or self._cut:
                    self._cut = False
                    return
                self.doubtful.add(number)
                place = sequence % EPISODE
                flags = START if place == 0 else 0
                if place == EPISODE - 1:
                    flags = TERMINAL if number % 2 else TRUNCATED
                link.exchange(Frame(sequence, flags, [float(number % 5)], self._seen(number)))
                self.answered = number
                self.doubtful.discard(number)
                number += 1
        finally:
            link.drop()

    def _seen(self, number: int) -> bytes:
        high, low = divmod(number, _SPLIT)
        return np.array([self.number, high, low, high + low], np.float32).tobytes()


def check(path: Path, capacity: int, witnesses: list[Witness]) -> int:
    """Compare a replay with what its witnesses say; give how many frames were ever stored."""
    replay = Replay.in_file(path, Layout(capacity, "float32", 4, 1, 0))
    replay.check_valid()
    slots = np.arange(replay.oldest, replay.head) % capacity
    seen = replay.column("observation")[slots].astype(np.int64)
    _require(bool((seen[:, 1] + seen[:, 2] == seen[:, 3]).all()), "a torn frame")
    for witness in witnesses:
        mine = seen[seen[:, 0] == witness.number]
        numbers = mine[:, 1] * _SPLIT + mine[:, 2]
        in_order = bool((np.diff(numbers) > 0).all())
        _require(in_order, "a frame is stored twice, or out of order")
        # What is younger than the oldest that is left, and was answered, must be there.
        _require(len(numbers) > 0, "nothing of a client is left")
        expected = set(range(int(numbers[0]), witness.answered + 1)) - witness.doubtful
        lost = expected - set(numbers.tolist())
        _require(not lost, f"client {witness.number}: answered and lost: {sorted(lost)[:5]}")
    return replay.head


def _require(rule: bool, broken: str) -> None:
    if not rule:
        raise AssertionError(broken)
