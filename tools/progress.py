"""A line on the terminal that says what is waited for, and for how long; gone when that is over.

Where nobody watches (a pipe, a log) there is no such line: only what stays is printed.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import TextIO

_TICK_S = 0.5  # between rewrites; what takes less is never seen
_CLEAR = "\r\x1b[2K"


class Progress:
    """Show a text and the seconds since it began, rewritten in place, as long as the context lasts.

    ``tell`` prints lines that stay above it.
    """

    def __init__(self, text: str, *, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._text = text
        self._began_s = time.monotonic()
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep_showing, name="progress", daemon=True)

    def __enter__(self) -> Progress:
        """Begin to show it, if anybody watches."""
        if self._stream.isatty():
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Take the line away."""
        self._over.set()
        if self._thread.ident is not None:  # it was started
            self._thread.join()
            self._write(_CLEAR)

    def say(self, text: str) -> None:
        """Show another text from now on."""
        self._text = text

    def tell(self, line: str) -> None:
        """Print a line that stays, on the usual output."""
        with self._lock:
            if self._thread.is_alive():
                self._write(_CLEAR)
            print(line, flush=True)

    def _keep_showing(self) -> None:
        while not self._over.wait(_TICK_S):
            with self._lock:
                self._write(_CLEAR + self._line())

    def _line(self) -> str:
        line = f"{self._text}, {time.monotonic() - self._began_s:.0f} s"
        try:
            width = os.get_terminal_size(self._stream.fileno()).columns
        except (OSError, ValueError):
            return line
        return line[: width - 1] if width else line  # one that wraps cannot be rewritten

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # the terminal is gone: what was waited for goes on
            self._over.set()
