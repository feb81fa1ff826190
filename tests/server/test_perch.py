"""The event loop's place: with a lone client that stays on its core, and anywhere otherwise."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from live import Client, Server, until

from server.fleet import place, room
from server.net import wire
from server.perch import Perch, cores

ALL = cores()
pytestmark = pytest.mark.skipif(len(ALL) < 2, reason="one core only: there is nowhere to go")
CORE = max(ALL) if ALL else 0
OTHER = min(ALL) if ALL else 0


@pytest.fixture(autouse=True)
def _back() -> Iterator[None]:
    yield
    os.sched_setaffinity(0, ALL)


def looks(perch: Perch, client: object | None, core: int | None, times: int = 4) -> None:
    for _ in range(times):
        perch.look(client, core)


def test_a_client_that_stays_is_followed_and_left_when_it_goes() -> None:
    perch, client = Perch(), object()
    perch.look(client, CORE)
    assert os.sched_getaffinity(0) == ALL  # it may be there by chance
    looks(perch, client, CORE)
    assert os.sched_getaffinity(0) == {CORE}
    perch.look(None, None)
    assert os.sched_getaffinity(0) == ALL


def test_a_client_that_moves_away_is_not_followed_again() -> None:
    perch, client = Perch(), object()
    looks(perch, client, CORE)
    perch.look(client, OTHER)
    assert os.sched_getaffinity(0) == ALL
    looks(perch, client, OTHER, 10)
    assert os.sched_getaffinity(0) == ALL
    looks(perch, object(), OTHER, 5)  # another client has a chance of its own
    assert os.sched_getaffinity(0) == {OTHER}


def test_a_core_that_is_not_ours_and_an_unknown_one_are_left_alone() -> None:
    perch = Perch()
    looks(perch, object(), max(ALL) + 1000)
    looks(perch, object(), None)
    assert os.sched_getaffinity(0) == ALL


def test_a_thread_that_was_started_meanwhile_gets_all_cores() -> None:
    perch, client, done = Perch(), object(), threading.Event()
    looks(perch, client, CORE)
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        assert thread.native_id is not None
        assert os.sched_getaffinity(thread.native_id) == {CORE}  # inherited
        perch.look(client, CORE)
        assert os.sched_getaffinity(thread.native_id) == ALL
        assert os.sched_getaffinity(0) == {CORE}
    finally:
        done.set()
        thread.join()


def test_a_lone_emulator_has_one_core_and_several_have_all() -> None:
    assert room(1, ALL) == {CORE}
    assert room(2, ALL) == ALL
    assert room(1, frozenset()) == frozenset()
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        niceness = os.getpriority(os.PRIO_PROCESS, 0) + 7
        place(sleeper.pid, niceness, room(1, ALL))
        assert os.sched_getaffinity(sleeper.pid) == {CORE}
        assert os.getpriority(os.PRIO_PROCESS, sleeper.pid) == niceness
    finally:
        sleeper.kill()
        sleeper.wait()


@pytest.mark.skipif(not hasattr(socket, "SO_INCOMING_CPU"), reason="the kernel does not tell")
def test_a_real_server_sits_with_its_only_emulator(tmp_path: Path) -> None:
    server = Server(tmp_path, "--launch", "gym:CartPole-v1=1")
    try:
        loop = server.process.pid
        until(lambda: os.sched_getaffinity(loop) == {CORE})
        until(lambda: all(os.sched_getaffinity(other) == ALL for other in others(loop)))
        second = Client(server.port)
        assert isinstance(second.hello(game="other"), wire.Welcome)
        until(lambda: os.sched_getaffinity(loop) == ALL)
        assert all(os.sched_getaffinity(other) == ALL for other in others(loop))
        second.close()
        until(lambda: os.sched_getaffinity(loop) == {CORE})
        assert server.stop() == 0
    finally:
        server.kill()


def others(pid: int) -> list[int]:
    """Give the threads of a process but for its first."""
    tasks = [int(task.name) for task in Path(f"/proc/{pid}/task").iterdir()]
    return [task for task in tasks if task != pid]
