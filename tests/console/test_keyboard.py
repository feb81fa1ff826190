"""The keyboard on a real pseudo-terminal: modes set and restored, keys read, arrows ignored."""

from __future__ import annotations

import contextlib
import os
import termios
from collections.abc import Iterator

import pytest

from server.console.keyboard import Decoder, Keyboard, read_bytes


@pytest.fixture
def pty() -> Iterator[tuple[int, int]]:
    """Give both ends of a terminal: the person's and the program's."""
    person, program = os.openpty()
    yield person, program
    for fd in (person, program):
        with contextlib.suppress(OSError):  # the test closed it
            os.close(fd)


def local_flags(fd: int) -> int:
    flags: int = termios.tcgetattr(fd)[3]
    return flags


def test_mode_is_set_and_restored(pty: tuple[int, int]) -> None:
    before = termios.tcgetattr(pty[1])
    with Keyboard(pty[1]):
        flags = local_flags(pty[1])
        assert not flags & (termios.ICANON | termios.ECHO)
        assert flags & termios.ISIG
        assert termios.tcgetattr(pty[1])[1] == before[1]  # output as it was: "\n" still returns
    assert termios.tcgetattr(pty[1]) == before


def test_mode_is_restored_after_an_exception(pty: tuple[int, int]) -> None:
    before = termios.tcgetattr(pty[1])
    with pytest.raises(RuntimeError), Keyboard(pty[1]):
        raise RuntimeError
    assert termios.tcgetattr(pty[1]) == before


def test_entering_and_restoring_twice_is_harmless(pty: tuple[int, int]) -> None:
    before = termios.tcgetattr(pty[1])
    keyboard = Keyboard(pty[1])
    with keyboard, keyboard:
        pass
    keyboard.restore()
    assert termios.tcgetattr(pty[1]) == before


def test_restore_survives_a_closed_terminal(pty: tuple[int, int]) -> None:
    with Keyboard(pty[1]):
        os.close(pty[1])


def test_what_is_no_terminal_is_left_alone() -> None:
    reader, writer = os.pipe()
    with Keyboard(reader):
        os.write(writer, b"q")
        assert read_bytes(reader) == b"q"
    os.close(reader)
    os.close(writer)


def test_reading_never_waits(pty: tuple[int, int]) -> None:
    person, program = pty
    with Keyboard(program):
        assert read_bytes(program) == b""
        os.write(person, b"s\x1b[A\x1bOBq")
        assert read_bytes(program) == b"s\x1b[A\x1bOBq"
        assert read_bytes(program) == b""


def test_a_closed_terminal_is_the_end(pty: tuple[int, int]) -> None:
    with Keyboard(pty[1]):
        os.close(pty[0])
        with pytest.raises(EOFError):
            read_bytes(pty[1])


@pytest.mark.parametrize(
    ("data", "keys"),
    [
        (b"qq?", ["q", "q", "?"]),
        (b"s\x1b[A\x1bOBq", ["s", "up", "down", "q"]),
        (b"\x1b[5~\x1b[6~", ["pageup", "pagedown"]),
        (b"\x1b\x1b[A", ["escape", "up"]),
        (b"\x1b[1;5Cq", ["q"]),  # Ctrl-Right
        (b"\x1b[15~", []),  # F5
        (b"\x1bOP", []),  # F1
        (b"\x1bq", []),  # Alt-q
        (b"\x1b", ["escape"]),
        (b"\x1b[1;", []),  # cut short
        (b"\x1b[200~q\x1b[201~", ["q"]),
        (b"\x04\t\r\n\x7f", ["tab", "enter", "enter", "backspace"]),
        ("é?".encode(), ["é", "?"]),
        (b"\xffq", ["q"]),
    ],
)
def test_decode(data: bytes, keys: list[str]) -> None:
    decoder = Decoder()
    assert decoder.feed(data) + decoder.finish() == keys


def test_a_sequence_in_pieces_is_one_key() -> None:
    decoder = Decoder()
    assert decoder.feed(b"q\x1b") == ["q"] and decoder.waits
    assert decoder.feed(b"[") == [] and decoder.waits
    assert decoder.feed(b"Aq") == ["up", "q"] and not decoder.waits
    letter = "é".encode()
    assert decoder.feed(letter[:1]) == [] and decoder.feed(letter[1:]) == ["é"]
