"""The keyboard of a terminal: each key at once, without echo, and the old mode back at the end."""

from __future__ import annotations

import atexit
import codecs
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
# CSI `ESC [ … final`, SS3 `ESC O x`, or `ESC x`.
_PIECE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1bO.|\x1b[^\[O\x1b]|.", re.DOTALL)
_CUT_SHORT = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|O)?$")  # the rest may still be on its way
_NAMES = {
    "\x1b": "escape",
    "\r": "enter",
    "\n": "enter",
    "\t": "tab",
    "\x7f": "backspace",
    "\x08": "backspace",
    **{f"\x1b{kind}{final}": name for kind in "[O" for final, name in (
        ("A", "up"), ("B", "down"), ("C", "right"), ("D", "left"), ("H", "home"), ("F", "end"),
    )},
    "\x1b[5~": "pageup",
    "\x1b[6~": "pagedown",
}  # fmt: skip


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


def read_bytes(fd: int) -> bytes:
    """Read what was typed so far, without waiting; raise EOFError once the terminal is gone."""
    # Not O_NONBLOCK: the flag would be shared with stdout and with the shell.
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    if not poll.poll(0):
        return b""
    try:
        data = os.read(fd, _READ_BYTES)
    except OSError as error:
        raise EOFError("the terminal is gone") from error
    if not data:
        raise EOFError("the terminal is gone")
    return data


class Decoder:
    """Turns what a terminal sends into keys: characters, and names such as "up" and "enter".

    A sequence may come in pieces (ssh); what could be the start of one is kept until more comes,
    or until ``finish`` says that nothing will.
    """

    def __init__(self) -> None:
        self._text = codecs.getincrementaldecoder("utf-8")("ignore")
        self._waiting = ""

    @property
    def waits(self) -> bool:
        """Whether the start of a sequence, or a lone escape, is kept."""
        return bool(self._waiting)

    def feed(self, data: bytes) -> list[str]:
        """Give the keys that are whole."""
        text = self._waiting + self._text.decode(data)
        cut = _CUT_SHORT.search(text)
        end = cut.start() if cut else len(text)
        self._waiting = text[end:]
        return _keys(text[:end])

    def finish(self) -> list[str]:
        """Give what was kept: a lone escape is a key, the start of a sequence is none."""
        waiting, self._waiting = self._waiting, ""
        return ["escape"] if waiting == "\x1b" else []


def _keys(text: str) -> list[str]:
    keys = (_NAMES.get(piece, piece) for piece in _PIECE.findall(text))
    return [key for key in keys if key.isprintable()]


def _single_key(mode: list[Any]) -> list[Any]:
    mode = [*mode[:_CHARACTERS], list(mode[_CHARACTERS])]
    mode[_LOCAL_FLAGS] &= ~(termios.ICANON | termios.ECHO)
    mode[_LOCAL_FLAGS] |= termios.ISIG
    mode[_CHARACTERS][termios.VMIN] = 1
    mode[_CHARACTERS][termios.VTIME] = 0
    return mode
