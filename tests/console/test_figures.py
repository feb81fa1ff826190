"""Figures as people read them."""

from __future__ import annotations

import math

import pytest

from server.console import figures


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (figures.count(1_234_567), "1,234,567"),
        (figures.short(999), "999"),
        (figures.short(4_321), "4.3k"),
        (figures.short(123_456), "123k"),
        (figures.short(999_999), "1.0M"),
        (figures.short(2.5e9), "2.5G"),
        (figures.short(5_000_000, 0), "5M"),
        (figures.few(-0.4249), "-0.42"),
        (figures.few(8.4), "8.40"),
        (figures.few(-18.34), "-18.3"),
        (figures.few(250.4), "250"),
        (figures.few(-12_345), "-12k"),
        (figures.few(None), "–"),
        (figures.rate(81.23), "81.2"),
        (figures.rate(1_003.4), "1,003"),
        (figures.real(0.0123), "0.01230"),
        (figures.real(1234.0), "1234"),
        (figures.real(None), "–"),
        (figures.real(math.nan), "nan"),
        (figures.points(-18.34), "-18.3"),
        (figures.points(1e12), "1e+12"),
        (figures.percent(0.474), "47%"),
        (figures.milliseconds(2.14), "2.1"),
        (figures.milliseconds(0.0213), "0.02"),
        (figures.milliseconds(0.0), "0.0"),
        (figures.milliseconds(None), figures.MISSING),
        (figures.duration(85), "00:01:25"),
        (figures.duration(90_061), "1d 01:01:01"),
        (figures.duration(math.inf), "–"),
        (figures.age(3.21), "3.2 s"),
        (figures.age(100), "100 s"),
        (figures.age(300), "5 min"),
        (figures.age(7_200), "2 h"),
        (figures.age(200_000), "2 d"),
        (figures.age(None), "–"),
        (figures.clock(math.nan), "--:--:--"),
        (figures.clean("a\x1b[2Jb\nc"), "a?[2Jb?c"),
        (figures.clean("e\u0301"), "é"),
    ],
)
def test_figures(text: str, expected: str) -> None:
    assert text == expected
