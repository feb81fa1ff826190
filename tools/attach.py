"""Show the dashboard of a running server in this terminal, with its keys.

Any number may be attached; `q` leaves, and the server goes on.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
from pathlib import Path

from server import record, request
from server.console.terminal import Terminal
from server.controls import Command, Verb
from server.request import Do, Request, RequestError
from server.stats import Snapshot
from tools import control
from tools.control import NoServerError

_SNAPSHOT_BYTES = 1 << 24  # longest line of a server
_MOST_WAITING = 64  # commands that were not sent yet
_STATUS_S = 10.0  # between lines where there is no terminal


def add_options(parser: argparse.ArgumentParser) -> None:
    """Describe the options."""
    control.add_options(parser)
    parser.add_argument(
        "--refresh-s", type=float, default=0.25, metavar="S", help="time between redraws (0.25 s)"
    )


def run(options: argparse.Namespace) -> int:
    """Show the server until somebody leaves or it ends."""
    try:
        return asyncio.run(_attached(control.find(options.runs_dir, options.run), options))
    except (NoServerError, RequestError, OSError) as error:
        print(f"attach: {error}", file=sys.stderr)
        return 2


async def _attached(path: Path, options: argparse.Namespace) -> int:
    leave = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, leave.set)
    async with _Window(path, leave, options.refresh_s) as window:
        terminal = Terminal(
            snapshot=window.newest,
            on_command=window.send,
            on_problem=lambda text: None,
            plain_lines=False,
            refresh_s=options.refresh_s,
            status_interval_s=_STATUS_S,
        )
        async with terminal:
            await leave.wait()
    print("the server has ended" if window.ended else "left; the server goes on")
    return 0


class _Window:
    """What is seen of the server, and what it is told; one connection each."""

    def __init__(self, path: Path, leave: asyncio.Event, refresh_s: float) -> None:
        self.ended = False
        self._path = path
        self._leave = leave
        self._refresh_s = refresh_s
        self._snapshot: Snapshot | None = None
        self._commands: asyncio.Queue[Command] = asyncio.Queue(_MOST_WAITING)
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> _Window:
        """Wait for the first sight of the server."""
        reader, self._watching = await _connect(self._path)
        self._watching.write(request.encode(Request(Do.WATCH, every_s=self._refresh_s)))
        if not await self._see(reader):
            raise NoServerError("the server has ended")
        self._tasks = [
            asyncio.create_task(self._look(reader)),
            asyncio.create_task(self._speak()),
        ]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._watching.close()

    def newest(self) -> Snapshot:
        """Give the newest Snapshot."""
        assert self._snapshot is not None
        return self._snapshot

    def send(self, command: Command) -> None:
        """Hand a command on; to quit is to leave, the server goes on."""
        if command.verb is Verb.STOP:
            self._leave.set()
            return
        with contextlib.suppress(asyncio.QueueFull):
            self._commands.put_nowait(command)

    async def _look(self, reader: asyncio.StreamReader) -> None:
        while await self._see(reader):
            pass
        self.ended = True
        self._leave.set()

    async def _see(self, reader: asyncio.StreamReader) -> bool:
        try:
            line = await reader.readline()
        except (ConnectionError, ValueError):
            return False
        if line:
            self._snapshot = record.from_plain(Snapshot, request.read_answer(line))
        return bool(line)

    async def _speak(self) -> None:
        """Send one command after the other; a refusal is an event that the server shows."""
        reader, writer = await _connect(self._path)
        try:
            while True:
                command = await self._commands.get()
                writer.write(request.encode(Request(Do.COMMAND, command, "attach")))
                if not await reader.readline():
                    return
        finally:
            writer.close()


async def _connect(path: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    end = control.connect(path)
    end.setblocking(False)
    return await asyncio.open_unix_connection(sock=end, limit=_SNAPSHOT_BYTES)
