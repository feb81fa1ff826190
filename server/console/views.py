"""The views beside the overview: each fills the rows below the headline with one subject."""

from __future__ import annotations

from rich.segment import Segment

from server.console import charts, figures, grid, panels, roster, theme
from server.console.figures import clean
from server.console.grid import PADDING, Band, Cell, whole
from server.console.line import Line
from server.console.look import Look
from server.console.overview import most_active, seen
from server.console.table import Column, fitted
from server.stats import DialView, GatewayView, LearnerView, NodeView, Snapshot

_FIGURES = 6  # rows of a panel
_LEAST_CHARTS = 4  # rows for which charts are worth drawing


def clients(snapshot: Snapshot, look: Look, width: int, height: int) -> list[Band]:
    """List every client, sorted and scrolled as the person likes."""
    rows = max(1, height - 1)
    order = roster.ORDERS[look.sort % len(roster.ORDERS)]
    ordered = roster.ordered(snapshot.clients, look.sort, reverse=look.reverse)
    first = min(look.row, max(0, len(ordered) - (rows - 1)))
    lines = roster.clients(ordered[first:], width - 2 - PADDING, rows, marked=order.title)
    shown = len(lines) - 1
    notes = (_span(first, shown, len(ordered)), panels.starting(snapshot.awaited))
    note = ", ".join(note for note in notes if note)
    return [whole(Cell(f"clients {len(ordered)}", lines, note), width, rows)]


def events(snapshot: Snapshot, look: Look, width: int, height: int) -> list[Band]:
    """List what happened, newest first from the row that was scrolled to."""
    rows = max(1, height - 1)
    shown = seen(snapshot, look)
    until = len(shown) - min(look.row, max(0, len(shown) - 1))
    lines = panels.events(shown[:until], width - 2 - PADDING, rows)
    note = f"{look.row} newer below" if look.row else ""
    return [whole(Cell(f"events {len(shown)}", lines, note), width, rows)]


def settings(snapshot: Snapshot, look: Look, width: int, height: int) -> list[Band]:
    """List the live settings, one marked, and explain that one."""
    dials = snapshot.dials
    rows = max(1, height - 1)
    if not dials:
        return [whole(Cell("live settings", []), width, rows)]
    marked = min(look.row, len(dials) - 1)
    room = max(2, rows - 3)  # a rule and two lines for the marked one
    table = fitted(_DIAL_COLUMNS, width - 4 - PADDING)
    first = max(0, marked - (room - 2))
    lines: list[Line] = [[Segment("  "), *table.header()]]
    for number, dial in enumerate(dials[first : first + room - 1], start=first):
        mark = Segment("▶ ", theme.COIN) if number == marked else Segment("  ")
        lines.append([mark, *table.line(dial)])
    note = _span(first, len(lines) - 1, len(dials))
    return [
        whole(Cell("live settings", lines, note), width, room),
        whole(Cell(clean(dials[marked].name), _explained(dials[marked])), width, 2),
    ]


def cluster(snapshot: Snapshot, look: Look, width: int, height: int) -> list[Band]:
    """List the nodes and, scrolled as the person likes, the gateways."""
    seen = snapshot.cluster
    if seen is None:
        told: Line = [Segment("all of it runs on this machine (--cluster)", theme.QUIET)]
        return [whole(Cell("no cluster", [told]), width, max(1, height - 1))]
    above = min(len(seen.nodes), max(1, height // 3)) + 1
    shares = _shares(seen.learners)[: max(0, height - above - 4)]
    rows = max(1, height - above - len(shares) - 2)
    room = width - 2 - PADDING
    first = min(look.row, max(0, len(seen.gateways) - (rows - 1)))
    shown = seen.gateways[first : first + max(0, rows - 1)]
    nodes, gateways = fitted(_NODE_COLUMNS, room), fitted(_GATEWAY_COLUMNS, room)
    node_lines = [nodes.header(), *(nodes.line(node) for node in seen.nodes[: above - 1]), *shares]
    lines = [gateways.header(), *(gateways.line(gateway) for gateway in shown)]
    return [
        whole(
            Cell(f"nodes {len(seen.nodes)}", node_lines, _span(0, above - 1, len(seen.nodes))),
            width,
            above + len(shares),
        ),
        whole(
            Cell(
                f"gateways {len(seen.gateways)}",
                lines,
                _span(first, len(shown), len(seen.gateways)),
            ),
            width,
            rows,
        ),
    ]


def _shares(learners: tuple[LearnerView, ...]) -> list[Line]:
    """Say how the frames of each agent are shared out, where it has several learners."""
    shares: dict[str, list[str]] = {}
    for learner in learners:
        shares.setdefault(learner.agent, []).append(f"{learner.share:.0%}")
    return [
        [
            Segment(f"{len(found)} learners of {clean(agent)} share its frames: ", theme.QUIET),
            Segment(", ".join(found), theme.PLAIN),
        ]
        for agent, found in shares.items()
    ]


def learning(snapshot: Snapshot, look: Look, width: int, height: int) -> list[Band]:
    """Show how learning goes, and how it went."""
    agent = most_active(snapshot.agents)
    if agent is None:
        return charts.missing("learning", width, height)
    widths = grid.widths(width, 1, 1)
    cells = (
        Cell("learning", panels.learning(agent, widths[0] - PADDING)),
        Cell("returns", panels.standing(agent, widths[1] - PADDING)),
    )
    rows = _FIGURES if height > _FIGURES + _LEAST_CHARTS else 0
    drawn = [Band(cells, widths, rows)] if rows else []
    rest = height - rows - bool(rows)
    marked = charts.changes(snapshot)
    return [*drawn, *charts.bands(agent, charts.LEARNING, width, rest, marked)]


def latency(snapshot: Snapshot, look: Look, width: int, height: int) -> list[Band]:
    """Show how fast frames are answered, what is waited for, and beside how much training."""
    agent = most_active(snapshot.agents)
    if agent is None:
        return charts.missing("latency", width, height)
    widths = grid.widths(width, 6, 8, 5)
    cells = (
        Cell("latency", panels.latency(agent, widths[0] - PADDING)),
        Cell("contention", panels.waits(snapshot, widths[1] - PADDING)),
        Cell("learner's time", panels.learner_time(agent, widths[2] - PADDING)),
    )
    rows = min(_FIGURES, max(1, height - 1))
    rest = height - rows - 1
    marked = charts.changes(snapshot)
    drawn = (
        charts.bands(agent, charts.LATENCY, width, rest, marked) if rest >= _LEAST_CHARTS else []
    )
    return [Band(cells, widths, rows), *drawn]


def _explained(dial: DialView) -> list[Line]:
    return [
        [Segment(clean(dial.about), theme.PLAIN)],
        [
            Segment("takes ", theme.QUIET),
            Segment(clean(dial.allowed), theme.PLAIN),
            Segment("  natural: ", theme.QUIET),
            Segment(clean(f"{dial.natural}, {dial.source}"), theme.PLAIN),
        ],
    ]


def _span(first: int, shown: int, size: int) -> str:
    return f"{first + 1} to {first + shown} of {size}" if shown < size else ""


_DIAL_COLUMNS: tuple[Column[DialView], ...] = (
    Column("setting", 18, lambda dial: clean(dial.name), grow=8, right=False),
    Column("value", 9, lambda dial: clean(dial.value), lambda _: theme.STRONG, grow=3),
    Column("unit", 7, lambda dial: clean(dial.unit), lambda _: theme.QUIET, grow=11, right=False),
    Column(
        "chosen",
        14,
        lambda dial: clean(dial.chosen) or "natural",
        lambda dial: theme.CAUTION if dial.chosen else theme.QUIET,
        grow=16,
        right=False,
    ),
    Column("natural", 9, lambda dial: clean(dial.natural), lambda _: theme.QUIET, from_width=64),
    Column("about", 30, lambda dial: clean(dial.about), right=False, grow=60, from_width=110),
)

_NODE_COLUMNS: tuple[Column[NodeView], ...] = (
    Column("node", 15, lambda node: clean(node.address), grow=20, right=False),
    Column("gateways", 8, lambda node: figures.count(node.gateways)),
    Column("clients", 7, lambda node: figures.count(node.clients)),
    Column("frames/s", 8, lambda node: figures.rate(node.frames_per_s), lambda _: theme.STRONG),
    Column("learners", 8, lambda node: figures.count(node.learners), from_width=54),
    Column("cores", 5, lambda node: f"{node.cpus:g}", from_width=62),
    Column("GPUs", 4, lambda node: f"{node.gpus:g}", from_width=68),
)

_GATEWAY_COLUMNS: tuple[Column[GatewayView], ...] = (
    Column("gateway", 7, lambda gateway: str(gateway.number)),
    Column("clients", 7, lambda gateway: figures.count(gateway.clients)),
    Column("frames/s", 8, lambda g: figures.rate(g.frames_per_s), lambda _: theme.STRONG),
    Column("p99 ms", 6, lambda gateway: figures.milliseconds(gateway.latency_p99_ms)),
    Column("weights", 7, lambda gateway: figures.age(gateway.weights_age_s)),
    Column("backlog", 7, lambda gateway: figures.short(gateway.backlog), from_width=54),
    Column(
        "state",
        4,
        lambda gateway: clean(gateway.state),
        lambda gateway: theme.GOOD if gateway.state == "up" else theme.BAD,
        grow=24,
        right=False,
        from_width=60,
    ),
    Column("p50 ms", 6, lambda g: figures.milliseconds(g.latency_p50_ms), from_width=72),
    Column("MB/s", 6, lambda g: f"{g.shipped_bytes_per_s / 1e6:.2f}", from_width=80),
    Column("shipped", 7, lambda gateway: figures.short(gateway.shipped), from_width=88),
    Column("lost", 6, lambda gateway: figures.short(gateway.lost), from_width=96),
    Column(
        " node",
        15,
        lambda gateway: " " + clean(gateway.node),
        lambda _: theme.QUIET,
        right=False,
        from_width=112,
    ),
    Column(
        " address",
        22,
        lambda gateway: " " + clean(gateway.address),
        lambda _: theme.QUIET,
        right=False,
        from_width=136,
    ),
)
