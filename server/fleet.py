"""Emulators that the server starts beside itself, keeps running, and ends with itself."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from server import emulators
from server.emulators import LaunchError, Seat

_FORM = re.compile(r"(?P<emulator>[a-z0-9]+):(?P<game>[A-Za-z0-9._/-]+?)(=(?P<count>[0-9]+))?")
_END_S = 3.0  # for an emulator to end by itself before it is killed
_MOST = 1024
_SEED_STRIDE = 1_000_003
_FIRST_RETRY_S = 1.0  # before a fallen emulator is started again; doubled each time
_LAST_RETRY_S = 60.0
_STEADY_S = 60.0  # an emulator that ran this long has recovered
_MOST_FALLS = 5  # in a row, before it counts as a crash loop
_REFUSED = 2  # exit code of a client that will never be let in


@dataclass(frozen=True, slots=True)
class Launch:
    """Some emulators of one kind that play one game."""

    emulator: str
    game: str
    count: int


def parse(text: str) -> Launch:
    """Read 'emulator:game=count'."""
    match = _FORM.fullmatch(text)
    if match is None:
        raise LaunchError(f"--launch {text!r} must be emulator:game=count, such as ale:pong=2")
    if match["emulator"] not in emulators.kinds():
        known = ", ".join(emulators.kinds())
        raise LaunchError(
            f"--launch {text!r}: unknown emulator {match['emulator']!r}; known: {known}"
        )
    count = int(match["count"] or 1)
    if not 1 <= count <= _MOST:
        raise LaunchError(f"--launch {text!r}: the count must be 1 to {_MOST}")
    emulators.check(match["emulator"], match["game"])
    return Launch(match["emulator"], match["game"], count)


class Emulator:
    """One emulator: its process, its log, and how often it fell."""

    def __init__(self, launch: Launch, seat: Seat, niceness: int) -> None:
        self.seat = seat
        self._launch = launch
        self._niceness = niceness
        self._log = seat.home / "output.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._started_s = 0.0
        self._falls = 0
        self._retry_at: float | None = None

    def start(self) -> None:
        """Run it, with its output in its own log."""
        self.seat.home.mkdir(parents=True, exist_ok=True)
        command = emulators.command(self._launch.emulator, self._launch.game, self.seat)
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(
                command.arguments,
                cwd=command.directory,
                env={**os.environ, **command.environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C in the terminal is the server's to handle
                restore_signals=False,  # SIGPIPE stays ignored: MAME's own sockets need that
            )
        self._started_s, self._retry_at = time.monotonic(), None
        # Never below our own: that is for the superuser only.
        niceness = max(self._niceness, os.getpriority(os.PRIO_PROCESS, 0))
        os.setpriority(os.PRIO_PROCESS, self._process.pid, niceness)

    def tend(self, now: float) -> str | None:
        """Start it again if it fell and its time has come; say what a person should know."""
        if self._process is None:
            if self._retry_at is not None and now >= self._retry_at:
                self.start()
                return f"emulator {self.seat.name} started again"
            return None
        code = self._process.poll()
        if code is None:
            return None
        self._process = None
        self._falls = 1 if now - self._started_s >= _STEADY_S else self._falls + 1
        text = f"emulator {self.seat.name} ended with code {code}: {self._last_words()}"
        if code == _REFUSED:
            return f"{text}; not started again"
        if self._falls >= _MOST_FALLS:
            return f"{text}; it fell {self._falls} times in a row and stays down (log: {self._log})"
        wait_s = min(_LAST_RETRY_S, _FIRST_RETRY_S * 2 ** (self._falls - 1))
        self._retry_at = now + wait_s
        return f"{text}; starting it again in {wait_s:g} s"

    def ask_to_end(self) -> None:
        """Ask it to end, and never start it again."""
        self._retry_at = None
        if self._process is not None:
            self._process.terminate()

    def end(self) -> None:
        """Make certain that it has ended."""
        if self._process is None:
            return
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _last_words(self) -> str:
        try:
            lines = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        except OSError:
            return "its log is gone"
        return lines[-1] if lines else "no output"


class Fleet:
    """All emulators of this server."""

    def __init__(
        self,
        launches: list[Launch],
        *,
        seed: int,
        niceness: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._launches = launches
        self._seed = seed
        self._niceness = niceness
        self._clock = clock
        self._emulators: list[Emulator] = []

    def start(self, server: str, token: str, homes: Path, played: int) -> None:
        """Start them all against a server's address, each in a directory of its own.

        The number of frames the run has played so far decides which episodes come next.
        """
        for launch in self._launches:
            for number in range(1, launch.count + 1):
                name = re.sub(r"[^A-Za-z0-9._-]", "-", f"{launch.emulator}-{launch.game}-{number}")
                # A client counts its seed up by one an episode: far apart, so that no two
                # play the same ones, and shifted, so that a resumed run plays new ones.
                seed = (self._seed * 1000 + len(self._emulators)) * _SEED_STRIDE + played
                seat = Seat(name, server, seed % 2**31, homes / name, token)
                emulator = Emulator(launch, seat, self._niceness)
                self._emulators.append(emulator)
                emulator.start()

    def tend(self) -> list[str]:
        """Look after the emulators that fell; give what a person should know."""
        now = self._clock()
        told = (emulator.tend(now) for emulator in self._emulators)
        return [text for text in told if text is not None]

    def stop(self) -> None:
        """End them all: first politely, then for certain."""
        emulators_now, self._emulators = self._emulators, []
        for emulator in emulators_now:
            emulator.ask_to_end()
        for emulator in emulators_now:
            emulator.end()
