"""Charts of an agent's past, each a pure function from a series to lines."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.segment import Segment

from server.console import figures, grid, sparkline, theme
from server.console.grid import PADDING, Band, Cell, whole
from server.console.line import Line, exact, spread
from server.stats import AgentView

_AXIS = 8  # columns for what the top and the bottom stand for
_LEAST_ROWS = 3  # of a chart with its time below
_COLUMN = 38  # least width of a chart
_AGE = "age_s"


@dataclass(frozen=True, slots=True)
class Chart:
    """One figure with a past: its name, and how its values are written."""

    title: str
    figure: str  # of an AgentView
    text: Callable[[float], str]


LEARNING = (
    Chart("mean return", "return_mean", figures.points),
    Chart("loss", "loss", figures.real),
    Chart("Q mean", "q_mean", figures.real),
    Chart("gradient norm", "gradient_norm", figures.real),
    Chart("epsilon", "epsilon", figures.share),
    Chart("learning rate", "learning_rate", lambda value: f"{value:.2g}"),
)
LATENCY = (
    Chart("p99 ms", "latency_p99_ms", figures.milliseconds),
    Chart("p50 ms", "latency_p50_ms", figures.milliseconds),
    Chart("frames/s", "frames_per_s", figures.rate),
    Chart("steps/s", "steps_per_s", figures.rate),
    Chart("replay ratio", "replay_ratio", figures.rate),
)


def bands(agent: AgentView, charts: Sequence[Chart], width: int, height: int) -> list[Band]:
    """Lay charts out in columns and rows; where there is no room, the last ones are left out."""
    columns = max(1, min(3, width // _COLUMN))
    bands_wanted = -(-len(charts) // columns)
    fitting = max(1, min(bands_wanted, height // (_LEAST_ROWS + 1)))
    rows, spare = divmod(height - fitting, fitting)
    drawn = []
    for number in range(fitting):
        shown = charts[number * columns : (number + 1) * columns]
        widths = grid.widths(width, *[1] * len(shown))
        size = max(1, rows + (number < spare))
        cells = tuple(
            _cell(agent, chart, room - PADDING, size)
            for chart, room in zip(shown, widths, strict=True)
        )
        drawn.append(Band(cells, widths, size))
    return drawn


def row(agent: AgentView, charts: Sequence[Chart], width: int, rows: int) -> list[Band]:
    """Lay as many charts side by side as there is room for; none without rows."""
    shown = charts[: max(1, min(3, width // _COLUMN))]
    return bands(agent, shown, width, rows + 1) if rows else []


def past(agent: AgentView, figure: str) -> Sequence[float]:
    """Give a figure's history, oldest first."""
    return agent.history.get(figure, ())


def _cell(agent: AgentView, chart: Chart, width: int, rows: int) -> Cell:
    value = getattr(agent, chart.figure)
    now = figures.MISSING if value is None else chart.text(value)
    return Cell(chart.title, _lines(agent, chart, width, rows), note=now, note_style=theme.STRONG)


def _lines(agent: AgentView, chart: Chart, width: int, rows: int) -> list[Line]:
    values = past(agent, chart.figure)
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return [[Segment("nothing yet", theme.QUIET)]]
    tall = rows >= _LEAST_ROWS
    size = rows - 1 if tall else rows
    room = max(1, width - _AXIS)
    labels = [""] * size
    labels[0] = chart.text(max(finite))
    if size > 1:
        labels[-1] = chart.text(min(finite))
    # From edge to edge: the time below begins with the first point.
    drawn = sparkline.draw(values, width=room, rows=size, stretched=True)
    lines: list[Line] = [
        [Segment(blocks, theme.CHART), Segment(f" {label}", theme.QUIET)]
        for blocks, label in zip(drawn, labels, strict=True)
    ]
    if tall:
        oldest = figures.age(agent.history[_AGE][0])
        ends = spread([Segment(f"{oldest} ago", theme.QUIET)], [Segment("now", theme.QUIET)], room)
        lines.append(ends)
    return [exact(line, width) for line in lines]


def missing(title: str, width: int, height: int) -> list[Band]:
    """Say that there is nothing to draw yet."""
    text: Line = [Segment("No agent yet: the first client brings one.", theme.QUIET)]
    return [whole(Cell(title, [text]), width, max(1, height - 1))]
