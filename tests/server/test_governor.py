"""The governor: training gives way as much as needed, no more, and takes back what is free."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.governor import Governor, Hold, Look


def look(
    fps: float = 2000.0, latency_ms: float = 0.5, lag_ms: float = 0.1, clients: int = 16
) -> Look:
    return Look(fps, clients, np.full(500, latency_ms / 1e3), np.full(50, lag_ms / 1e3))


def test_what_is_held_costs_nothing() -> None:
    governor = Governor(fps=0, p99_ms=8)
    for _ in range(20):
        assert governor.decide(look(latency_ms=4)) == 1.0
    assert governor.state is Hold.HOLDING
    assert governor.view().goal == "8 ms p99"


def test_a_miss_cuts_in_proportion_and_never_to_nothing() -> None:
    governor = Governor(fps=0, p99_ms=8)
    assert governor.decide(look(latency_ms=9.9, lag_ms=0.1)) == pytest.approx(0.8)  # 10 of 8 ms
    assert governor.state is Hold.MISSED
    assert governor.decide(look(latency_ms=80)) == pytest.approx(0.4)  # by half at most
    for _ in range(50):
        governor.decide(look(latency_ms=80))
    assert 0 < governor.share < 0.05
    assert governor.view().state == "missed"


def test_lag_counts_like_latency() -> None:
    governor = Governor(fps=0, p99_ms=8)
    governor.decide(look(latency_ms=1, lag_ms=9))
    assert governor.state is Hold.MISSED


def test_in_between_nothing_changes() -> None:
    governor = Governor(fps=0, p99_ms=10)
    governor.decide(look(latency_ms=20))
    share = governor.share
    assert governor.decide(look(latency_ms=8.5)) == share < 1


@given(st.floats(2.0, 50.0), st.floats(1.0, 7.0))
def test_it_settles_where_the_goal_is_held_and_comes_back(slope: float, base: float) -> None:
    """A made-up machine whose delay grows with training's share."""
    governor = Governor(fps=0, p99_ms=10)
    for _ in range(100):
        governor.decide(look(latency_ms=base + slope * governor.share, lag_ms=0))
    best = min(1.0, (10 - base) / slope)
    assert 0.55 * best <= governor.share <= 1.15 * best + 0.02
    for _ in range(40):  # the load is gone: so is the need to give way
        governor.decide(look(latency_ms=0.1))
    assert governor.share == 1.0


def test_frames_are_held_while_clients_wait_for_us() -> None:
    governor = Governor(fps=2000, p99_ms=0)
    # 16 clients that wait 8 ms for each reply can make 2,000 frames/s: here they make 1,000.
    assert governor.decide(look(fps=1000, latency_ms=8)) == pytest.approx(0.5)
    assert governor.state is Hold.MISSED
    assert governor.decide(look(fps=2100, latency_ms=4)) > 0.5
    assert governor.state is Hold.HOLDING


def test_training_does_not_give_way_to_clients_that_ask_for_less() -> None:
    governor = Governor(fps=2000, p99_ms=0)
    assert governor.decide(look(fps=500, latency_ms=0.5)) == 1.0  # they wait 2 % of their time
    assert governor.state is Hold.HOLDING


def test_nobody_there_is_no_miss() -> None:
    governor = Governor(fps=2000, p99_ms=8)
    assert governor.decide(Look(0.0, 0, np.zeros(0), np.zeros(0))) == 1.0
    assert governor.view().goal == "2,000 fps, 8 ms p99"
