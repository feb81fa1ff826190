"""The roster: a row for each client, and one for each agent beside the one in full view."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.segment import Segment
from rich.style import Style

from server.console import figures, theme
from server.console.line import Line, squeeze, stacked_bar
from server.console.table import Column, fitted
from server.stats import AgentView, ClientView

_LATE_S = 5.0  # without a frame: paused, or in trouble
_LOST_S = 30.0


def clients(views: Sequence[ClientView], width: int, rows: int, marked: str = "") -> list[Line]:
    """List the first clients under their column titles, in as many lines as there are rows."""
    table = fitted(_CLIENT_COLUMNS, width)
    return [table.header(marked), *(table.line(view) for view in views[: max(0, rows - 1)])]


def ordered(views: Sequence[ClientView], order: int, *, reverse: bool) -> tuple[ClientView, ...]:
    """Sort the clients; figures have the largest first unless the order is turned round."""
    key = ORDERS[order % len(ORDERS)].key
    if key is None:
        return tuple(reversed(views)) if reverse else tuple(views)
    return tuple(sorted(views, key=key, reverse=reverse))


def agents(views: Sequence[AgentView], width: int, rows: int) -> list[Line]:
    """List the first agents, one line each."""
    table = fitted(_AGENT_COLUMNS, width)
    return [table.line(view) for view in views[:rows]]


def _seen(view: ClientView) -> str:
    return "now" if view.seen_s < 1.0 else figures.age(view.seen_s)


def _seen_style(view: ClientView) -> Style:
    if view.seen_s < _LATE_S:
        return theme.QUIET
    return theme.CAUTION if view.seen_s < _LOST_S else theme.BAD


def _name(view: ClientView, width: int) -> Line:
    return [Segment(squeeze(figures.clean(view.name), width), theme.PLAIN)]


def _shares(view: ClientView) -> str:
    return f"{100 * view.policy_share:.0f}/{100 * view.expert_share:.0f}"


def _mix(view: ClientView, width: int) -> Line:
    rest = 1.0 - view.policy_share - view.expert_share
    shares = (
        (view.policy_share, theme.POLICY),
        (view.expert_share, theme.EXPERT),
        (rest, theme.EXPLORATION),
    )
    return stacked_bar(shares, width)


def _info(view: ClientView, width: int) -> Line:
    line: Line = []
    for name, value in view.info.items():
        text = f"{value:g}" if isinstance(value, float) else str(value)
        line += [
            Segment(f"{figures.clean(str(name))} ", theme.QUIET),
            Segment(f"{figures.clean(text)}  ", theme.PLAIN),
        ]
    return line


@dataclass(frozen=True, slots=True)
class Order:
    """A way to sort the clients: the column it goes by, and what is compared."""

    title: str
    key: Callable[[ClientView], Any] | None = None  # None: as they came


ORDERS: tuple[Order, ...] = (
    Order(""),
    Order("client", lambda view: view.name),
    Order("game", lambda view: view.game),
    Order("frames/s", lambda view: -view.frames_per_s),
    Order("episode", lambda view: -view.episodes),
    Order("return", lambda view: -view.episode_return),
    Order("last", lambda view: math.inf if view.last_return is None else -view.last_return),
    Order("ms", lambda view: math.inf if view.latency_ms is None else -view.latency_ms),
    Order("seen", lambda view: -view.seen_s),
)

_CLIENT_COLUMNS: tuple[Column[ClientView], ...] = (
    Column("client", 10, lambda _: "", grow=14, right=False, draw=_name),
    Column("game", 7, lambda view: figures.clean(view.game), grow=9, right=False, from_width=46),
    Column("frames/s", 8, lambda view: figures.rate(view.frames_per_s), lambda _: theme.STRONG),
    Column("episode", 7, lambda view: figures.count(view.episodes), from_width=54),
    Column("return", 7, lambda view: figures.points(view.episode_return)),
    Column("last", 7, lambda view: figures.points(view.last_return), from_width=84),
    Column("pol/exp%", 8, _shares, lambda _: theme.POLICY, from_width=64),
    Column("ms", 5, lambda view: figures.milliseconds(view.latency_ms), from_width=70),
    Column("seen", 5, _seen, _seen_style, grow=1),
    Column("info", 9, lambda _: "", right=False, grow=40, from_width=76, draw=_info),
    Column(
        " mix",
        13,
        lambda _: "",
        right=False,
        from_width=128,
        draw=lambda view, width: [Segment(" "), *_mix(view, width - 1)],
    ),
    Column(
        " address",
        22,
        lambda view: " " + figures.clean(view.address),
        lambda _: theme.QUIET,
        right=False,
        from_width=106,
    ),
)

_AGENT_COLUMNS: tuple[Column[AgentView], ...] = (
    Column(
        "", 12, lambda view: figures.clean(view.name), lambda _: theme.COIN, grow=12, right=False
    ),
    Column(
        "",
        9,
        lambda view: figures.clean(view.state),
        lambda view: theme.STATES.get(view.state, theme.QUIET),
        grow=10,
        right=False,
    ),
    Column("", 13, lambda view: f"{figures.short(view.frames_per_s)} frames/s"),
    Column("", 12, lambda view: f"{figures.rate(view.steps_per_s)} steps/s", from_width=56),
    Column("", 13, lambda view: f"loss {figures.real(view.loss)}", from_width=90),
    Column("", 12, lambda view: f"epsilon {figures.share(view.epsilon)}", from_width=104),
    Column(
        "",
        19,
        lambda view: (
            f"replay {figures.short(view.replay_size)}/{figures.short(view.replay_capacity)}"
        ),
        from_width=124,
    ),
    Column("", 14, lambda view: f"return {figures.points(view.return_mean)}", from_width=70),
)
