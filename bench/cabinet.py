"""MAMEs in processes of their own, started as the fleet starts them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import tempfile
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Collection
from pathlib import Path

import config
from server import emulators, fleet, perch
from server.emulators import ROOT, Seat

CLIENT = ROOT / "client_lua" / "mame.lua"
SCRIPTS = ROOT / "bench" / "lua"
NICENESS = config.Emulators().niceness  # the fleet's
_GAME = "pong2600"
_SCRIPT_OPTION = "-autoboot_script"


class Cabinet:
    """One MAME that plays 2600 Pong, and what it has printed."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.lines: list[str] = []
        self._reading = asyncio.create_task(self._read())

    @property
    def pid(self) -> int:
        """The number of its process."""
        return self._process.pid

    @property
    def frames(self) -> int:
        """Number of frames that the counting script has seen."""
        return int(self.lines[-1]) if self.lines and self.lines[-1].isdigit() else 0

    def check(self) -> None:
        """Raise what it said last if it has ended."""
        if self._process.returncode is not None:
            raise RuntimeError(f"MAME has ended: {self.last_words}")

    @property
    def last_words(self) -> str:
        """The last line of its output."""
        return self.lines[-1] if self.lines else "no output"

    def pause(self) -> None:
        """Stop it where it is."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._process.send_signal(signal.SIGCONT)

    async def ended(self) -> None:
        """Wait until it has ended by itself and everything is read."""
        await self._reading
        await self._process.wait()

    async def end(self) -> None:
        """Make certain that it has ended. It has no window, so it would not hear SIGTERM."""
        if self._process.returncode is None:
            self._process.kill()
        await self.ended()

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self.lines.append(line.decode(errors="replace").strip())


@contextlib.asynccontextmanager
async def cabinets(
    count: int,
    *,
    environment: dict[str, str],
    script: Path = CLIENT,
    port: int = 0,
    niceness: int = NICENESS,
) -> AsyncIterator[list[Cabinet]]:
    """Run some MAMEs with a boot script and more in their environment; they end with the block."""
    room = fleet.room(count, perch.cores())
    with tempfile.TemporaryDirectory() as directory:
        started: list[Cabinet] = []
        try:
            for number in range(1, count + 1):
                home = Path(directory, str(number))
                seat = Seat(f"mame-{number}", f"127.0.0.1:{port}", number, home)
                started.append(await _start(seat, script, environment, niceness, room))
            yield started
        finally:
            for cabinet in started:
                await cabinet.end()


async def _start(
    seat: Seat,
    script: Path,
    environment: dict[str, str],
    niceness: int,
    cores: Collection[int],
) -> Cabinet:
    seat.home.mkdir()
    command = emulators.command("mame", _GAME, seat)
    arguments = list(command.arguments)
    arguments[arguments.index(_SCRIPT_OPTION) + 1] = str(script)
    process = await asyncio.create_subprocess_exec(
        *arguments,
        cwd=command.directory,
        env={**os.environ, **command.environment, **environment},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,  # as the fleet does: Linux shares its cores out by session first
    )
    fleet.place(process.pid, niceness, cores)
    return Cabinet(process)
