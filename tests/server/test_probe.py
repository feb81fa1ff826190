"""The probe: it sees a busy event loop and a lock that is taken, and tells one from the other."""

from __future__ import annotations

import asyncio
import resource
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from server.probe import Probe
from server.stats import Contention

QUICK_S = 0.002


@pytest.fixture
def quick_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.0005)
    yield
    sys.setswitchinterval(before)


async def measured(seconds: float, block_s: float = 0.0) -> Contention:
    """Measure a loop that is blocked for that long again and again, outside of the lock."""
    probe = Probe(asyncio.get_running_loop().call_soon_threadsafe, interval_s=QUICK_S)
    assert probe.view() is None
    probe.start()
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        await asyncio.sleep(0.001)
        if block_s:
            time.sleep(block_s)  # so that the loop is late
    await asyncio.to_thread(probe.stop)
    found = probe.view()
    assert found is not None
    return found


def test_a_blocked_loop_lags_though_nobody_has_the_lock() -> None:
    free, blocked = asyncio.run(measured(0.6)), asyncio.run(measured(0.6, block_s=0.03))
    assert blocked.lag_p50_ms > 5 > free.lag_p50_ms
    assert blocked.lag_p50_ms <= blocked.lag_p99_ms <= blocked.lag_max_ms < 1000
    assert blocked.gil_share is not None and blocked.gil_share < 0.5


def test_a_lock_that_is_taken_is_seen(quick_switches: None) -> None:
    free = asyncio.run(measured(0.6))
    done = threading.Event()

    def busy() -> None:
        while not done.is_set():
            pass

    thread = threading.Thread(target=busy)
    thread.start()
    try:
        taken = asyncio.run(measured(0.6))
    finally:
        done.set()
        thread.join()
    assert taken.gil_share is not None and free.gil_share is not None
    assert taken.gil_share > 0.6 > free.gil_share
    assert taken.gil_wait_p99_ms is not None and free.gil_wait_mean_ms is not None
    assert taken.gil_wait_p99_ms > free.gil_wait_mean_ms
    assert taken.gil_wait_mean_ms is not None
    assert taken.gil_wait_mean_ms > 0.1  # the lock changes hands after half a millisecond


def test_where_the_kernel_does_not_tell_the_lock_is_not_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(resource, "RUSAGE_THREAD")
    found = asyncio.run(measured(0.2))
    assert found.lag_p99_ms > 0
    assert found.gil_share is None and found.gil_wait_mean_ms is found.gil_wait_p99_ms is None


def test_a_loop_that_ended_ends_the_probe() -> None:
    loop = asyncio.new_event_loop()
    probe = Probe(loop.call_soon_threadsafe, interval_s=QUICK_S)
    loop.close()
    probe.start()
    probe._thread.join(10)
    assert not probe._thread.is_alive()
    probe.stop()
