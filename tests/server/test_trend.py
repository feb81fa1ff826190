"""Return windows: mean and slope over the last frames, checked against all episodes at once."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.stats import ReturnWindow
from server.trend import WINDOWS, Trend


def test_mean_and_slope_of_known_episodes() -> None:
    trend = Trend(100_000)
    assert trend.view(0) == ReturnWindow(100_000, 0, None, None)
    trend.add(10_000, 3.0)
    assert trend.view(10_000) == ReturnWindow(100_000, 1, 3.0, None)
    trend.add(20_000, 4.0)  # one more in 10,000 frames: 100 in a million
    trend.add(30_000, 5.0)
    window = trend.view(40_000)
    assert (window.episodes, window.mean) == (3, 4.0)
    assert window.slope == pytest.approx(100.0)


def test_what_ended_before_the_window_counts_no_more() -> None:
    trend = Trend(100_000)
    trend.add(500, 100.0)
    trend.add(60_500, 1.0)
    trend.add(80_500, 3.0)
    assert trend.view(99_999).episodes == 3
    assert trend.view(100_000).mean == 2.0  # 100,000 frames later all but the first
    assert trend.view(100_000).slope == pytest.approx(100.0)
    assert trend.view(160_000).episodes == 1
    assert trend.view(180_000) == ReturnWindow(100_000, 0, None, None)
    trend.add(500_000, 7.0)  # in the place of a bucket that is long gone
    assert trend.view(500_000).mean == 7.0


episodes = st.lists(
    st.tuples(st.integers(1, 30_000), st.floats(-1e4, 1e4, allow_nan=False)), min_size=2
)


@given(episodes, st.sampled_from(WINDOWS))
def test_a_window_is_what_a_fit_over_all_its_episodes_gives(
    lengths: list[tuple[int, float]], frames: int
) -> None:
    trend, at, seen = Trend(frames), 0, []
    for length, value in lengths:
        at += length
        trend.add(at, value)
        seen.append((at, value))
    size = frames // 100
    inside = [(x, y) for x, y in seen if x // size > at // size - 100]
    window = trend.view(at)
    assert window.episodes == len(inside)
    x, y = np.array(inside).T
    assert window.mean == pytest.approx(y.mean(), abs=1e-6)
    if len(inside) > 1:
        spread = ((x - x.mean()) ** 2).sum()
        expected = ((x - x.mean()) * (y - y.mean())).sum() / spread * 1e6
        if spread / frames**2 > 1e-6:
            assert window.slope == pytest.approx(expected, rel=1e-4, abs=1e-2)


def test_it_is_kept_as_json_and_goes_on() -> None:
    trend, again = Trend(100_000), Trend(100_000)
    for number in range(400):
        trend.add(number * 500, float(number % 17))
    again.restore(json.loads(json.dumps(trend.to_plain())))
    assert again.view(200_000) == trend.view(200_000)
    for one in (trend, again):
        one.add(200_400, 99.0)
    assert again.view(201_000) == trend.view(201_000)
    assert 90 < len(trend.to_plain()) <= 100  # however many episodes there were
