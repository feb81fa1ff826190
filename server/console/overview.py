"""The first view: everything at a glance, as much of it as the terminal has room for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.segment import Segment

from server.console import charts, grid, panels, roster, theme
from server.console.grid import PADDING, Band, Cell, whole
from server.console.layout import Part, share_out, wishes
from server.console.line import Line
from server.console.look import Look
from server.stats import AgentView, Event, Snapshot

_THREE_PANELS_FROM = 72  # columns of the terminal, here and below
_FOUR_PANELS_FROM = 104
_FIVE_PANELS_FROM = 140
_SIDE_BY_SIDE_FROM = 150


def bands(snapshot: Snapshot, look: Look, width: int, height: int) -> list[Band]:
    """Share out the rows below the headline."""
    agent = most_active(snapshot.agents)
    side_by_side = width >= _SIDE_BY_SIDE_FROM
    wanted = wishes(
        agents=len(snapshot.agents),
        clients=1 + len(snapshot.clients) if snapshot.clients else 0,
        hints=0 if snapshot.clients else len(_welcome(snapshot, width - 2 - PADDING)),
        events_apart=not side_by_side,
    )
    rows = share_out(height, wanted)
    drawn: list[Band] = []
    if agent:
        drawn += [
            _figures(snapshot, agent, width, rows[Part.FIGURES]),
            _history(agent, width, rows[Part.HISTORY]),
            *charts.row(agent, charts.LEARNING, width, rows[Part.CHARTS], charts.changes(snapshot)),
            _others(snapshot, agent, width, rows[Part.AGENTS]),
        ]
    shown = seen(snapshot, look)
    if side_by_side:
        widths = grid.widths(width, 3, 2)
        size = rows[Part.CLIENTS]
        cells = (_clients(snapshot, widths[0], size), _events(shown, widths[1], size))
        return [*drawn, Band(cells, widths, size)]
    clients, events = rows[Part.CLIENTS], rows[Part.EVENTS]
    return [
        *drawn,
        whole(_clients(snapshot, width - 2, clients), width, clients),
        whole(_events(shown, width - 2, events), width, events),
    ]


def most_active(agents: Sequence[AgentView]) -> AgentView | None:
    """Choose the agent to show in full: the one with the most frames per second."""
    return max(agents, key=lambda agent: agent.frames_per_s, default=None)


def seen(snapshot: Snapshot, look: Look) -> tuple[Event, ...]:
    """Give the events that were not cleared away, newest last."""
    return tuple(event for event in snapshot.events if not event.time_s < look.cleared_s)


def _figures(snapshot: Snapshot, agent: AgentView, width: int, rows: int) -> Band:
    makers: dict[str, Callable[[int], list[Line]]] = {
        "throughput": lambda room: panels.throughput(agent, room),
        "learning": lambda room: panels.learning(agent, room),
        "play": lambda room: panels.play(snapshot, agent, room),
        "exploration": lambda room: panels.exploration(snapshot, agent, room),
        "latency": lambda room: panels.latency(agent, room),
        "contention": lambda room: panels.contention(snapshot, agent, room),
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
    four = ["throughput", "learning", "exploration", "latency"]
    return four if width < _FIVE_PANELS_FROM else [*four, "contention"]


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
    return whole(cell, width, rows)


def _clients(snapshot: Snapshot, width: int, rows: int) -> Cell:
    awaited = panels.starting(snapshot.awaited)
    if not snapshot.clients:
        return Cell("no clients", _welcome(snapshot, width - PADDING), awaited)
    size = len(snapshot.clients)
    lines = roster.clients(snapshot.clients, width - PADDING, rows)
    notes = (_more(size - rows + 1), awaited)
    return Cell(f"clients {size}", lines, ", ".join(note for note in notes if note))


def _welcome(snapshot: Snapshot, width: int) -> list[Line]:
    if snapshot.awaited:  # nobody needs to connect one by hand
        return [[], [Segment(f"{panels.starting(snapshot.awaited)} ...", theme.STRONG)], []]
    return [[], *panels.hints(snapshot.connect_hints, width), []]


def _events(shown: Sequence[Event], width: int, rows: int) -> Cell:
    newest = shown[-rows:] if rows else ()
    return Cell("events", panels.events(newest, width - PADDING, rows))


def _more(hidden: int) -> str:
    return f"+{hidden} more" if hidden > 0 else ""
