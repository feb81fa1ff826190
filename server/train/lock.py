"""A lock for many readers or one writer; a waiting writer goes before new readers."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


class ReadWriteLock:
    """Guards something that many may read at once and one may change.

    The rules:
    - Readers share; a writer is alone.
    - Writer preference: while a writer waits, no new reader comes in, so no writer starves.
    - Each release wakes whoever may go next, under the same mutex that waiters sleep on, so that
      no wake-up is lost.
    - It is not reentrant: whoever holds it must not ask for it again.
    """

    def __init__(self) -> None:
        mutex = threading.Lock()
        self._readers_may_go = threading.Condition(mutex)
        self._writer_may_go = threading.Condition(mutex)
        self._readers = 0
        self._writers_waiting = 0
        self._writing = False
        self._read_wait_s = 0.0
        self._write_wait_s = 0.0

    @property
    def read_wait_s(self) -> float:
        """Seconds that readers have waited, all together."""
        return self._read_wait_s

    @property
    def write_wait_s(self) -> float:
        """Seconds that writers have waited, all together."""
        return self._write_wait_s

    @contextmanager
    def read(self) -> Iterator[None]:
        """Hold the lock together with other readers."""
        began = time.perf_counter()
        with self._readers_may_go:
            while self._writing or self._writers_waiting:
                self._readers_may_go.wait()
            self._readers += 1
            self._read_wait_s += time.perf_counter() - began
        try:
            yield
        finally:
            with self._readers_may_go:
                self._readers -= 1
                self._wake_next()

    @contextmanager
    def write(self) -> Iterator[None]:
        """Hold the lock alone."""
        began = time.perf_counter()
        with self._writer_may_go:
            self._writers_waiting += 1
            try:
                while self._writing or self._readers:
                    self._writer_may_go.wait()
                self._writing = True
                self._write_wait_s += time.perf_counter() - began
            finally:
                self._writers_waiting -= 1
                if not self._writing:
                    self._wake_next()  # interrupted: who waited for this writer may go
        try:
            yield
        finally:
            with self._writer_may_go:
                self._writing = False
                self._wake_next()

    def _wake_next(self) -> None:
        """Wake a writer if one waits and may go, else all readers."""
        if self._writers_waiting:
            if not self._readers:
                self._writer_may_go.notify()
        else:
            self._readers_may_go.notify_all()
