"""Shared memory: values are whole or absent, however writer and reader meet."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.train.mailbox import Mailbox, MailboxError, mapped, shared_file

ROOT = Path(__file__).parents[2]


def make(most_bytes: int) -> Mailbox:
    return Mailbox(memoryview(bytearray(Mailbox.size_bytes(most_bytes))))


@given(st.lists(st.binary(max_size=100), max_size=10))
def test_the_newest_value_wins(values: list[bytes]) -> None:
    box = make(100)
    assert (box.number, box.read()) == (0, b"")
    for number, value in enumerate(values, start=1):
        assert box.post(value[:40], memoryview(value)[40:]) == number
        assert (box.number, box.read()) == (number, value)


def test_what_does_not_fit_is_refused_and_the_value_before_stays() -> None:
    box = make(64)
    box.post(b"good")
    with pytest.raises(MailboxError, match="65 bytes does not fit into 64"):
        box.post(bytes(65))
    assert box.read() == b"good"


def test_a_writer_that_dies_half_way_leaves_the_value_before(tmp_path: Path) -> None:
    box = make(64)
    box.post(b"one")
    box.post(b"two")

    class Killed(BaseException):
        pass

    class Part(bytes):
        """Dies when it is about to be copied, after the part before it was."""

        def __len__(self) -> int:
            if self.asked:
                raise Killed
            self.asked = True
            return 3

        asked = False

    with pytest.raises(Killed):
        box.post(b"half of", Part(b"end"))
    assert (box.number, box.read()) == (2, b"two")
    box.post(b"three")
    assert (box.number, box.read()) == (3, b"three")


WRITER = """
import sys
from server.train.mailbox import Mailbox, mapped
box = Mailbox(mapped(int(sys.argv[1])))
print("ready", flush=True)
for number in range(1, 20_001):
    box.post(number.to_bytes(8, "little") * (1000 + number % 7))
"""


def test_a_reader_in_another_process_never_sees_half(tmp_path: Path) -> None:
    descriptor = shared_file(tmp_path, Mailbox.size_bytes(8 * 1100))
    box = Mailbox(mapped(descriptor))
    command = [sys.executable, "-c", WRITER, str(descriptor)]
    seen = 0
    with subprocess.Popen(
        command, cwd=ROOT, pass_fds=[descriptor], stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout is not None and writer.stdout.readline() == b"ready\n"
        while True:
            ended = writer.poll() is not None
            value = box.read()
            if value:
                number = int.from_bytes(value[:8], "little")
                assert value == value[:8] * (1000 + number % 7)
                assert number >= seen
                seen = number
            if ended:
                break
    assert writer.returncode == 0
    assert seen == box.number == 20_000
    os.close(descriptor)
    assert list(tmp_path.iterdir()) == []
