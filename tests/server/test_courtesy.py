"""Training in a process of its own rests as much as the event loop waits for a core."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from live import Server, Steady, until

from server.courtesy import Courtesy, Runqueue
from server.stats import Governed
from tools.control import Line, find

NOTHING = Governed("", "", 1.0)
Start = Callable[..., Server]

# A server whose event loop seems to wait for a core for 0.4 of its time, while a file exists.
WAITING = """
import os, sys, time, main
from server import courtesy
courtesy.Runqueue.waited_s = lambda self: (
    0.4 * time.monotonic() if os.path.exists(os.environ["WAITS"]) else 0.4 * 2**20
)
sys.exit(main.main(sys.argv[1:]))
"""

needs_schedstat = pytest.mark.skipif(
    not Path("/proc/self/schedstat").exists(), reason="this kernel counts no waiting"
)


def shares(waits: list[float], every_s: float = 0.5) -> list[float]:
    """Give the share after each look, of looks that each found so much of the time waited for."""
    now = waited = 0.0
    courtesy = Courtesy(lambda: waited, lambda: now)
    found = [courtesy.look()]
    for wait in waits:
        now += every_s
        waited += wait * every_s
        found.append(courtesy.look())
    return found


def test_who_does_not_wait_takes_nothing_from_training() -> None:
    assert shares([0.0, 0.05, 0.09, 0.0]) == [1.0] * 5


def test_training_rests_for_the_time_that_is_waited_for() -> None:
    assert shares([0.3] * 6)[1:] == pytest.approx([0.7] * 6)


def test_it_keeps_half_of_its_time_whatever_happens() -> None:
    assert shares([0.9] * 6)[-1] == 0.5


def test_the_mean_of_four_looks_counts_and_what_is_past_is_forgotten() -> None:
    found = shares([0.4, 0.4, 0.4, 0.4, 0.0, 0.0, 0.0, 0.0])
    assert found[4:] == pytest.approx([0.6, 0.7, 0.8, 1.0, 1.0])


def test_who_shares_a_core_with_its_only_client_waits_by_choice() -> None:
    now = waited = 0.0
    courtesy = Courtesy(lambda: waited, lambda: now)
    courtesy.look()
    now, waited = 0.5, 0.2
    assert courtesy.look(shares_core=True) == 1.0 and courtesy.view() is None
    now, waited = 1.0, 0.4
    assert courtesy.look() == 0.6


def test_a_clock_that_stands_still_is_no_reason_to_rest() -> None:
    courtesy = Courtesy(lambda: 1.0, lambda: 7.0)
    assert [courtesy.look(), courtesy.look()] == [1.0, 1.0]


@needs_schedstat
def test_the_kernel_tells_how_long_a_thread_waited_for_its_core() -> None:
    """Beside somebody who computes on the same core it waits."""
    core = min(os.sched_getaffinity(0))
    rival = subprocess.Popen(
        [sys.executable, "-c", f"import os; os.sched_setaffinity(0, {{{core}}})\nwhile True: pass"]
    )
    told: list[float] = []

    def compete() -> None:
        os.sched_setaffinity(0, {core})  # of this thread alone
        runqueue = Runqueue()
        before_s, end_s = runqueue.waited_s(), time.monotonic() + 0.5
        while time.monotonic() < end_s:
            pass
        told.append(runqueue.waited_s() - before_s)

    try:
        thread = threading.Thread(target=compete)
        thread.start()
        thread.join()
    finally:
        rival.kill()
        rival.wait()
    assert told[0] > 0.02


def test_a_count_that_cannot_be_read_for_now_stays_what_it_was(
    tmp_path: Path,
) -> None:
    runqueue = Runqueue()
    runqueue._file = tmp_path / "schedstat"
    runqueue._file.write_text("5 2000000000 7")
    assert runqueue.waited_s() == 2.0
    runqueue._file.unlink()
    assert runqueue.waited_s() == 2.0


def test_where_nobody_counts_nothing_was_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "get_native_id", lambda: 0)
    assert Runqueue().waited_s() == 0.0


@pytest.mark.parametrize(("trainer", "share"), [("process", 0.6), ("thread", None)])
def test_a_server_gives_way_to_itself_where_the_learner_has_a_process(
    start: Start, tmp_path: Path, trainer: str, share: float | None
) -> None:
    waits = tmp_path / "waits"
    waits.touch()
    eager = ("--min-replay", "50", "--batch-size", "8", "--trainer", trainer)
    server = start(*eager, script=WAITING, WAITS=str(waits))
    player = Steady(server.port)
    with Line(find(tmp_path / "runs", "")) as line:
        until(lambda: any(agent.steps > 8 for agent in line.status().agents))
        if share is None:
            assert line.status().governed is None
        else:
            until(lambda: (line.status().governed or NOTHING).training_share == share)
            assert line.status().governed == Governed("a core", "giving way", share)
            waits.unlink()
            until(lambda: line.status().governed is None)
        steps = line.status().agents[0].steps
        until(lambda: line.status().agents[0].steps > steps + 100)
        assert line.status().governed is None
    player.finish()
    assert server.stop() == 0, server.text
