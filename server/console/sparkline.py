"""A series of numbers, drawn with block characters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

_BLOCKS = " ▁▂▃▄▅▆▇█"
_LEVELS = len(_BLOCKS) - 1  # per row


def draw(
    values: Sequence[float], *, width: int, rows: int = 1, stretched: bool = False
) -> list[str]:
    """Draw the series as columns that end at the right edge; more values than columns are averaged.

    Fewer values leave the left side free, or are stretched to fill it. What is not finite leaves
    a gap.
    """
    if stretched and 0 < len(values) < width:
        values = [values[column * len(values) // width] for column in range(width)]
    return list(_drawn(tuple(values), width, rows)) if width > 0 and rows > 0 else []


@lru_cache(maxsize=64)
def _drawn(values: tuple[float, ...], width: int, rows: int) -> list[str]:
    """Draw it once: the past changes once a second, the screen is redrawn more often."""
    columns = _averaged(values, width)
    finite = [value for value in columns if math.isfinite(value)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 0.0)
    heights = [_height(value, low, high, rows * _LEVELS) for value in columns]
    return [_row(heights, row * _LEVELS).rjust(width) for row in reversed(range(rows))]


def _averaged(values: Sequence[float], width: int) -> list[float]:
    size = len(values)
    if size <= width:
        return list(values)
    edges = [column * size // width for column in range(width + 1)]
    return [
        math.fsum(values[left:right]) / (right - left)
        if all(map(math.isfinite, values[left:right]))
        else math.nan
        for left, right in pairwise(edges)
    ]


def _height(value: float, low: float, high: float, levels: int) -> int:
    if not math.isfinite(value):
        return 0
    span = high - low
    if span == 0 or not math.isfinite(span):
        return levels // 2
    return 1 + round((value - low) / span * (levels - 1))  # the lowest still shows


def _row(heights: list[int], floor: int) -> str:
    top = floor + _LEVELS
    return "".join(
        [
            " " if height <= floor else "█" if height >= top else _BLOCKS[height - floor]
            for height in heights
        ]
    )
