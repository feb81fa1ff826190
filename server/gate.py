"""The control socket of a run: a Unix socket through which a server is watched and steered.

Whoever may open the file may steer: it is its owner's alone. The run's lock decides which server
it belongs to, so a socket that is found there is a dead server's.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from server import record, request
from server.controls import Command
from server.request import MAX_LINE, Do, Request, RequestError
from server.stats import Snapshot

NAME = "control.sock"

_MOST = 64  # connections at once
_SHORT_PATH = 100  # bytes: what every system takes as a socket's name
_SEND_BYTES = 1 << 16  # the kernel's share of what a slow watcher has not read
_TICK_S = 0.05  # between looks at who is due
_OWNER_ONLY = 0o600


class Gate:
    """Serves the control socket on the event loop."""

    def __init__(
        self,
        *,
        snapshot: Callable[[], Snapshot],
        obey: Callable[[Command, str], Awaitable[str]],
        errors: tuple[type[Exception], ...],
    ) -> None:
        self._snapshot = snapshot
        self._obey = obey
        # What obey may raise: answers, not faults.
        self._refusals: tuple[type[Exception], ...] = (RequestError, *errors)
        self._path: Path | None = None
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._watchers: dict[asyncio.StreamWriter, _Pace] = {}
        self._pump: asyncio.Task[None] | None = None

    async def open(self, path: Path) -> None:
        """Listen on a socket of this name; one that a dead server left is replaced."""
        self._path = path
        path.unlink(missing_ok=True)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            os.fchmod(listening.fileno(), _OWNER_ONLY)  # before it can be seen (Linux)
            with reachable(path) as name:
                listening.bind(name)
            path.chmod(_OWNER_ONLY)
            listening.setblocking(False)
            self._server = await asyncio.start_unix_server(
                self._welcome, sock=listening, limit=MAX_LINE
            )
        except OSError:
            listening.close()
            raise
        self._pump = asyncio.create_task(self._keep_showing())

    async def close(self) -> None:
        """Take the socket away, and say goodbye to everyone by closing."""
        if self._server is None:
            return
        self._server.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)  # first: who sees us close finds it gone
        tasks = [*self._connections, *([self._pump] if self._pump else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._connections) >= _MOST:
            writer.write(request.refusal(f"{_MOST} connections are open already"))
            writer.close()
            return
        self._connections.add(task)
        end: socket.socket = writer.get_extra_info("socket")
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BYTES)
        try:
            await self._serve(reader, writer)
        except (ConnectionError, asyncio.CancelledError):
            pass  # they left, or we do
        finally:
            self._connections.discard(task)
            self._watchers.pop(writer, None)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                line = await reader.readline()
            except ValueError:
                writer.write(request.refusal(f"a line may have at most {MAX_LINE} bytes"))
                return
            if not line:
                return
            try:
                asked = request.read(line)
                if asked.do is Do.WATCH:
                    self._watchers[writer] = _Pace(asked.every_s)
                    await reader.read()  # until they leave
                    return
                writer.write(request.answer(await self._answer(asked)))
            except self._refusals as error:
                writer.write(request.refusal(str(error)))
            await writer.drain()

    async def _answer(self, asked: Request) -> str:
        if asked.command is not None:
            return json.dumps(await self._obey(asked.command, asked.who))
        snapshot = self._snapshot()
        return record.to_json(snapshot.dials if asked.do is Do.GET else snapshot)

    async def _keep_showing(self) -> None:
        """Show everyone who is due the newest Snapshot; who has not read the last one waits."""
        while True:
            await asyncio.sleep(_TICK_S)
            now = time.monotonic()
            due = [
                (writer, pace)
                for writer, pace in self._watchers.items()
                if pace.next_s <= now and not writer.transport.get_write_buffer_size()
            ]
            if not due:
                continue
            line = request.answer(record.to_json(self._snapshot()))
            for writer, pace in due:
                pace.next_s = now + pace.every_s
                writer.write(line)


class _Pace:
    """When a watcher wants to see the next Snapshot."""

    def __init__(self, every_s: float) -> None:
        self.every_s = every_s
        self.next_s = 0.0


@contextlib.contextmanager
def reachable(path: Path) -> Iterator[str]:
    """Give a name for a socket's path that is short enough for the system."""
    if len(os.fsencode(path)) <= _SHORT_PATH:
        yield str(path)
        return
    # Linux: through a descriptor of its directory, the name is short wherever that lies.
    descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{path.name}"
    finally:
        os.close(descriptor)
