"""Figures from known events."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.stats import Event, EventLog, Rate, Recent, Share


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_rate_is_taken_over_a_real_window() -> None:
    clock = Clock()
    rate = Rate(5.0, clock=clock)
    assert rate.update(0) == 0.0
    for second in range(1, 11):
        clock.now += 1.0
        got = rate.update(second * 200)
        assert got == pytest.approx(200.0)
    for _ in range(5):  # the counter stands still: the rate falls, it does not jump
        clock.now += 1.0
        got = rate.update(2000)
    assert got == pytest.approx(0.0)


def test_a_rate_is_not_one_over_the_last_interval() -> None:
    clock = Clock()
    rate = Rate(5.0, clock=clock)
    rate.update(0)
    for count in (100, 100, 100, 100, 500):
        clock.now += 1.0
        got = rate.update(count)
    assert got == pytest.approx(100.0)


def test_a_share_is_that_of_the_window_and_nothing_where_nothing_happened() -> None:
    clock = Clock()
    share = Share(5.0, clock=clock)
    assert share.update(0, 0) is None
    for second in range(1, 7):
        clock.now += 1.0
        got = share.update(second, 4 * second)
    assert got == 0.25
    for second in range(1, 7):  # from now on every one counts
        clock.now += 1.0
        got = share.update(6 + 4 * second, 24 + 4 * second)
    assert got == 1.0
    for _ in range(7):
        clock.now += 1.0
        got = share.update(30, 48)
    assert got is None


@given(st.lists(st.floats(0, 10), min_size=1, max_size=60))
def test_percentiles_are_those_of_the_last_values(values: list[float]) -> None:
    recent = Recent(16)
    for value in values:
        recent.add(value)
    got = recent.percentiles(50, 99)
    assert got == pytest.approx(tuple(np.percentile(values[-16:], (50, 99))))


def test_no_values_no_percentiles() -> None:
    assert Recent(4).percentiles(50) is None


def test_the_log_keeps_the_newest_and_tells_who_listens() -> None:
    log, heard = EventLog(size=3), []
    log.listen(lambda event: heard.append(event.text))
    for number in range(5):
        log.add(f"event {number}", "warning")
    assert [event.text for event in log.newest(2)] == ["event 3", "event 4"]
    assert len(log.newest(99)) == 3
    assert heard == [f"event {number}" for number in range(5)]
    assert isinstance(log.newest(1)[0], Event)
