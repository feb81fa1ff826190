"""A tape: what all clients said and were told, message by message with times, in one file.

A tape is a sequence of msgpack values, each behind its length as on the wire: first a map that says
what it is, then for each message ``[time_s, connection, kind, payload]``. What would help to guess
a token (challenges, proofs and their random numbers) is never written.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from enum import IntEnum
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgpack

from server.net import wire
from server.net.listener import Connection, Listener

FORMAT = 1
_ENTRY_BYTES = 64  # room for what an entry holds beside its message
_MOST_BYTES = (1 << 28) + _ENTRY_BYTES  # the longest message that a server can be set to take
_CHUNK_BYTES = 1 << 20
_BLANKED = {"hello": "nonce", "welcome": "proof"}
_LEFT_OUT = ("challenge", "proof")


class TapeError(Exception):
    """A tape that cannot be written or read; the message names it and the fix."""


class Kind(IntEnum):
    """What an entry tells of."""

    OPENED = 0
    SAID = 1  # by the client
    TOLD = 2  # by the server
    CLOSED = 3


class Entry(NamedTuple):
    """One thing that happened on one connection."""

    time_s: float  # since the tape began
    connection: int
    kind: Kind
    payload: bytes  # a message without its length; empty where nothing was said


class Tape:
    """The file, open for writing; when it cannot be written any more, that is told once."""

    def __init__(self, file: IO[bytes], path: Path, on_problem: Callable[[str], None]) -> None:
        self._file: IO[bytes] | None = file
        self._path = path
        self._on_problem = on_problem
        self._began_s = time.monotonic()
        self._connections = 0
        self._write(
            {
                "coinop": "tape",
                "format": FORMAT,
                "version": wire.VERSION,
                "time": round(time.time(), 3),
            }
        )

    @classmethod
    def create(cls, path: Path, on_problem: Callable[[str], None]) -> Tape:
        """Begin a tape in a new file; one that is there is never overwritten."""
        try:
            file = path.open("xb", buffering=_CHUNK_BYTES)
        except FileExistsError as error:
            raise TapeError(f"record = {path} is there already; name another file") from error
        except OSError as error:
            raise TapeError(f"cannot write record = {path}: {error.strerror}") from error
        return cls(file, path, on_problem)

    def opened(self) -> int:
        """Note a new connection and give its number on this tape."""
        self._connections += 1
        self.note(self._connections, Kind.OPENED)
        return self._connections

    def note(self, connection: int, kind: Kind, payload: bytes = b"") -> None:
        """Write down what happened on a connection just now."""
        told = without_secrets(payload)
        if told is not None:
            time_s = round(time.monotonic() - self._began_s, 6)
            self._write([time_s, connection, int(kind), told])

    def flush(self) -> None:
        """Hand everything so far to the system."""
        if self._file is not None:
            try:
                self._file.flush()
            except OSError as error:
                self._give_up(error)

    def close(self) -> None:
        """Finish the file."""
        self.flush()
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, value: Any) -> None:
        if self._file is None:
            return
        data: bytes = msgpack.packb(value)
        try:
            self._file.write(len(data).to_bytes(wire.HEADER_BYTES, "little") + data)
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        """Stop recording; the games go on."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):  # it would write the same bytes again
                file.close()
        self._on_problem(f"recording to {self._path} has stopped: {error.strerror}")


class TapedConnection(Connection):
    """A connection whose messages go onto a tape, in both directions."""

    _direct = False

    def __init__(self, listener: Listener, tape: Tape) -> None:
        super().__init__(listener)
        self._tape = tape
        self._number = tape.opened()
        # What it says is cut into messages here as well: chunks mean nothing.
        self._said = wire.Splitter(listener.limits.message_bytes)

    def data_received(self, data: bytes) -> None:
        """Take bytes from the client."""
        for payload in self._said.feed(data):
            self._tape.note(self._number, Kind.SAID, payload)
        super().data_received(data)

    def connection_lost(self, error: Exception | None) -> None:
        """End a connection."""
        self._tape.note(self._number, Kind.CLOSED)
        super().connection_lost(error)

    def write(self, data: bytes) -> None:
        """Send a message, unless the connection is on its way out."""
        if not self.closing:
            self._tape.note(self._number, Kind.TOLD, data[wire.HEADER_BYTES :])
            super().write(data)


def without_secrets(payload: bytes) -> bytes | None:
    """Give a message as it may be kept; None for one that may not."""
    try:
        value = wire.unpack(payload)
    except wire.WireError:
        return payload  # nothing of ours: a bug report wants to see it
    if type(value) is not dict:
        return payload
    kind = value.get("type")
    if kind in _LEFT_OUT:
        return None
    blank = _BLANKED.get(kind) if isinstance(kind, str) else None
    if blank is None:
        return payload
    told: bytes = msgpack.packb({**value, blank: b""})
    return told


def read(path: Path, on_damage: Callable[[str], None]) -> Iterator[Entry]:
    """Give what is on a tape, in order; ``on_damage`` learns of an end that was cut off."""
    values = _values(path, on_damage)
    about = next(values, None)
    if not isinstance(about, dict) or about.get("coinop") != "tape":
        raise TapeError(f"{path} is no tape; make one with --record FILE")
    if (about.get("format"), about.get("version")) != (FORMAT, wire.VERSION):
        raise TapeError(
            f"{path} is of another version (format {about.get('format')}, protocol "
            f"{about.get('version')}); this one reads format {FORMAT}, protocol {wire.VERSION}"
        )
    for value in values:
        try:
            time_s, connection, kind, payload = value
            yield Entry(float(time_s), int(connection), Kind(kind), bytes(payload))
        except (TypeError, ValueError) as error:
            raise TapeError(f"{path} is damaged: {error}") from error


def _values(path: Path, on_damage: Callable[[str], None]) -> Iterator[Any]:
    splitter = wire.Splitter(_MOST_BYTES)
    try:
        with path.open("rb") as file:
            while data := file.read(_CHUNK_BYTES):
                for payload in splitter.feed(data):
                    yield wire.unpack(payload)
                if splitter.fault is not None:
                    raise splitter.fault
    except OSError as error:
        raise TapeError(f"cannot read {path}: {error.strerror}") from error
    except wire.WireError as error:
        raise TapeError(f"{path} is damaged: {error}") from error
    if splitter.buffered_bytes:
        on_damage(f"the end of {path} was cut off; everything before it is played")
