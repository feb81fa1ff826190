"""The layout: how many rows each part of the screen gets."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto


class Part(Enum):
    """One part of the screen, in its order from top to bottom."""

    FIGURES = auto()  # what the agent in full view does
    HISTORY = auto()  # its replay and its returns
    CHARTS = auto()  # how its figures went, where there is room to spare
    AGENTS = auto()  # the other agents
    CLIENTS = auto()  # the clients, or how to connect one
    EVENTS = auto()


FIGURES_ROWS = 6
_ALL = 1_000_000
_LEAST = {Part.CHARTS: 5}  # rows below which a part is not worth drawing


def share_out(budget: int, wishes: Iterable[tuple[Part, int]]) -> dict[Part, int]:
    """Grant wishes for rows in their order; a part's first row also costs the rule above it."""
    rows = dict.fromkeys(Part, 0)
    for part, wanted in wishes:
        rule = 0 if rows[part] else 1
        more = min(wanted - rows[part], budget - rule)
        if more >= _LEAST.get(part, 1):
            rows[part] += more
            budget -= more + rule
    return rows


def wishes(*, agents: int, clients: int, hints: int, events_apart: bool) -> list[tuple[Part, int]]:
    """Say what is worth a row, the most important first.

    The counts are rows: of agents, of clients with their titles, of hints where there is no client.
    Events that share a band with the clients ask for nothing.
    """
    wanted = [(Part.FIGURES, FIGURES_ROWS), (Part.HISTORY, 4)] if agents else []
    wanted += [
        (Part.CLIENTS, hints or min(clients, 4)),
        (Part.AGENTS, min(agents - 1, 2)),
        (Part.EVENTS, 3 if events_apart else 0),
        (Part.CLIENTS, min(clients, 8)),
        (Part.HISTORY, 6 if agents else 0),
        (Part.AGENTS, agents - 1),
        (Part.CLIENTS, clients),
        (Part.HISTORY, 8 if agents else 0),
        (Part.EVENTS, 8 if events_apart else 0),
        (Part.CHARTS, 12 if agents else 0),
        (Part.EVENTS if events_apart else Part.CLIENTS, _ALL),
    ]
    return wanted
