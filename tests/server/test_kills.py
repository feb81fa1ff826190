"""SIGKILL of the server at any moment: what was answered is kept, and the run goes on by itself.

``COINOP_KILLS=50 python -m pytest tests/server/test_kills.py`` is the long form.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from live import Server

from bench.witness import AGENT, Witness, check

KILLS = int(os.environ.get("COINOP_KILLS", "4"))
CAPACITY = 5000  # small: the ring goes round between two kills
CLIENTS = 3
OPTIONS = (
    *("--replay-capacity", str(CAPACITY), "--min-replay", "200", "--batch-size", "32"),
    *("--sampling", "priority", "--save-interval-s", "1"),
)


@pytest.mark.timeout(120 + 15 * KILLS)
def test_whatever_was_answered_outlives_kills_at_random_moments(
    start: Callable[..., Server], tmp_path: Path
) -> None:
    dice = random.Random(7)
    replay = tmp_path / "runs" / "default" / "agents" / AGENT / "replay.bin"
    witnesses = [Witness(number) for number in range(CLIENTS)]
    stored = 0
    for kill in range(KILLS):
        server = start(*OPTIONS)
        port = server.port
        if kill:
            server.wait_for(rf"agent {AGENT} (resumed: {stored:,} frames|has no checkpoint)")
        for witness in witnesses:
            witness.turn_to(port)
        _wait_until_all_play(witnesses)
        time.sleep(dice.uniform(0.0, 2.5))  # into a save, a step, an append: anywhere
        server.process.send_signal(signal.SIGKILL)
        for witness in witnesses:
            witness.turn_to(None)
        server.process.wait()
        head = check(replay, CAPACITY, witnesses)
        assert head > stored
        stored = head
    for witness in witnesses:
        witness.finish()
    last = start(*OPTIONS)
    last.wait_for(f"agent {AGENT} resumed: {stored:,} frames")
    assert last.stop() == 0


def _wait_until_all_play(witnesses: list[Witness]) -> None:
    before = [witness.answered for witness in witnesses]
    deadline = time.monotonic() + 30
    while any(w.answered <= b for w, b in zip(witnesses, before, strict=True)):
        assert time.monotonic() < deadline, "the clients are not served"
        time.sleep(0.02)
