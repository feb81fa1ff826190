"""The learner in a process of its own, which maps the replay's file: Python's lock is not shared.

The rules:
- Only configuration crosses at the start, as JSON; nothing is pickled.
- Weights, the whole state and the report come back through mailboxes in shared memory
  (``Board``); a line on a socket says that something was posted.
- Each side sleeps in a read of that socket, so it notices at once when the other is gone: a child
  without a parent ends, a parent without a child starts another one, which goes on from the
  newest state on the board.
- The memory has no name, so there is nothing to clean up after a crash.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, NamedTuple, NoReturn

from server.controls import Controls
from server.learn.learner import Learner, Report
from server.learn.network import Weights
from server.learn.recipe import Recipe
from server.learn.replay import Replay
from server.train.board import Board
from server.train.trainer import LearnerError, State, TrainerState, done, fulfil

LOG = "learner.log"  # in the agent's directory: what the process had to say when it fell
_MOST_FALLS = 3
_FALLS_WINDOW_S = 600.0
_ROOT = Path(__file__).resolve().parents[2]
_KILL_WAIT_S = 5.0


class _Asked(NamedTuple):
    """What the process was asked, until it has answered."""

    what: str  # "post", or "target" to refresh that first
    future: Future[Any]
    read: Callable[[], Any]  # the answer, from what it posted
    unheard: Callable[[], Any]  # the same where no process is left to hear the question


class Falls:
    """How often the process fell of late."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._times: deque[float] = deque()

    def count(self, now: float) -> int:
        """Count one more, and give how many there were within the window."""
        self._times.append(now)
        while self._times[0] < now - self._window_s:
            self._times.popleft()
        return len(self._times)


class TrainingProcess:
    """The learner's home in a process of its own."""

    def __init__(
        self,
        *,
        name: str,
        recipe: Recipe,
        replay: Replay,
        replay_file: Path,
        directory: Path,
        min_replay: int,
        max_replay_ratio: float,
        controls: Controls,
        on_death: Callable[[BaseException], None],
        on_fall: Callable[[str], None],
        niceness: int = 0,
        least_rest_s: float = 0.0,
    ) -> None:
        self._name = name
        self._directory = directory
        self._on_death = on_death
        self._on_fall = on_fall
        self._plan: dict[str, Any] = {
            "name": name,
            "recipe": recipe.to_plain(),
            "replay_file": str(replay_file.absolute()),
            "layout": asdict(replay.layout),
            "min_replay": min_replay,
            "max_replay_ratio": max_replay_ratio,
            "niceness": niceness,
            "least_rest_s": least_rest_s,
        }
        # Told again to each process that takes over.
        self._told: dict[str, Any] = {"controls": asdict(controls), "clients": True, "share": 1.0}
        self._learner: Learner | None = recipe.make(replay)  # until the process has its own
        self._board: Board | None = None
        self._line: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._warden = threading.Thread(target=self._guard, name=f"warden-{name}", daemon=True)
        self._gate = threading.Lock()  # over the line and what was asked through it
        self._asked: dict[int, _Asked] = {}  # by number
        self._number = 0
        self._woken_for = -1.0
        self._falls = Falls(_FALLS_WINDOW_S)
        self._last_words = ""
        self._running = False
        self._stopping = False
        self._dead = False

    # --- for the event loop -----------------------------------------------------------------

    @property
    def state(self) -> TrainerState:
        """What the process is doing."""
        if self._dead:
            return TrainerState.DEAD
        if self._board is None:
            return TrainerState.STARTING
        return self._board.read_progress()[0]

    @property
    def report(self) -> Report:
        """What the learner has done so far."""
        if self._board is None:
            assert self._learner is not None
            return self._learner.report
        return self._board.read_progress()[1]

    def restore(self, state: State) -> None:
        """Go on from a kept state; only before the start."""
        assert self._learner is not None, "the process has started"
        self._learner.set_state(state)

    def start(self) -> None:
        """Start the process; it begins to train as soon as there is enough to learn from."""
        assert self._learner is not None
        self._board = Board.make(self._directory, self._learner)
        self._learner = None
        self._launch()
        self._running = True
        self._warden.start()

    def frames_arrived(self, head: int) -> None:
        """Wake the process if it waits for these frames.

        It publishes what it waits for and then looks at the head once more. Between our
        publishing of the head and this look lie the replies' system calls, hence a barrier: one
        of the two looks sees the other's news.
        """
        assert self._board is not None
        wake_at = self._board.wake_at
        # Once for each wait: whoever is woken never waits for the same head again.
        if head >= wake_at and wake_at != self._woken_for:
            self._woken_for = wake_at
            self._tell("wake", head)

    def set_controls(self, controls: Controls) -> None:
        """Put new live settings in force."""
        self._tell("controls", asdict(controls))

    def set_clients(self, connected: bool) -> None:
        """Say whether anybody plays."""
        self._tell("clients", connected)

    def set_share(self, share: float) -> None:
        """Let the learner use only that share of its time."""
        self._tell("share", share)

    def weights(self) -> Future[Weights]:
        """Ask for a whole copy of the weights."""
        if self._learner is not None:
            return done(self._learner.weights())
        assert self._board is not None
        return self._ask(self._board.read_weights)

    def learner_state(self) -> Future[State]:
        """Ask for everything that a checkpoint needs."""
        if self._learner is not None:
            return done(self._learner.get_state())
        assert self._board is not None
        return self._ask(self._board.read_state)

    def refresh_target(self) -> Future[None]:
        """Ask that the target network become equal to the one that trains."""
        if self._learner is not None:
            self._learner.refresh_target()
            return done(None)
        return self._ask(lambda: None, "target", self._refuse)

    def stop(self, timeout_s: float) -> bool:
        """End the process after its sample; one that does not end in time is killed."""
        with self._gate:
            self._stopping = True
        if not self._running:
            return True
        self._tell("stop", None)
        self._warden.join(timeout_s)
        if self._warden.is_alive():
            self._kill(f"it did not end within {timeout_s:g} s and was killed")
            self._warden.join(_KILL_WAIT_S)
        return not self._warden.is_alive()

    # --- the line to the process ------------------------------------------------------------

    def _tell(self, what: str, value: Any) -> None:
        """Send one line; who is not there yet hears it when it comes."""
        with self._gate:
            if what in self._told:
                self._told[what] = value
            self._send(what, value)

    def _ask(
        self,
        read: Callable[[], Any],
        what: str = "post",
        unheard: Callable[[], Any] | None = None,
    ) -> Future[Any]:
        """Have the learner post its newest state between two samples, and read what it posted.

        Where nobody posts any more, what is there is the newest.
        """
        asked = _Asked(what, Future(), read, unheard or read)
        with self._gate:
            if self._running:
                self._number += 1
                self._asked[self._number] = asked
                self._send(what, self._number)
                return asked.future
        fulfil(asked.future, asked.unheard)
        return asked.future

    def _refuse(self) -> NoReturn:
        raise LearnerError(f"the learner of agent {self._name} is not there any more")

    def _send(self, what: str, value: Any) -> None:
        if self._line is None:
            return
        line = json.dumps([what, value]).encode() + b"\n"
        try:
            sent = self._line.send(line, socket.MSG_DONTWAIT)
        except BlockingIOError:
            sent = 0
        except OSError:
            return  # it is gone: the warden is about to notice
        if sent < len(line):  # thousands of lines unread: it does not listen any more
            self._kill("it did not hear what it was told, and was killed")

    # --- the process ------------------------------------------------------------------------

    def _launch(self) -> None:
        """Start a process that goes on from what is on the board."""
        assert self._board is not None
        ours, theirs = socket.socketpair()
        with theirs, (self._directory / LOG).open("ab") as log:
            arguments = [str(theirs.fileno()), str(self._board.descriptor)]
            process = subprocess.Popen(
                [sys.executable, "-m", "server.train.child", *arguments],
                cwd=_ROOT,
                env={**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(theirs.fileno(), self._board.descriptor),
                # Ctrl-C in the terminal is ours to handle. Not a session of its own: Linux shares
                # its cores out by session first, so that the learner would get as much as all
                # others here together, and no niceness would count.
                process_group=0,
            )
        with self._gate:
            self._line, self._process = ours, process
            self._woken_for = -1.0
            self._last_words = ""
            self._send("begin", self._plan)
            for what, value in self._told.items():
                self._send(what, value)
            for number, asked in self._asked.items():
                self._send(asked.what, number)
            if self._stopping:
                self._send("stop", None)

    def _guard(self) -> None:
        """Hear what the process says until it ends; start it again if it fell."""
        try:
            self._keep_running()
        except Exception as error:  # the rim of the thread: whatever it was, it is reported
            self._kill()
            self._dead = True
            self._on_death(error)
        finally:
            with self._gate:  # who asks from now on is answered from the board
                self._running = False
                asked, self._asked = self._asked, {}
            for one in asked.values():
                fulfil(one.future, one.unheard)

    def _keep_running(self) -> None:
        while True:
            assert self._line is not None and self._process is not None
            with self._line, self._line.makefile("rb") as lines:
                self._listen(lines)
            code = self._process.wait()
            with self._gate:
                self._line = None
                ended = self._stopping
            if ended and code == 0:
                return
            fall = self._describe_fall(code)
            if ended:
                self._on_fall(f"{fall} while it was ending; what it kept last is saved")
                return
            if not self._may_start_again(fall):
                return
            self._plan["recipe"]["sampling"]["seed"] += 1  # so that the dice do not fall again
            self._launch()

    def _listen(self, lines: IO[bytes]) -> None:
        with contextlib.suppress(OSError):  # reset: it is gone
            for line in lines:
                what, value = json.loads(line)
                if what == "posted":
                    with self._gate:
                        asked = self._asked.pop(value, None)
                    if asked is not None:
                        fulfil(asked.future, asked.read)
                elif what == "died":
                    self._last_words = value

    def _may_start_again(self, fall: str) -> bool:
        """Count a fall; too many in a short time are the end."""
        assert self._board is not None
        count, minutes = self._falls.count(time.monotonic()), _FALLS_WINDOW_S / 60
        if count > _MOST_FALLS:
            self._dead = True
            self._on_death(LearnerError(f"{fall}; {count} times in {minutes:.0f} minutes"))
            return False
        _, report = self._board.read_progress()
        self._board.post_progress(TrainerState.STARTING, report, math.inf)
        self._on_fall(
            f"{fall}; started again from step {self._board.read_weights().step:,} "
            f"of {report.steps:,}, {count} of at most {_MOST_FALLS} times in {minutes:.0f} minutes"
        )
        return True

    def _describe_fall(self, code: int) -> str:
        log = self._directory / LOG
        how = self._last_words or _describe_end(code, log)
        return f"the learner of agent {self._name} fell: {how} (its log: {log})"

    def _kill(self, why: str = "") -> None:
        self._last_words = why
        with contextlib.suppress(OSError):
            if self._process is not None:
                self._process.kill()


def _describe_end(code: int, log: Path) -> str:
    """Say how a process ended that could not say it itself."""
    if code == -signal.SIGKILL:
        return f"ended by signal {-code}, as the system does when memory runs out"
    if code < 0:
        return f"ended by signal {-code}"
    last = ""
    with contextlib.suppress(OSError):  # it fell all the same
        last = log.read_text(encoding="utf-8", errors="replace").strip().rpartition("\n")[2]
    return f"ended with code {code}" + (f": {last}" if last else "")
