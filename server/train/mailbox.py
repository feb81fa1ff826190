"""Values of one writer, in memory that two processes share: a reader never sees half of one.

Each mailbox keeps two copies. The writer fills the older one and then publishes its number, so a
reader of the newest copy is disturbed only if two more are written meanwhile, and notices that. A
writer that dies half-way has spoiled a copy that nobody was pointed to.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

_HEADER_BYTES = 64
_TRIES = 1000  # a reader meets a writer once or twice, never a thousand times


class MailboxError(RuntimeError):
    """A value that does not fit, or that cannot be had."""


class Mailbox:
    """The newest value that was posted, with its number."""

    def __init__(self, memory: memoryview) -> None:
        self._half = (len(memory) - _HEADER_BYTES) // 2
        numbers: Any = np.frombuffer(memory[:_HEADER_BYTES], np.int64)
        self._numbers = numbers  # 0: being written, 1: newest that is whole, 2 and 3: lengths
        self._copies = [
            memory[_HEADER_BYTES + half * self._half : _HEADER_BYTES + (half + 1) * self._half]
            for half in (0, 1)
        ]

    @staticmethod
    def size_bytes(most_bytes: int) -> int:
        """Give the memory that a mailbox needs for values of that length."""
        return _HEADER_BYTES + 2 * (-(-most_bytes // 64) * 64)

    @property
    def number(self) -> int:
        """Number of the newest value; 0 before the first."""
        return int(self._numbers[1])

    def post(self, *parts: bytes | memoryview) -> int:
        """Publish a value, given in parts; give its number."""
        length = sum(len(part) for part in parts)
        if length > self._half:
            raise MailboxError(f"a value of {length} bytes does not fit into {self._half}")
        number = self.number + 1
        half = number % 2
        self._numbers[0] = number
        at = 0
        for part in parts:
            self._copies[half][at : at + len(part)] = part
            at += len(part)
        self._numbers[2 + half] = length
        self._numbers[1] = number  # published: the copy above is whole
        return number

    def read(self) -> bytes:
        """Give a copy of the newest value; empty before the first."""
        for _ in range(_TRIES):
            number = self.number
            half = number % 2
            value = bytes(self._copies[half][: int(self._numbers[2 + half])])
            if self._numbers[0] < number + 2:
                return value
        raise MailboxError("the writer is faster than a reader can copy")


def shared_file(directory: Path, size_bytes: int) -> int:
    """Give the descriptor of a file without a name: it goes when the last process lets it go."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("coinop")
    else:  # macOS
        with tempfile.TemporaryFile(dir=directory) as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, size_bytes)
    return descriptor


def mapped(descriptor: int) -> memoryview:
    """Map a shared file."""
    return memoryview(mmap.mmap(descriptor, os.fstat(descriptor).st_size))
