"""Emulators that the server starts beside itself and ends with itself."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import IO

_FORM = re.compile(r"(?P<emulator>[a-z0-9]+):(?P<game>[A-Za-z0-9._/-]+?)(=(?P<count>[0-9]+))?")
_END_S = 3.0  # for an emulator to end by itself before it is killed
_MOST = 1024
_SEED_STRIDE = 1_000_003


class FleetError(ValueError):
    """A launch that cannot be carried out; the message names it and the fix."""


@dataclass(frozen=True, slots=True)
class Launch:
    """Some emulators of one kind that play one game."""

    emulator: str
    game: str
    count: int


# How each kind of emulator is started: what stands before the game on the command line.
_COMMANDS = {
    "ale": ("-m", "client_py", "--ale"),
    "gym": ("-m", "client_py", "--env"),
}


def parse(text: str) -> Launch:
    """Read 'emulator:game=count'."""
    match = _FORM.fullmatch(text)
    if match is None:
        raise FleetError(f"--launch {text!r} must be emulator:game=count, such as ale:pong=2")
    if match["emulator"] not in _COMMANDS:
        known = ", ".join(_COMMANDS)
        raise FleetError(
            f"--launch {text!r}: unknown emulator {match['emulator']!r}; known: {known}"
        )
    count = int(match["count"] or 1)
    if not 1 <= count <= _MOST:
        raise FleetError(f"--launch {text!r}: the count must be 1 to {_MOST}")
    return Launch(match["emulator"], match["game"], count)


class Emulator:
    """One emulator process and its log."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], log: Path) -> None:
        self.name = name
        self.process = process
        self._log = log

    def last_words(self) -> str:
        """Give the last line it wrote."""
        try:
            lines = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        except OSError:
            return "its log is gone"
        return lines[-1] if lines else "no output"


class Fleet:
    """All emulators of this server."""

    def __init__(self, launches: list[Launch], *, seed: int, niceness: int) -> None:
        self._launches = launches
        self._seed = seed
        self._niceness = niceness
        self._emulators: list[Emulator] = []

    def start(self, server: str, token: str, logs: Path, played: int) -> None:
        """Start them all against a server's address, each with a log of its own.

        The number of frames the run has played so far decides which episodes come next.
        """
        root = Path(__file__).resolve().parent.parent
        logs.mkdir(parents=True, exist_ok=True)
        for launch in self._launches:
            for number in range(1, launch.count + 1):
                name = re.sub(r"[^A-Za-z0-9._-]", "-", f"{launch.emulator}-{launch.game}-{number}")
                # A client counts its seed up by one an episode: far apart, so that no two
                # play the same ones, and shifted, so that a resumed run plays new ones.
                seed = (self._seed * 1000 + len(self._emulators)) * _SEED_STRIDE + played
                command = [sys.executable, *_COMMANDS[launch.emulator], launch.game]
                command += [
                    "--server",
                    server,
                    "--name",
                    name,
                    "--seed",
                    str(seed % 2**31),
                    "--once",
                ]
                log = logs / f"{name}.log"
                with log.open("wb") as output:
                    process = _spawn(command, output, root, token)
                self._emulators.append(Emulator(name, process, log))
                # Never below our own: that is for the superuser only.
                niceness = max(self._niceness, os.getpriority(os.PRIO_PROCESS, 0))
                os.setpriority(os.PRIO_PROCESS, process.pid, niceness)

    def fallen(self) -> list[str]:
        """Take out the emulators that ended by themselves; say which and why."""
        gone = [emulator for emulator in self._emulators if emulator.process.poll() is not None]
        self._emulators = [emulator for emulator in self._emulators if emulator not in gone]
        return [
            f"emulator {emulator.name} ended with code {emulator.process.returncode}: "
            f"{emulator.last_words()}"
            for emulator in gone
        ]

    def stop(self) -> None:
        """End them all: first politely, then for certain."""
        for emulator in self._emulators:
            emulator.process.terminate()
        for emulator in self._emulators:
            try:
                emulator.process.wait(_END_S)
            except subprocess.TimeoutExpired:
                emulator.process.kill()
                emulator.process.wait()
        self._emulators = []


def _spawn(
    command: list[str], output: IO[bytes], root: Path, token: str
) -> subprocess.Popen[bytes]:
    environment = dict(os.environ)
    if token:
        environment["COINOP_TOKEN"] = token
    return subprocess.Popen(
        command,
        cwd=root,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # Ctrl-C in the terminal is the server's to handle
    )
