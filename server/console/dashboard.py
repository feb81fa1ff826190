"""The dashboard: the terminal's whole screen, redrawn from the newest Snapshot by its own thread.

``python -m server.console.dashboard`` shows a demo.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import os
import re
import threading
import time
from pathlib import Path

from rich.console import Console
from rich.segment import Segment

from server.console import demo
from server.console.line import Line
from server.console.look import Look
from server.console.screen import Screen, render
from server.stats import Snapshot

__all__ = ["Dashboard", "drawn", "export_svg", "render"]

_JOIN_S = 2.0
_DEMO_S, _DEMO_TICK_S = 12.0, 0.25
_DEMO_WIDTH, _DEMO_HEIGHT = 110, 34
_CLEAR = "\x1b[H\x1b[2J"


class Dashboard:
    """Own the terminal's screen between start and stop.

    An error while drawing ends the drawing, never the server; stop() tells of it.
    """

    def __init__(self, *, console: Console | None = None, refresh_s: float = 0.25) -> None:
        self._console = console or Console()
        self._refresh_s = refresh_s
        self._snapshot: Snapshot | None = None
        self._look = Look()
        self._stopping = False
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None
        self._shown: Snapshot | None = None
        self._shown_as: tuple[Look, tuple[int, int]] | None = None

    def start(self) -> None:
        """Take the screen over."""
        self._shown = self._shown_as = None  # a second start draws again
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="dashboard", daemon=True)
        atexit.register(self.stop)
        self._thread.start()

    def update(self, snapshot: Snapshot) -> None:
        """Show this snapshot from the next redraw on."""
        self._snapshot = snapshot

    def turn(self, look: Look) -> None:
        """Show it as the person looks at it now, at once."""
        self._look = look
        self._wake.set()

    def wake(self) -> None:
        """Draw at once: the terminal has another size."""
        self._wake.set()

    def stop(self) -> None:
        """Give the screen back, and say on it what went wrong, if anything did."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        atexit.unregister(self.stop)
        self._stopping = True
        self._wake.set()
        thread.join(_JOIN_S)  # no longer: it may hang in a terminal that someone has paused
        if self._error is not None:
            text = " ".join(f"{type(self._error).__name__}: {self._error}".split())
            with contextlib.suppress(OSError, ValueError):
                self._write(f"The dashboard stopped: {text}\n")

    def _run(self) -> None:
        try:
            self._console.set_alt_screen(True)
            self._console.show_cursor(False)
            while not self._stopping:
                self._redraw()
                self._wake.wait(self._refresh_s)
                self._wake.clear()
        except Exception as error:  # the rim of this thread: stop() reports it
            self._error = error
        finally:
            self._leave()

    def _leave(self) -> None:
        with contextlib.suppress(OSError, ValueError):  # the terminal is gone, or closed
            if self._console.is_alt_screen:
                self._write(_CLEAR)  # or tmux, resized since, leaves pieces on the normal screen
            self._console.show_cursor(True)
            self._console.set_alt_screen(False)

    def _redraw(self) -> None:
        snapshot, look, size = self._snapshot, self._look, self._size()
        if snapshot is None or (snapshot is self._shown and (look, size) == self._shown_as):
            return
        width, height = size
        screen = render(snapshot, look, width=width, height=height)
        resized = self._shown_as is None or self._shown_as[1] != size
        self._write((_CLEAR if resized else "") + drawn(self._console, screen))
        self._shown, self._shown_as = snapshot, (look, size)

    def _size(self) -> tuple[int, int]:
        # Asked of the terminal itself: rich prefers $COLUMNS, which is stale after a resize.
        with contextlib.suppress(OSError, ValueError):  # no terminal, or not even a file
            width, height = os.get_terminal_size(self._console.file.fileno())
            if width and height:
                return width, height
        return self._console.width, self._console.height

    def _write(self, text: str) -> None:
        self._console.file.write(text)
        self._console.file.flush()


def export_svg(snapshot: Snapshot, path: Path, *, width: int = 110, height: int = 34) -> None:
    """Save a picture of the screen, for the README."""
    console = Console(
        record=True,
        file=io.StringIO(),
        width=width,
        height=height,
        force_terminal=True,
        color_system="truecolor",
    )
    screen = render(snapshot, Look(), width=width, height=height)
    # In short pieces, each at its own place: not every viewer keeps spaces, or has the font.
    apart = Screen(tuple(_pieces(line) for line in screen.lines))
    console.print(apart, crop=False, no_wrap=True)
    console.save_svg(str(path), title="Coinop", unique_id="coinop")


def drawn(console: Console, screen: Screen) -> str:
    """Give what a terminal must be sent to show a screen."""
    with console.capture() as capture:
        console.print(screen, end="", crop=False, no_wrap=True)
    # Each line goes to its own place: a line end after the last column would not mean the same
    # on every terminal.
    lines = capture.get().split("\n")
    return "".join(f"\x1b[{row};1H{line}" for row, line in enumerate(lines, start=1))


def _pieces(line: Line) -> Line:
    return [
        Segment(piece, segment.style)
        for segment in line
        for piece in re.findall(" +|[▁-█]+|[^ ▁-█]{1,8}", segment.text)
    ]


def _show_demo() -> None:
    console = Console()
    if not console.is_terminal:
        screen = render(demo.snapshot(), Look(), width=_DEMO_WIDTH, height=_DEMO_HEIGHT)
        Console(width=_DEMO_WIDTH).print(screen, crop=False, no_wrap=True)
        return
    dashboard = Dashboard(console=console)
    dashboard.start()
    try:
        for tick in range(int(_DEMO_S / _DEMO_TICK_S)):
            dashboard.update(demo.snapshot(tick * _DEMO_TICK_S + 15.0, agents=2))
            time.sleep(_DEMO_TICK_S)
    except KeyboardInterrupt:
        pass
    finally:
        dashboard.stop()


if __name__ == "__main__":
    _show_demo()
