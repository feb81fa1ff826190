"""Where a person meets the server: dashboard and keys in a terminal, plain lines elsewhere."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from types import TracebackType

from server.console import plain
from server.console.dashboard import Dashboard
from server.console.keyboard import Decoder, Keyboard, open_anew, read_bytes
from server.console.look import Look
from server.console.viewer import press
from server.controls import Command
from server.stats import Event, Snapshot

_ESCAPE_S = 0.05  # after which a lone escape is a key, and not the start of an arrow


class Terminal:
    """Show snapshots and hand on commands for as long as the context lasts.

    The terminal is ours only meanwhile, and not while we are suspended (Ctrl-Z) or in the
    background.
    """

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
        self._decoder = Decoder()
        self._look = Look()
        self._taken = False  # whether the screen is ours now

    async def __aenter__(self) -> Terminal:
        """Begin to show, and to listen to keys where there is a keyboard."""
        if self._dashboard is not None:
            self._dashboard.update(self._snapshot())
            self._open_keyboard()
            for number, handler in self._handlers().items():
                asyncio.get_running_loop().add_signal_handler(number, handler)
            self._take()
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
        if self._dashboard is not None:
            for number in self._handlers():
                asyncio.get_running_loop().remove_signal_handler(number)
        self.restore()
        if self._descriptor is not None:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
        self._say(plain.status_line(self._snapshot()))

    def restore(self) -> None:
        """Give the terminal back; safe to call at any time, and twice."""
        self._taken = False
        if self._dashboard is not None:
            self._dashboard.stop()
        if self._keyboard is not None:
            self._keyboard.restore()

    def _take(self) -> None:
        """Make the terminal ours, unless another program is in the foreground."""
        if self._taken or not self._in_foreground():
            return
        self._taken = True
        if self._keyboard is not None:
            self._keyboard.__enter__()
        if self._dashboard is not None:
            self._dashboard.start()

    def _in_foreground(self) -> bool:
        if self._descriptor is None:
            return True
        try:
            return os.tcgetpgrp(self._descriptor) == os.getpgrp()
        except OSError:  # not our controlling terminal: nobody can put us in the background
            return True

    def _handlers(self) -> dict[int, Callable[[], None]]:
        return {
            signal.SIGTSTP: self._suspend,
            signal.SIGCONT: self._resume,
            signal.SIGWINCH: self._resized,
        }

    def _suspend(self) -> None:
        """Give the terminal back and stop, as Ctrl-Z asks; go on here when somebody says so."""
        self.restore()
        os.kill(os.getpid(), signal.SIGSTOP)

    def _resume(self) -> None:
        """Take the terminal again; whoever had it meanwhile may have changed everything."""
        self.restore()
        self._take()

    def _resized(self) -> None:
        if self._dashboard is not None:
            self._dashboard.wake()

    def show_event(self, event: Event) -> None:
        """Print an event where there is no dashboard that shows it."""
        if self._dashboard is None:
            self._say(plain.event_line(event))

    async def _keep_showing(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            if self._dashboard is not None:
                self._take()  # we may have been brought to the foreground
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
        asyncio.get_running_loop().add_reader(self._descriptor, self._read_keys, self._descriptor)

    def _read_keys(self, descriptor: int) -> None:
        try:
            data = read_bytes(descriptor)
        except EOFError:  # the terminal is gone; without this the loop would spin on it
            asyncio.get_running_loop().remove_reader(descriptor)
            return
        self._pressed(self._decoder.feed(data))
        if self._decoder.waits:
            loop = asyncio.get_running_loop()
            loop.call_later(_ESCAPE_S, lambda: self._pressed(self._decoder.finish()))

    def _pressed(self, keys: list[str]) -> None:
        for key in keys:
            self._look, command = press(self._look, key, self._snapshot())
            if command is not None:
                self._on_command(command)
        if keys and self._dashboard is not None:
            self._dashboard.turn(self._look)
