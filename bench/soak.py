"""A server for a long time among faults: what it lost, what it leaked, how long it was away.

The server is a real one, with emulators of its own and its learner in a process; three clients
know which of their frames were answered. By turns something is killed, a client, an emulator, the
learner, the server itself, or a save is asked for. Memory, descriptors, threads and delays are
watched from outside. A lost frame, a leak or a hang ends it with an error.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from bench.figures import Round
from bench.witness import AGENT, Witness, check
from server import gate
from server.controls import Command, Verb
from server.emulators import ROOT, LaunchError
from server.emulators import check as check_emulator
from server.request import RequestError
from tools.control import Line, NoServerError

ABOUT = "a server among faults for a long time: frames lost, leaks, delays"
OPTIONS = {"--rounds": 1, "--minutes": 30.0, "--fault-s": 6.0}
_CLIENTS = 3
_CAPACITY = 50_000
_LIFE_S = 90.0  # of one server, about; then it is killed
_SETTLED_S = 25.0  # after a start, before leaks are looked for
_HANG_S = 60.0  # without an answered frame
_MOST_GROWTH_MB = 150.0
_MOST_GROWTH = 30  # descriptors, threads
FAULTS = ("client", "emulator", "learner", "save")
_MOST_LEARNERS = 2  # killed in one server's life: a third within ten minutes would stop it


class SoakError(RuntimeError):
    """A promise was broken."""


async def measure(options: argparse.Namespace) -> Round:
    """Soak for some minutes; the round is the dice's seed."""
    with tempfile.TemporaryDirectory() as directory:
        soak = _Soak(Path(directory), random.Random(options.round), options.fault_s)
        try:
            await soak.run(options.minutes * 60)
        finally:
            soak.end()
        return soak.figures()


class _Soak:
    """The server, its clients, and what was seen of them."""

    def __init__(self, runs: Path, dice: random.Random, every_s: float) -> None:
        self._runs = runs
        self._dice = dice
        self._every_s = every_s
        self._witnesses = [Witness(number) for number in range(_CLIENTS)]
        self._server: asyncio.subprocess.Process | None = None
        self._began_s = 0.0
        self._first: dict[str, float] | None = None  # of this server's life, settled
        self._faults: Counter[str] = Counter()
        self._away_s: list[float] = []
        self._p99_ms: list[float] = []
        self._growth: dict[str, float] = {"anonymous_mb": 0.0, "descriptors": 0.0, "threads": 0.0}
        self._frames = 0
        self._learners = 0  # killed in this server's life
        self._games: dict[str, tuple[float, int]] = {}  # when frames of each came last, how many

    async def run(self, seconds: float) -> None:
        """Start, do harm, watch; at the end everything must be there."""
        until_s = time.monotonic() + seconds
        await self._start()
        while time.monotonic() < until_s:
            await asyncio.sleep(self._dice.uniform(0.2, 1.8) * self._every_s)
            self._check_progress()
            if time.monotonic() - self._began_s > _LIFE_S:
                await self._kill_server()
                continue
            self._watch()
            spared = self._learners >= _MOST_LEARNERS
            self._harm(self._dice.choice([f for f in FAULTS if f != "learner" or not spared]))
        await self._stop()

    def figures(self) -> Round:
        """Give what was seen."""
        return {
            "frames": self._frames,
            "frames_lost": 0,  # or we would not be here
            "emulator_frames": sum(frames for _, frames in self._games.values()),
            **{f"{fault}_faults": self._faults[fault] for fault in (*FAULTS, "server")},
            "away_s_most": max(self._away_s, default=0.0),
            "p99_ms_most": max(self._p99_ms, default=0.0),
            **{f"{name}_growth": grown for name, grown in self._growth.items()},
        }

    def end(self) -> None:
        """Leave nothing running."""
        if self._server is not None and self._server.returncode is None:
            self._server.kill()
        for witness in self._witnesses:
            witness.finish()

    # --- the server -------------------------------------------------------------------------

    async def _start(self) -> None:
        began_s = time.monotonic()
        words = ["--plain", "--port", "0", "--runs-dir", str(self._runs), "--run", "soak"]
        words += ["--trainer", "process", "--replay-capacity", str(_CAPACITY)]
        words += ["--min-replay", "1000", "--save-interval-s", "20", "--launch", "ale:pong"]
        with contextlib.suppress(LaunchError):  # without MAME it is the Atari alone
            check_emulator("mame", "pong2600")
            words += ["--launch", "mame:pong2600"]
        self._server = await asyncio.create_subprocess_exec(
            *(sys.executable, str(ROOT / "main.py"), *words),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        lines: list[str] = []
        port = asyncio.get_running_loop().create_future()
        self._reading = asyncio.create_task(_read(self._server, lines, port))
        try:
            found = await asyncio.wait_for(port, _HANG_S)
        except TimeoutError:
            raise SoakError("the server does not start: " + "\n".join(lines[-20:])) from None
        before = [witness.answered for witness in self._witnesses]
        for witness in self._witnesses:
            witness.turn_to(found)
        while not any(w.answered > b for w, b in zip(self._witnesses, before, strict=True)):
            if time.monotonic() - began_s > _HANG_S:
                raise SoakError("nobody is answered: " + "\n".join(lines[-20:]))
            await asyncio.sleep(0.02)
        self._away_s.append(time.monotonic() - began_s)
        self._began_s, self._first, self._learners = time.monotonic(), None, 0
        self._progress = (time.monotonic(), self._answered())
        self._games = dict.fromkeys(self._games, (self._began_s, 0))

    async def _kill_server(self) -> None:
        assert self._server is not None
        self._server.kill()
        await self._left()
        self._faults["server"] += 1
        await self._start()

    async def _stop(self) -> None:
        assert self._server is not None
        self._server.send_signal(signal.SIGINT)
        await asyncio.wait_for(self._left(), _HANG_S)
        if self._server.returncode:
            raise SoakError(f"the server ended with {self._server.returncode}")

    async def _left(self) -> None:
        """Wait until the server has ended, and compare its replay with what its clients know."""
        assert self._server is not None
        for witness in self._witnesses:
            witness.turn_to(None)
        await self._server.wait()
        await self._reading
        replay = self._runs / "soak" / "agents" / AGENT / "replay.bin"
        try:
            self._frames = await asyncio.to_thread(check, replay, _CAPACITY, self._witnesses)
        except AssertionError as broken:
            raise SoakError(str(broken)) from broken

    # --- what is done to it -------------------------------------------------------------------

    def _harm(self, fault: str) -> None:
        assert self._server is not None
        self._faults[fault] += 1
        self._learners += fault == "learner"
        if fault == "client":
            self._dice.choice(self._witnesses).hang_up()
        elif fault == "save":
            self._save()
        else:
            named = "server.train" if fault == "learner" else r"mame|client_py"
            victims = [p for p, words in _children(self._server.pid) if re.search(named, words)]
            if victims:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._dice.choice(victims), signal.SIGKILL)

    def _save(self) -> None:
        with self._line() as line, contextlib.suppress(NoServerError, RequestError):
            line.obey(Command(Verb.SAVE), "soak")

    def _line(self) -> Line:
        return Line(self._runs / "soak" / gate.NAME)

    # --- what is watched ----------------------------------------------------------------------

    def _answered(self) -> int:
        return sum(witness.answered for witness in self._witnesses)

    def _check_progress(self) -> None:
        at_s, answered = self._progress
        if self._answered() > answered:
            self._progress = (time.monotonic(), self._answered())
        elif time.monotonic() - at_s > _HANG_S:
            raise SoakError(f"no frame was answered for {_HANG_S:g} s")

    def _watch(self) -> None:
        assert self._server is not None
        if time.monotonic() - self._began_s < _SETTLED_S:
            return
        now = _resources(self._server.pid)
        if self._first is None:
            self._first = now
        for name, value in now.items():
            grown = value - self._first[name]
            self._growth[name] = max(self._growth[name], grown)
            if grown > (_MOST_GROWTH_MB if name == "anonymous_mb" else _MOST_GROWTH):
                raise SoakError(f"a leak: {name} went from {self._first[name]:g} to {value:g}")
        with self._line() as line:
            for agent in line.status().agents:
                if agent.name != AGENT:
                    self._check_game(agent.name, agent.frames)
                elif agent.latency_p99_ms is not None:
                    self._p99_ms.append(agent.latency_p99_ms)

    def _check_game(self, name: str, frames: int) -> None:
        """Make certain that emulators come back to play, whatever is done to them."""
        at_s, before = self._games.get(name, (self._began_s, 0))
        if frames > before:
            self._games[name] = (time.monotonic(), frames)
        elif time.monotonic() - at_s > _HANG_S:
            raise SoakError(f"no frame of {name} for {_HANG_S:g} s")


async def _read(
    server: asyncio.subprocess.Process, lines: list[str], port: asyncio.Future[int]
) -> None:
    """Read what a server says, so that it is never held up; find its port."""
    assert server.stdout is not None
    async for line in server.stdout:
        lines.append(line.decode(errors="replace").rstrip())
        found = re.search(r"listening on [\d.]+:(\d+)", lines[-1])
        if found and not port.done():
            port.set_result(int(found[1]))
        del lines[:-100]


def _children(pid: int) -> list[tuple[int, str]]:
    """Give the children of a process, and the words each was started with."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text(encoding="utf-8").split():
            with contextlib.suppress(OSError):  # it has ended meanwhile
                words = Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").decode()
                found.append((int(child), words))
    return found


def _resources(pid: int) -> dict[str, float]:
    """Give what a process holds."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    held = dict(re.findall(r"(RssAnon|Threads):\s+(\d+)", status))
    return {
        "anonymous_mb": int(held["RssAnon"]) / 1e3,
        "descriptors": len(list(Path(f"/proc/{pid}/fd").iterdir())),
        "threads": int(held["Threads"]),
    }
