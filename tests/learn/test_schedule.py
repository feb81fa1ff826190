"""Schedules by hand."""

from __future__ import annotations

import pytest

from server.learn.schedule import Linear


@pytest.mark.parametrize(
    ("frame", "value"), [(0, 1.0), (250, 0.775), (500, 0.55), (1000, 0.1), (10**9, 0.1), (-5, 1.0)]
)
def test_a_straight_line_that_then_stays(frame: int, value: float) -> None:
    assert Linear(1.0, 0.1, 1000).at(frame) == pytest.approx(value)
