"""Learning curves as a picture: median and spread over seeds, against time and against frames."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 860, 380
_LEFT, _TOP, _GAP, _BOTTOM = 60, 56, 60, 56
_COLOURS = ("#1769aa", "#c2410c", "#4d7c0f", "#7e22ce")
_FINE = 60  # places at which a curve is drawn


@dataclass(frozen=True, slots=True)
class Point:
    """How a saved network did, and when it was saved."""

    wall_s: float
    frames: int
    steps: int
    returns: tuple[float, ...]  # of each episode

    @property
    def mean(self) -> float:
        """The mean return."""
        return statistics.fmean(self.returns)


Curve = Sequence[Point]  # one training's, in the order of time
Axis = Callable[[Point], float]
Band = list[tuple[float, float, float, float]]  # place, lowest, median, highest


def minutes(point: Point) -> float:
    """Give when a point was saved."""
    return point.wall_s / 60


def million_frames(point: Point) -> float:
    """Give after how many frames a point was saved."""
    return point.frames / 1e6


def value_at(curve: Curve, axis: Axis, place: float) -> float | None:
    """Give the mean return of the newest network at a place; None where there was none yet."""
    newest = None
    for point in curve:
        if axis(point) <= place + 1e-9:
            newest = point.mean
    return newest


def band(curves: Sequence[Curve], axis: Axis, places: Sequence[float]) -> Band:
    """Give lowest, median and highest over seeds, where every seed has a network."""
    found: Band = []
    for place in places:
        values = [value_at(curve, axis, place) for curve in curves]
        known = [value for value in values if value is not None]
        if known and len(known) == len(values):
            found.append((place, min(known), statistics.median(known), max(known)))
    return found


def svg(title: str, curves: dict[str, Sequence[Curve]], *, side: str = "mean greedy return") -> str:
    """Draw two panels: against wall time, and against frames."""
    every = [point for who in curves.values() for curve in who for point in curve]
    low, high = _nice(min(p.mean for p in every), max(p.mean for p in every))
    width = (WIDTH - 2 * _LEFT - _GAP) / 2 + _LEFT / 2
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="system-ui, sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{_LEFT}" y="22" font-size="15" font-weight="600">{escape(title)}</text>',
        *_legend(list(curves)),
    ]
    axes: list[tuple[str, Axis]] = [
        ("minutes of wall time", minutes),
        ("million frames", million_frames),
    ]
    for number, (label, axis) in enumerate(axes):
        left = _LEFT + number * (width + _GAP)
        panel = _Panel(left, width, max(axis(p) for p in every), low, high)
        parts += panel.frame(label, side if number == 0 else "")
        for colour, who in zip(_COLOURS, curves.values(), strict=False):
            reach = min(max(axis(p) for p in curve) for curve in who)
            places = [reach * place / _FINE for place in range(_FINE + 1)]
            parts += panel.curve(band(who, axis, places), colour)
    return "\n".join([*parts, "</svg>", ""])


def _legend(names: list[str]) -> list[str]:
    parts = []
    for number, (name, colour) in enumerate(zip(names, _COLOURS, strict=False)):
        x = _LEFT + 130 * number
        parts.append(f'<rect x="{x}" y="32" width="18" height="4" fill="{colour}"/>')
        parts.append(f'<text x="{x + 24}" y="38">{escape(name)}</text>')
    return parts


@dataclass(frozen=True, slots=True)
class _Panel:
    """One pair of axes."""

    left: float
    width: float
    reach: float  # of the horizontal axis
    low: float
    high: float

    def x(self, place: float) -> float:
        return self.left + self.width * place / self.reach

    def y(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return HEIGHT - _BOTTOM - share * (HEIGHT - _TOP - _BOTTOM)

    def frame(self, label: str, side: str) -> list[str]:
        """Draw grid, ticks and names."""
        bottom, right = HEIGHT - _BOTTOM, self.left + self.width
        parts = []
        for value in _ticks(self.low, self.high):
            y = self.y(value)
            parts.append(
                f'<line x1="{self.left:.1f}" x2="{right:.1f}" y1="{y:.1f}" y2="{y:.1f}" '
                'stroke="#dddddd"/>'
            )
            parts.append(
                f'<text x="{self.left - 6:.1f}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>'
            )
        for place in _ticks(0, self.reach):
            parts.append(
                f'<text x="{self.x(place):.1f}" y="{bottom + 16}" text-anchor="middle">'
                f"{place:g}</text>"
            )
        middle = self.left + self.width / 2
        parts.append(
            f'<text x="{middle:.1f}" y="{bottom + 36}" text-anchor="middle">{label}</text>'
        )
        if side:
            y = (_TOP + bottom) / 2
            parts.append(
                f'<text x="16" y="{y:.1f}" text-anchor="middle" '
                f'transform="rotate(-90 16 {y:.1f})">{side}</text>'
            )
        return parts

    def curve(self, band: Band, colour: str) -> list[str]:
        """Draw a spread and the median in it."""
        if not band:
            return []
        upper = [f"{self.x(place):.1f},{self.y(high):.1f}" for place, _, _, high in band]
        lower = [f"{self.x(place):.1f},{self.y(low):.1f}" for place, low, _, _ in reversed(band)]
        line = [f"{self.x(place):.1f},{self.y(median):.1f}" for place, _, median, _ in band]
        return [
            f'<polygon points="{" ".join(upper + lower)}" fill="{colour}" opacity="0.18"/>',
            f'<polyline points="{" ".join(line)}" fill="none" stroke="{colour}" stroke-width="2"/>',
        ]


def _nice(low: float, high: float) -> tuple[float, float]:
    step = _step(low, high)
    return (low // step) * step, (-(-high // step)) * step + (step if low == high else 0)


def _ticks(low: float, high: float) -> list[float]:
    step = _step(low, high)
    first = -(-low // step)
    return [(first + n) * step for n in range(int((high - first * step) / step + 1e-9) + 1)]


def _step(low: float, high: float) -> float:
    """Give a round distance that cuts a range into about six."""
    wanted = max(high - low, 1e-6) / 6
    power = 1.0
    while power * 10 <= wanted:
        power *= 10
    while power > wanted:
        power /= 10
    return next(power * times for times in (1, 2, 5, 10) if power * times >= wanted)
