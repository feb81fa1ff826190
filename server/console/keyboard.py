"""The keyboard of a terminal: each key at once, without echo, and the old mode back at the end."""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import select
import termios
from types import TracebackType
from typing import Any

_READ_BYTES = 1024
_LOCAL_FLAGS, _CHARACTERS = 3, 6  # places in what termios.tcgetattr gives

# A key that is no character (an arrow, F1, Alt with a letter) arrives as a sequence:
# CSI `ESC [ … final`, SS3 `ESC O x`, or `ESC x`. One cut short ends with the text.
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*(?:[@-~]|$)|O.?|.?)", re.DOTALL)


class Keyboard:
    """Put a terminal into single-key mode for as long as the context lasts.

    A file descriptor that is no terminal is left alone.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._saved: list[Any] | None = None

    def __enter__(self) -> Keyboard:
        """Switch line editing and echo off; Ctrl-C stays a signal."""
        if self._saved is None and os.isatty(self._fd):
            self._saved = termios.tcgetattr(self._fd)
            atexit.register(self.restore)
            termios.tcsetattr(self._fd, termios.TCSANOW, _single_key(self._saved))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Restore the terminal, whatever happened."""
        self.restore()

    def restore(self) -> None:
        """Put the terminal back as it was; a second call does nothing."""
        saved, self._saved = self._saved, None
        if saved is None:
            return
        atexit.unregister(self.restore)
        # The terminal may be gone by now: then there is nothing to restore.
        # Not TCSAFLUSH: it waits for the output, for ever if someone pressed Ctrl-S.
        with contextlib.suppress(termios.error):
            termios.tcflush(self._fd, termios.TCIFLUSH)  # keys meant for us, not for the shell
            termios.tcsetattr(self._fd, termios.TCSANOW, saved)


def open_anew(fd: int) -> int:
    """Open the terminal behind a descriptor once more; give the new descriptor.

    An event loop makes what it watches non-blocking. On the descriptor that we share with the
    shell, and with our own output, that would outlive us.
    """
    return os.open(os.ttyname(fd), os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)


def read_keys(fd: int) -> list[str]:
    """Read the keys pressed so far, without waiting; raise EOFError once the terminal is gone."""
    # Not O_NONBLOCK: the flag would be shared with stdout and with the shell.
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    if not poll.poll(0):
        return []
    try:
        data = os.read(fd, _READ_BYTES)
    except OSError as error:
        raise EOFError("the terminal is gone") from error
    if not data:
        raise EOFError("the terminal is gone")
    return decode(data)


def decode(data: bytes) -> list[str]:
    """Give the single-character keys in what a terminal sent, without its escape sequences."""
    text = _ESCAPE.sub("", data.decode(errors="ignore"))
    return [key for key in text if key.isprintable()]


def _single_key(mode: list[Any]) -> list[Any]:
    mode = [*mode[:_CHARACTERS], list(mode[_CHARACTERS])]
    mode[_LOCAL_FLAGS] &= ~(termios.ICANON | termios.ECHO)
    mode[_LOCAL_FLAGS] |= termios.ISIG
    mode[_CHARACTERS][termios.VMIN] = 1
    mode[_CHARACTERS][termios.VTIME] = 0
    return mode
