"""Where a person meets the server: dashboard and keys in a terminal, plain lines elsewhere."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from types import TracebackType

from server.console import plain
from server.console.dashboard import Dashboard
from server.console.hotkeys import command_for
from server.console.keyboard import Keyboard, open_anew, read_keys
from server.controls import Command
from server.stats import Event, Snapshot


class Terminal:
    """Show snapshots and hand on commands for as long as the context lasts."""

    def __init__(
        self,
        *,
        snapshot: Callable[[], Snapshot],
        on_command: Callable[[Command], None],
        on_problem: Callable[[str], None],
        plain_lines: bool,
        refresh_s: float,
        status_interval_s: float,
    ) -> None:
        self._snapshot = snapshot
        self._on_command = on_command
        self._on_problem = on_problem
        self._dashboard = (
            None if plain_lines or not sys.stdout.isatty() else Dashboard(refresh_s=refresh_s)
        )
        self._interval_s = refresh_s if self._dashboard else status_interval_s
        self._keyboard: Keyboard | None = None
        self._descriptor: int | None = None  # of the terminal that keys come from
        self._task: asyncio.Task[None] | None = None
        self._mute = False

    async def __aenter__(self) -> Terminal:
        """Begin to show, and to listen to keys where there is a keyboard."""
        if self._dashboard is not None:
            self._dashboard.update(self._snapshot())
            self._dashboard.start()
            self._open_keyboard()
        self._task = asyncio.create_task(self._keep_showing())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the terminal clean and the last figures on it."""
        if self._task is not None:
            self._task.cancel()
        self.restore()
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._say(plain.status_line(self._snapshot()))

    def restore(self) -> None:
        """Give the terminal back; safe to call at any time, and twice."""
        if self._descriptor is not None:
            asyncio.get_running_loop().remove_reader(self._descriptor)
        if self._dashboard is not None:
            self._dashboard.stop()
        if self._keyboard is not None:
            self._keyboard.restore()

    def show_event(self, event: Event) -> None:
        """Print an event where there is no dashboard that shows it."""
        if self._dashboard is None:
            self._say(plain.event_line(event))

    def toggle_help(self) -> None:
        """Show or hide the keys."""
        if self._dashboard is not None:
            self._dashboard.toggle_help()

    async def _keep_showing(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            if self._dashboard is not None:
                self._dashboard.update(self._snapshot())
            else:
                self._say(plain.status_line(self._snapshot()))

    def _say(self, text: str) -> None:
        """Print a line; once nobody reads any more, be silent: that must not stop a server."""
        if self._mute:
            return
        try:
            print(text, flush=True)
        except (OSError, ValueError):
            self._mute = True

    def _open_keyboard(self) -> None:
        if not sys.stdin.isatty():
            return
        try:
            self._descriptor = open_anew(sys.stdin.fileno())
        except OSError as error:  # the terminal belongs to someone else (su, sudo -u)
            self._on_problem(f"no keys: cannot open the terminal: {error.strerror}")
            return
        self._keyboard = Keyboard(self._descriptor)
        self._keyboard.__enter__()
        asyncio.get_running_loop().add_reader(self._descriptor, self._read_keys, self._descriptor)

    def _read_keys(self, descriptor: int) -> None:
        try:
            keys = read_keys(descriptor)
        except EOFError:  # the terminal is gone; without this the loop would spin on it
            asyncio.get_running_loop().remove_reader(descriptor)
            return
        for key in keys:
            command = command_for(key)
            if command is not None:
                self._on_command(command)
