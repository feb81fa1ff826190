"""Charts of an agent's past, each a pure function from a series to lines."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.segment import Segment

from server.console import figures, grid, sparkline, theme
from server.console.grid import PADDING, Band, Cell, whole
from server.console.line import Line, exact
from server.stats import AgentView, Snapshot

_AXIS = 8  # columns for what the top and the bottom stand for
_LEAST_ROWS = 3  # of a chart with its time below
_COLUMN = 38  # least width of a chart
_AGE = "age_s"
_MARK = "▲"


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


def bands(
    agent: AgentView,
    charts: Sequence[Chart],
    width: int,
    height: int,
    changes: Sequence[float] = (),
) -> list[Band]:
    """Lay charts out in columns and rows; where there is no room, the last ones are left out.

    Each change of a live setting, given by its age in seconds, is marked below them.
    """
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
            _cell(agent, chart, room - PADDING, size, changes)
            for chart, room in zip(shown, widths, strict=True)
        )
        drawn.append(Band(cells, widths, size))
    return drawn


def row(
    agent: AgentView, charts: Sequence[Chart], width: int, rows: int, changes: Sequence[float]
) -> list[Band]:
    """Lay as many charts side by side as there is room for; none without rows."""
    shown = charts[: max(1, min(3, width // _COLUMN))]
    return bands(agent, shown, width, rows + 1, changes) if rows else []


def changes(snapshot: Snapshot) -> list[float]:
    """Give the ages of the newest changes of live settings, in seconds."""
    return [snapshot.time_s - then for then in snapshot.changed_s]


def past(agent: AgentView, figure: str) -> Sequence[float]:
    """Give a figure's history, oldest first."""
    return agent.history.get(figure, ())


def _cell(agent: AgentView, chart: Chart, width: int, rows: int, changes: Sequence[float]) -> Cell:
    value = getattr(agent, chart.figure)
    now = figures.MISSING if value is None else chart.text(value)
    lines = _lines(agent, chart, width, rows, changes)
    return Cell(chart.title, lines, note=now, note_style=theme.STRONG)


def _lines(
    agent: AgentView, chart: Chart, width: int, rows: int, changes: Sequence[float]
) -> list[Line]:
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
        lines.append(_time(agent.history[_AGE], room, changes))
    return [exact(line, width) for line in lines]


def _time(ages: Sequence[float], width: int, changes: Sequence[float]) -> Line:
    """Write the time below a chart, oldest first, with a mark at every change."""
    text = f"{figures.age(ages[0])} ago".ljust(max(0, width - 3)) + "now"
    marked = set()
    for age in changes:
        point = next((number for number, old in enumerate(ages) if old <= age), len(ages) - 1)
        column = point * width // len(ages)
        if age <= ages[0] and text[column : column + 1] == " ":
            marked.add(column)
    line: Line = []
    at = 0
    for column in sorted(marked):
        line += [Segment(text[at:column], theme.QUIET), Segment(_MARK, theme.CAUTION)]
        at = column + 1
    return [*line, Segment(text[at:width], theme.QUIET)]


def missing(title: str, width: int, height: int) -> list[Band]:
    """Say that there is nothing to draw yet."""
    text: Line = [Segment("No agent yet: the first client brings one.", theme.QUIET)]
    return [whole(Cell(title, [text]), width, max(1, height - 1))]
