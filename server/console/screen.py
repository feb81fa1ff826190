"""The screen: a pure function from a Snapshot and a Look to lines of the terminal's size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment

from server.console import figures, grid, overview, panels, theme, views
from server.console.grid import PADDING, Band, Cell, whole
from server.console.line import Line, exact, overlay
from server.console.look import Look, View
from server.console.overview import most_active
from server.stats import Snapshot

__all__ = ["Screen", "most_active", "render"]

_MIN_WIDTH, _MIN_HEIGHT = 40, 10  # below that, the screen is cut
_OUTER_ROWS = 4  # upper border, headline, lower border, footer

# What fills the rows between the headline and the footer.
_VIEWS: dict[View, Callable[[Snapshot, Look, int, int], list[Band]]] = {
    View.OVERVIEW: overview.bands,
    View.CLIENTS: views.clients,
    View.LEARNING: views.learning,
    View.LATENCY: views.latency,
    View.EVENTS: views.events,
    View.SETTINGS: views.settings,
    View.CLUSTER: views.cluster,
}


@dataclass(frozen=True, slots=True)
class Screen:
    """The lines of one screen, as a rich renderable."""

    lines: tuple[Line, ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Give rich the pieces; no line end after the last line, or a terminal would scroll."""
        for number, line in enumerate(self.lines):
            if number:
                yield Segment.line()
            yield from line


def render(snapshot: Snapshot, look: Look, *, width: int, height: int) -> Screen:
    """Draw a snapshot as a screen of exactly this size."""
    lines = _lines(snapshot, look, max(width, _MIN_WIDTH), max(height, _MIN_HEIGHT))
    if width < _MIN_WIDTH:
        lines = [exact(line, width) for line in lines]
    return Screen(tuple(lines[:height]))


def _lines(snapshot: Snapshot, look: Look, width: int, height: int) -> list[Line]:
    bands = [
        _headline(snapshot, look, width),
        *_VIEWS[look.view](snapshot, look, width, height - _OUTER_ROWS),
    ]
    lines = grid.draw([band for band in bands if band.rows], width)
    lines += [exact([], width)] * (height - 1 - len(lines))
    last = panels.footer(look.view, width)
    if look.prompt is not None:
        last = panels.prompt(look.prompt, width)
    lines = [*lines[: height - 1], last]
    return overlay(lines, _help(width, height - 2)) if look.help_open else lines


def _headline(snapshot: Snapshot, look: Look, width: int) -> Band:
    agent = most_active(snapshot.agents)
    cell = Cell(
        title="Coinop",
        lines=[panels.headline(snapshot, agent, width - 2 - PADDING)],
        note=f"{figures.clean(snapshot.run)} · {figures.clean(snapshot.address)}",
        title_style=theme.COIN,
    )
    return whole(cell, width, 1)


def _help(width: int, rows: int) -> list[Line]:
    lines, width = panels.keys(width, rows - 2)
    cell = Cell("keys", lines, title_style=theme.COIN)
    return grid.draw([whole(cell, width, len(lines))], width)
