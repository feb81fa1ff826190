"""Write a page about a run: its curves, settings, journal and last evaluation, in one HTML file."""

from __future__ import annotations

import argparse
import html
import json
import math
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from config import Run
from server import document, journal
from server.journal import Change, Ramp
from tools.progress import Progress

_CURVES = "curves.jsonl"  # one JSON object a line: kind, time_s, agent, frames, steps, figures
_WIDTH, _HEIGHT = 560, 190  # of a chart, in pixels
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 12, 16, 22  # its margins
_LINES = 4  # across it, about
_MOST_NUMBERS = 40  # changes that are numbered in the charts
_MOST_POINTS = 600  # of a line: more than that are averaged
_SAME_S = 5.0  # between a change in the journal and its mark on a curve, at most

# What is drawn of each agent, in this order: title, kind of the line, figure.
_CHARTS = (
    ("Evaluation, mean return", "evaluation", "mean"),
    ("Mean return while training", "interval", "return_mean"),
    ("Loss", "interval", "loss"),
    ("Q mean", "interval", "q_mean"),
    ("Gradient norm", "interval", "gradient_norm"),
    ("Epsilon", "interval", "epsilon"),
    ("Learning rate", "interval", "learning_rate"),
    ("Frames/s", "interval", "frames_per_s"),
    ("Steps/s", "interval", "steps_per_s"),
    ("Reply latency p99, ms", "interval", "latency_p99_ms"),
)

# What is told of an evaluation.
_SCORE = (
    *("frames", "steps", "episodes", "mean", "median", "low_quartile", "high_quartile", "lowest"),
    *("highest", "distinct"),
)

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 1200px; padding: 0 1rem;
  color: #222; background: #fff; }
h1 { color: #8a6508; } h2 { margin-top: 2rem; border-bottom: 1px solid #ddd; }
.charts { display: flex; flex-wrap: wrap; gap: 1rem; }
figure { margin: 0; } figcaption { font-weight: 600; }
svg { background: #fafafa; border: 1px solid #e4e4e4; }
svg { max-width: 100%; height: auto; }
svg text { font: 11px system-ui, sans-serif; fill: #777; }
svg .grid { stroke: #e8e8e8; } svg .curve { stroke: #1b7f8c; stroke-width: 1.5; fill: none; }
svg .dot { fill: #1b7f8c; } svg .mark { stroke: #d08700; stroke-dasharray: 3 3; }
svg text.mark { stroke: none; fill: #d08700; font-size: 9px; }
.settings { columns: 3 20rem; } .settings table { break-inside: avoid; margin-bottom: 1rem; }
.settings td { overflow-wrap: anywhere; font-size: 13px; }
table { border-collapse: collapse; } td, th { padding: .15rem .8rem .15rem 0; text-align: left;
  vertical-align: top; } th { color: #666; font-weight: 500; } td.n { text-align: right; }
@media (prefers-color-scheme: dark) { body { color: #ddd; background: #16181c; }
  svg { background: #1e2126; border-color: #333; } svg .grid { stroke: #2c3036; }
  h1 { color: #d9a514; } h2 { border-color: #333; } th { color: #999; } }
"""


@dataclass(frozen=True, slots=True)
class Story:
    """All that a run's directory tells."""

    name: str
    lines: tuple[dict[str, Any], ...]  # of the curves
    settings: dict[str, Any]
    changes: tuple[Change, ...]
    damaged: int  # lines of the curves that could not be read


@dataclass(frozen=True, slots=True)
class Mark:
    """A change of a live setting, on the curves of one agent."""

    frames: float  # of the agent
    number: int  # in the journal
    change: Change


def add_options(parser: argparse.ArgumentParser) -> None:
    """Describe the options."""
    parser.add_argument("--run", default=Run().run, help="name of the run (default: %(default)s)")
    parser.add_argument("--runs-dir", type=Path, default=Path(Run().runs_dir), metavar="DIR")
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="where to write (default: report.html there)"
    )


def run(options: argparse.Namespace) -> int:
    """Write the page; 2 if there is no such run."""
    directory: Path = options.runs_dir / options.run
    if not (directory / "settings.json").exists():
        print(f"report: there is no run in {directory}", file=sys.stderr)
        return 2
    output: Path = options.output or directory / "report.html"
    try:
        with Progress(f"reading {directory}"):
            text = page(read(directory))
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        print(f"report: cannot write {output}: {error.strerror}", file=sys.stderr)
        return 1
    print(f"wrote {output}")
    return 0


def read(directory: Path) -> Story:
    """Read what a run has left; what is damaged is counted and left out."""
    lines, damaged = [], 0
    path = directory / _CURVES
    texts = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    for text in texts.splitlines():
        try:
            line = json.loads(text)
            if isinstance(line, dict) and isinstance(line["frames"], int):
                lines.append(line)
        except (ValueError, KeyError):
            damaged += 1
    settings, _ = document.read(directory / "settings.json")
    changes, broken = journal.read(directory / journal.NAME)
    return Story(directory.name, tuple(lines), settings, tuple(changes), damaged + len(broken))


def page(story: Story) -> str:
    """Draw the whole page; it needs nothing beside itself."""
    title = html.escape(f"Coinop: {story.name}")
    parts = [f"<h1>{title}</h1>", _summary(story)]
    for agent in dict.fromkeys(str(line.get("agent", "")) for line in story.lines):
        own = [line for line in story.lines if str(line.get("agent", "")) == agent]
        parts += [f"<h2>Agent {html.escape(agent)}</h2>", _evaluation(own), _charts(own, story)]
    parts += ["<h2>Journal</h2>", _journal(story.changes)]
    parts += ["<h2>Settings</h2>", _settings(story.settings)]
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{_STYLE}</style></head><body>{''.join(parts)}</body></html>\n"
    )


def _summary(story: Story) -> str:
    if not story.lines:
        return "<p>This run has no curves yet.</p>"
    first, last = story.lines[0].get("time_s", 0), story.lines[-1].get("time_s", 0)
    frames = max(line["frames"] for line in story.lines)
    steps = max(int(line.get("steps") or 0) for line in story.lines)
    note = f" {story.damaged} damaged lines were left out." if story.damaged else ""
    return (
        f"<p>{_clock(first)} to {_clock(last)}: {frames:,} frames, {steps:,} gradient steps, "
        f"{len(story.changes)} changes of live settings.{note}</p>"
    )


def _evaluation(lines: Iterable[dict[str, Any]]) -> str:
    found = [line for line in lines if line.get("kind") == "evaluation"]
    if not found:
        return ""
    last = found[-1]
    best = [line for line in found if line.get("best")][-1:]
    rows = [("last evaluation", last), *(("best so far", line) for line in best)]
    heads = "".join(f"<th>{name.replace('_', ' ')}</th>" for name in ("", *_SCORE))
    cells = (
        "".join([f"<th>{title}</th>", *(f'<td class="n">{_number(line, n)}</td>' for n in _SCORE)])
        for title, line in rows
    )
    return f"<table><tr>{heads}</tr>{''.join(f'<tr>{row}</tr>' for row in cells)}</table><br/>"


def _number(line: dict[str, Any], name: str) -> str:
    value = line.get(name)
    if not isinstance(value, int | float):
        return ""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.5g}"


def _charts(lines: Sequence[dict[str, Any]], story: Story) -> str:
    drawn = []
    marks = _marks(lines, story.changes)
    until = max((float(line["frames"]) for line in lines), default=0.0)
    for title, kind, figure in _CHARTS:
        points = [
            (float(line["frames"]), float(line[figure]))
            for line in lines
            if line.get("kind") == kind and isinstance(line.get(figure), int | float)
        ]
        if points:
            svg = _svg(_thinned(points), marks, until)
            drawn.append(f"<figure><figcaption>{title}</figcaption>{svg}</figure>")
    return f'<div class="charts">{"".join(drawn)}</div>'


def _marks(lines: Iterable[dict[str, Any]], changes: Sequence[Change]) -> list[Mark]:
    """Find where the changes in the journal are on the curves of one agent.

    The journal counts the frames of the whole run; its curves tell those of each agent.
    """
    found = []
    for line in lines:
        if line.get("kind") == "marker":
            alike = [
                (abs(change.time_s - line.get("time_s", 0)), number, change)
                for number, change in enumerate(changes, start=1)
                if (change.name, change.who) == (line.get("name"), line.get("who"))
            ]
            apart_s, number, change = min(
                alike, key=lambda one: one[0], default=(math.inf, 0, None)
            )
            if change is not None and apart_s < _SAME_S:  # or its line in the journal is lost
                found.append(Mark(float(line["frames"]), number, change))
    return found


def _thinned(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Average neighbours until there are few enough to draw."""
    size = -(-len(points) // _MOST_POINTS)
    groups = [points[at : at + size] for at in range(0, len(points), size)]
    return [
        (sum(x for x, _ in group) / len(group), sum(y for _, y in group) / len(group))
        for group in groups
    ]


def _svg(points: list[tuple[float, float]], marks: Sequence[Mark], until: float) -> str:
    """Draw one line over all frames of the agent, with a mark at every change of a live setting."""
    points = [(x, y) for x, y in points if math.isfinite(y)]
    if not points:
        return ""
    lines = _round_values(min(y for _, y in points), max(y for _, y in points))
    low = min(lines[0], *(y for _, y in points))
    high = max(lines[-1], *(y for _, y in points))
    width, height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def place(x: float, y: float) -> tuple[float, float]:
        across = x / until if until else 0.5
        up = (y - low) / (high - low) if high > low else 0.5
        return _LEFT + across * width, _TOP + (1 - up) * height

    curve = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in points))
    drawn = "".join(_mark(place(mark.frames, low)[0], mark, len(marks)) for mark in marks)
    x, y = place(*points[-1])
    right, below = _WIDTH - _RIGHT, _HEIGHT - 6
    return (
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}">'
        f"{''.join(_grid_line(value, place(0, value)[1]) for value in lines)}{drawn}"
        f'<polyline class="curve" points="{curve}"/>'
        f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="2.5"/>'
        f'<text x="{_LEFT}" y="{below}">0</text>'
        f'<text x="{right}" y="{below}" text-anchor="end">{until:,.0f} frames</text>'
        "</svg>"
    )


def _round_values(low: float, high: float) -> list[float]:
    """Give round values between two, for lines across a chart; at least one."""
    if not high > low:
        return [low]
    rough = (high - low) / _LINES
    size = 10 ** math.floor(math.log10(rough))
    step = size * min((2, 5, 10), key=lambda factor: abs(size * factor - rough))
    values = [step * n for n in range(math.ceil(low / step), math.floor(high / step) + 1)]
    return values or [low]


def _grid_line(value: float, y: float) -> str:
    return (
        f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:.4g}</text>'
    )


def _mark(x: float, mark: Mark, count: int) -> str:
    """Draw a change as a dashed line; its number in the journal stands above it."""
    told = html.escape(_told(mark.change))
    label = (
        f'<text class="mark" x="{x:.1f}" y="{_TOP - 4}" text-anchor="middle">{mark.number}</text>'
        if count <= _MOST_NUMBERS
        else ""
    )
    return (
        f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}">'
        f"<title>{told}</title></line>{label}"
    )


def _journal(changes: Sequence[Change]) -> str:
    if not changes:
        return "<p>Nobody changed anything.</p>"
    rows = "".join(
        f'<tr><td class="n">{number}</td><td>{_clock(change.time_s)}</td>'
        f'<td class="n">{change.frame:,}</td><td>{html.escape(_told(change))}</td></tr>'
        for number, change in enumerate(changes, start=1)
    )
    heads = "<th></th><th>time</th><th>frame</th><th>change</th>"
    return f"<table><tr>{heads}</tr>{rows}</table>"


def _told(change: Change) -> str:
    undone = " (undone)" if change.kind is journal.Kind.UNDO else ""
    return f"{change.name}: {_value(change.old)} → {_value(change.new)}{undone}, by {change.who}"


def _value(chosen: object) -> str:
    if chosen is None:
        return "natural"
    if isinstance(chosen, bool):
        return "on" if chosen else "off"
    if isinstance(chosen, Ramp):
        return f"{chosen.end:g} over {chosen.frames:,} frames"
    return f"{chosen:g}" if isinstance(chosen, int | float) else str(chosen)


def _settings(settings: dict[str, Any]) -> str:
    sections = {**settings.get("settings", {}), "versions": settings.get("versions", {})}
    return f'<div class="settings">{"".join(map(_section, sections, sections.values()))}</div>'


def _section(name: str, values: Any) -> str:
    rows = "".join(
        f"<tr><td>{html.escape(str(key))}</td><td>{html.escape(json.dumps(value))}</td></tr>"
        for key, value in (values.items() if isinstance(values, dict) else [("", values)])
    )
    return f'<table><tr><th colspan="2">{html.escape(str(name))}</th></tr>{rows}</table>'


def _clock(time_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time_s))
