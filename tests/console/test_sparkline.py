"""Sparklines: as wide as asked, as high as the values."""

from __future__ import annotations

import math

from server.console.sparkline import draw


def test_values_rise_from_the_lowest_to_the_highest_block() -> None:
    assert draw(range(8), width=8) == ["▁▂▃▄▅▆▇█"]


def test_few_values_end_at_the_right_edge() -> None:
    assert draw([0, 1], width=4) == ["  ▁█"]


def test_many_values_are_averaged() -> None:
    assert draw([0, 0, 5, 5, 9, 9], width=3) == ["▁▅█"]


def test_rows_stack() -> None:
    assert draw([0, 8, 15], width=3, rows=2) == [" ▁█", "▁██"]


def test_a_flat_series_and_what_is_not_finite() -> None:
    assert draw([3, 3], width=2) == ["▄▄"]
    assert draw([0, math.nan, 1, math.inf], width=4) == ["▁ █ "]
    assert draw([], width=3) == ["   "]
    assert draw([1], width=0) == []
