"""The read/write lock: who shares, who is alone, who goes first, and that nobody is forgotten."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

import pytest

from server.train.lock import ReadWriteLock

PATIENCE_S = 20.0


def begin(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.001)


def test_readers_share() -> None:
    lock, inside = ReadWriteLock(), threading.Barrier(3)

    def read() -> None:
        with lock.read():
            inside.wait(PATIENCE_S)  # passes only if all three are inside at once

    threads = [begin(read) for _ in range(3)]
    for thread in threads:
        thread.join(PATIENCE_S)
    assert not inside.broken
    assert not any(thread.is_alive() for thread in threads)


@pytest.mark.parametrize("holder", ["read", "write"])
def test_a_writer_is_alone(holder: str) -> None:
    lock, entered = ReadWriteLock(), threading.Event()

    def write() -> None:
        with lock.write():
            entered.set()

    with getattr(lock, holder)():
        thread = begin(write)
        assert not entered.wait(0.05)
    assert entered.wait(PATIENCE_S)
    thread.join(PATIENCE_S)


def test_a_waiting_writer_goes_before_new_readers() -> None:
    lock, order = ReadWriteLock(), []

    def write() -> None:
        with lock.write():
            order.append("writer")

    def read() -> None:
        with lock.read():
            order.append("reader")

    with lock.read():
        writer = begin(write)
        until(lambda: lock._writers_waiting == 1)
        reader = begin(read)
        time.sleep(0.05)
        assert order == []  # the reader could share, but does not overtake
    writer.join(PATIENCE_S)
    reader.join(PATIENCE_S)
    assert order == ["writer", "reader"]


def test_an_error_inside_lets_go() -> None:
    lock = ReadWriteLock()
    for way in (lock.read, lock.write):
        with pytest.raises(KeyError), way():
            raise KeyError("inside")
    with lock.write(), pytest.raises(AttributeError):
        raise AttributeError
    with lock.read():
        pass


def test_a_writer_that_gives_up_lets_waiting_readers_in(monkeypatch: pytest.MonkeyPatch) -> None:
    lock, entered = ReadWriteLock(), threading.Event()

    def read() -> None:
        with lock.read():
            entered.set()

    def interrupted(timeout: float | None = None) -> bool:
        begin(read)
        lock._writer_may_go.release()  # as a wait does: the reader comes, and waits
        until(lambda: len(lock._readers_may_go._waiters) == 1)  # type: ignore[attr-defined]
        lock._writer_may_go.acquire()
        raise KeyboardInterrupt

    monkeypatch.setattr(lock._writer_may_go, "wait", interrupted)
    with lock.read(), pytest.raises(KeyboardInterrupt), lock.write():
        raise AssertionError("the lock was not free")
    assert entered.wait(PATIENCE_S)


def test_waits_are_counted() -> None:
    lock = ReadWriteLock()
    with lock.write():
        reader = begin(lambda: lock.read().__enter__())
        time.sleep(0.05)
    reader.join(PATIENCE_S)
    assert 0.03 < lock.read_wait_s < PATIENCE_S
    assert lock.write_wait_s < 0.03


def test_nobody_is_forgotten_and_nothing_is_torn() -> None:
    """Many threads in any order: each write is whole for each reader, and all come to an end."""
    lock, pair, torn = ReadWriteLock(), [0, 0], []

    def work(seed: int) -> None:
        dice = random.Random(seed)
        for _ in range(400):
            if dice.random() < 0.4:
                with lock.write():
                    pair[0] += 1
                    if dice.random() < 0.1:
                        time.sleep(0.0001)
                    pair[1] += 1
            else:
                with lock.read():
                    first = pair[0]
                    if dice.random() < 0.1:
                        time.sleep(0.0001)
                    torn.append(first != pair[1])

    threads = [begin(lambda seed=seed: work(seed)) for seed in range(8)]  # type: ignore[misc]
    for thread in threads:
        thread.join(PATIENCE_S)
    assert not any(thread.is_alive() for thread in threads)
    assert not any(torn)
    assert pair[0] == pair[1] == 8 * 400 - len(torn)
