"""The event loop's thread asks for a short slice of the core, and nothing else about it changes."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import pytest

from server import urgency


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shares cores out in such slices")
def test_only_the_slice_of_the_calling_thread_changes() -> None:
    found: dict[str, tuple[int, int, str]] = {}

    def note_usual() -> None:
        found["usual"] = state()

    def claim() -> None:
        os.nice(3)
        assert urgency.claim()
        found["claimer"] = state()
        heir = threading.Thread(target=lambda: found.update(heir=state()))
        heir.start()
        heir.join()

    for target in (note_usual, claim):  # in threads: a niceness cannot be taken back
        thread = threading.Thread(target=target)
        thread.start()
        thread.join()
    usual, claimer, heir = found["usual"], found["claimer"], found["heir"]
    assert claimer[:2] == heir[:2] == (os.SCHED_OTHER, usual[1] + 3)
    if usual[2]:  # this kernel tells
        assert (claimer[2], heir[2]) == ("100000", usual[2])


def state() -> tuple[int, int, str]:
    """Give the calling thread's policy, niceness and, where it can be seen, slice."""
    sched = Path(f"/proc/self/task/{threading.get_native_id()}/sched")
    lines = sched.read_text().splitlines() if sched.exists() else []
    slices = [line.split()[-1] for line in lines if line.startswith("se.slice")]
    policy = os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK
    return policy, os.getpriority(os.PRIO_PROCESS, 0), "".join(slices)


@pytest.mark.parametrize(("system", "machine"), [("darwin", "arm64"), ("linux", "riscv64")])
def test_elsewhere_it_does_nothing(
    system: str, machine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(urgency.platform, "machine", lambda: machine)
    assert urgency.claim() is False
