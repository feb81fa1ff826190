"""The screen: a pure function from a Snapshot to lines of exactly the terminal's size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment

from server.console import figures, grid, panels, roster, theme
from server.console.grid import PADDING, Band, Cell
from server.console.hotkeys import HOTKEYS
from server.console.layout import Part, share_out, wishes
from server.console.line import Line, exact, overlay
from server.stats import AgentView, Snapshot

_MIN_WIDTH, _MIN_HEIGHT = 40, 10  # below that, the screen is cut
_THREE_PANELS_FROM = 72  # columns of the terminal, here and below
_FOUR_PANELS_FROM = 104
_SIDE_BY_SIDE_FROM = 150
_HELP_WIDTH = 72
_OUTER_ROWS = 4  # upper border, headline, lower border, footer


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


def render(snapshot: Snapshot, *, width: int, height: int, help_open: bool = False) -> Screen:
    """Draw a snapshot as a screen of exactly this size."""
    lines = _lines(snapshot, max(width, _MIN_WIDTH), max(height, _MIN_HEIGHT), help_open)
    if width < _MIN_WIDTH:
        lines = [exact(line, width) for line in lines]
    return Screen(tuple(lines[:height]))


def most_active(agents: Sequence[AgentView]) -> AgentView | None:
    """Choose the agent to show in full: the one with the most frames per second."""
    return max(agents, key=lambda agent: agent.frames_per_s, default=None)


def _lines(snapshot: Snapshot, width: int, height: int, help_open: bool) -> list[Line]:
    lines = grid.draw([band for band in _bands(snapshot, width, height) if band.rows], width)
    lines += [exact([], width)] * (height - 1 - len(lines))
    lines = [*lines[: height - 1], panels.footer(width)]
    return overlay(lines, _help(width)) if help_open else lines


def _bands(snapshot: Snapshot, width: int, height: int) -> list[Band]:
    agent = most_active(snapshot.agents)
    side_by_side = width >= _SIDE_BY_SIDE_FROM
    wanted = wishes(
        agents=len(snapshot.agents),
        clients=1 + len(snapshot.clients) if snapshot.clients else 0,
        hints=0 if snapshot.clients else len(_welcome(snapshot, width - 2 - PADDING)),
        events_apart=not side_by_side,
    )
    rows = share_out(height - _OUTER_ROWS, wanted)
    bands = [_headline(snapshot, agent, width)]
    if agent:
        bands += [
            _figures(snapshot, agent, width, rows[Part.FIGURES]),
            _history(agent, width, rows[Part.HISTORY]),
            _others(snapshot, agent, width, rows[Part.AGENTS]),
        ]
    if side_by_side:
        return [*bands, _clients_beside_events(snapshot, width, rows[Part.CLIENTS])]
    clients, events = rows[Part.CLIENTS], rows[Part.EVENTS]
    return [
        *bands,
        _whole(_clients(snapshot, width - 2, clients), width, clients),
        _whole(_events(snapshot, width - 2, events), width, events),
    ]


def _whole(cell: Cell, width: int, rows: int) -> Band:
    return Band((cell,), (width - 2,), rows)


def _headline(snapshot: Snapshot, agent: AgentView | None, width: int) -> Band:
    cell = Cell(
        title="Coinop",
        lines=[panels.headline(snapshot, agent, width - 2 - PADDING)],
        note=f"{figures.clean(snapshot.run)} · {figures.clean(snapshot.address)}",
        title_style=theme.COIN,
    )
    return _whole(cell, width, 1)


def _figures(snapshot: Snapshot, agent: AgentView, width: int, rows: int) -> Band:
    makers: dict[str, Callable[[int], list[Line]]] = {
        "throughput": lambda room: panels.throughput(agent, room),
        "learning": lambda room: panels.learning(agent, room),
        "play": lambda room: panels.play(snapshot, agent, room),
        "exploration": lambda room: panels.exploration(snapshot, agent, room),
        "latency": lambda room: panels.latency(snapshot, agent, room),
    }
    titles = _titles(width)
    widths = grid.widths(width, *[1] * len(titles))
    cells = (
        Cell(title, makers[title](room - PADDING))
        for title, room in zip(titles, widths, strict=True)
    )
    return Band(tuple(cells), widths, rows)


def _titles(width: int) -> list[str]:
    if width < _THREE_PANELS_FROM:
        return ["throughput", "play"]
    if width < _FOUR_PANELS_FROM:
        return ["throughput", "learning", "play"]
    return ["throughput", "learning", "exploration", "latency"]


def _history(agent: AgentView, width: int, rows: int) -> Band:
    # The first panel's edge goes on below it.
    replay = grid.widths(width, *[1] * len(_titles(width)))[0]
    returns = width - replay - 3
    cells = (
        Cell("replay", panels.replay(agent, replay - PADDING)),
        Cell("returns", panels.returns(agent, returns - PADDING, rows)),
    )
    return Band(cells, (replay, returns), rows)


def _others(snapshot: Snapshot, agent: AgentView, width: int, rows: int) -> Band:
    others = [other for other in snapshot.agents if other is not agent]
    cell = Cell(
        f"other agents {len(others)}",
        roster.agents(others, width - 2 - PADDING, rows),
        note=_more(len(others) - rows),
    )
    return _whole(cell, width, rows)


def _clients_beside_events(snapshot: Snapshot, width: int, rows: int) -> Band:
    widths = grid.widths(width, 3, 2)
    cells = (_clients(snapshot, widths[0], rows), _events(snapshot, widths[1], rows))
    return Band(cells, widths, rows)


def _clients(snapshot: Snapshot, width: int, rows: int) -> Cell:
    if not snapshot.clients:
        return Cell("no clients", _welcome(snapshot, width - PADDING))
    size = len(snapshot.clients)
    lines = roster.clients(snapshot.clients, width - PADDING, rows)
    return Cell(f"clients {size}", lines, note=_more(size - rows + 1))


def _welcome(snapshot: Snapshot, width: int) -> list[Line]:
    return [[], *panels.hints(snapshot.connect_hints, width), []]


def _events(snapshot: Snapshot, width: int, rows: int) -> Cell:
    newest = snapshot.events[-rows:] if rows else ()
    return Cell("events", panels.events(newest, width - PADDING, rows))


def _more(hidden: int) -> str:
    return f"+{hidden} more" if hidden > 0 else ""


def _help(width: int) -> list[Line]:
    width = min(width, _HELP_WIDTH)
    cell = Cell("keys", panels.keys(width - 2 - PADDING), title_style=theme.COIN)
    return grid.draw([_whole(cell, width, len(HOTKEYS))], width)
