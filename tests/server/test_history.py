"""The past of an agent's figures: every second once, the older the coarser."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.console import demo
from server.history import AGE, FIGURES, TIER, History

VIEW = demo.snapshot().agents[0]


def filled(values: list[float | None]) -> History:
    history = History()
    for value in values:
        history.add(replace(VIEW, loss=value))
    return history


def test_the_newest_seconds_are_kept_one_by_one() -> None:
    series = filled([float(second) for second in range(10)]).series()
    assert series["loss"] == tuple(float(second) for second in range(10))
    assert series[AGE] == tuple(9.5 - second for second in range(10))
    assert set(series) == {AGE, *FIGURES}


def test_older_seconds_share_a_point() -> None:
    series = filled([float(second) for second in range(TIER + 2)]).series()
    assert series["loss"][:2] == (0.5, 2.0)  # the mean of 0 and 1, then 2 alone
    assert series[AGE][0] == TIER + 1  # the middle of two seconds


@settings(max_examples=20)
@given(st.integers(1, 3000))
def test_no_second_is_lost_or_counted_twice(seconds: int) -> None:
    history = filled([7.0] * seconds)
    series = history.series()
    spans = [2**number for number, tier in enumerate(history._tiers) for _ in tier]
    assert sum(spans) == seconds
    assert series[AGE][0] + spans[-1] / 2 == seconds
    assert list(series[AGE]) == sorted(series[AGE], reverse=True)
    assert set(series["loss"]) == {7.0}
    assert len(series["loss"]) <= (TIER + 1) * (1 + math.log2(max(2, seconds)))


def test_what_is_not_known_leaves_the_mean_alone() -> None:
    history = filled([None] + [4.0] * (TIER + 1))
    assert history.series()["loss"][0] == 4.0
    assert math.isnan(filled([None]).series()["loss"][0])
    assert History().series()["loss"] == ()


def test_means_are_those_of_the_seconds() -> None:
    series = filled([float(second % 2) for second in range(200)]).series()
    assert series["loss"][0] == pytest.approx(0.5)
