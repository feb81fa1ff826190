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
from server import journal
from server.journal import Change, Ramp
from tools.progress import Progress

_CURVES = "curves.jsonl"  # one JSON object a line: kind, time_s, agent, frames, steps, figures
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 560, 180, 64, 22  # of a chart, in pixels
_MOST_POINTS = 600  # of a line: more than that are averaged

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

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 1200px; padding: 0 1rem;
  color: #222; background: #fff; }
h1 { color: #8a6508; } h2 { margin-top: 2rem; border-bottom: 1px solid #ddd; }
.charts { display: flex; flex-wrap: wrap; gap: 1rem; }
figure { margin: 0; } figcaption { font-weight: 600; }
svg { background: #fafafa; border: 1px solid #e4e4e4; }
svg text { font: 11px system-ui, sans-serif; fill: #666; }
table { border-collapse: collapse; } td, th { padding: .15rem .8rem .15rem 0; text-align: left;
  vertical-align: top; } th { color: #666; font-weight: 500; } td.n { text-align: right; }
@media (prefers-color-scheme: dark) { body { color: #ddd; background: #16181c; }
  svg { background: #1e2126; border-color: #333; } h2 { border-color: #333; } }
"""


@dataclass(frozen=True, slots=True)
class Story:
    """All that a run's directory tells."""

    name: str
    lines: tuple[dict[str, Any], ...]  # of the curves
    settings: dict[str, Any]
    changes: tuple[Change, ...]
    damaged: int  # lines of the curves that could not be read


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
    settings = json.loads((directory / "settings.json").read_text(encoding="utf-8"))
    changes, broken = journal.read(directory / journal.NAME)
    return Story(directory.name, tuple(lines), settings, tuple(changes), damaged + broken)


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
    names = ("frames", "episodes", "mean", "median", "lowest", "highest")
    cells = [(name, last[name]) for name in names if isinstance(last.get(name), int | float)]
    heads = "".join(f"<th>{name}</th>" for name, _ in cells)
    values = "".join(f"<td>{value:,.6g}</td>" for _, value in cells)
    return f"<p>Last evaluation:</p><table><tr>{heads}</tr><tr>{values}</tr></table>"


def _charts(lines: Sequence[dict[str, Any]], story: Story) -> str:
    drawn = []
    for title, kind, figure in _CHARTS:
        points = [
            (float(line["frames"]), float(line[figure]))
            for line in lines
            if line.get("kind") == kind and isinstance(line.get(figure), int | float)
        ]
        if points:
            svg = _svg(_thinned(points), story.changes)
            drawn.append(f"<figure><figcaption>{title}</figcaption>{svg}</figure>")
    return f'<div class="charts">{"".join(drawn)}</div>'


def _thinned(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Average neighbours until there are few enough to draw."""
    size = -(-len(points) // _MOST_POINTS)
    groups = [points[at : at + size] for at in range(0, len(points), size)]
    return [
        (sum(x for x, _ in group) / len(group), sum(y for _, y in group) / len(group))
        for group in groups
    ]


def _svg(points: list[tuple[float, float]], changes: Iterable[Change]) -> str:
    """Draw one line over the frames, with a mark at every change of a live setting."""
    points = [(x, y) for x, y in points if math.isfinite(y)]
    if not points:
        return ""
    left, right = min(x for x, _ in points), max(x for x, _ in points)
    low, high = min(y for _, y in points), max(y for _, y in points)
    width, height = _WIDTH - _LEFT - 8, _HEIGHT - _BOTTOM - 8

    def place(x: float, y: float) -> tuple[float, float]:
        across = (x - left) / (right - left) if right > left else 0.5
        up = (y - low) / (high - low) if high > low else 0.5
        return _LEFT + across * width, 8 + (1 - up) * height

    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in points))
    marks = "".join(
        _mark(place(change.frame, low)[0], height, change)
        for change in changes
        if left <= change.frame <= right
    )
    end_x, end_y = place(*points[-1])
    dot = f'<circle cx="{end_x:.1f}" cy="{end_y:.1f}" r="2" fill="#1b7f8c"/>'
    return (
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}">{marks}'
        f'<polyline points="{line}" fill="none" stroke="#1b7f8c" stroke-width="1.5"/>{dot}'
        f'<text x="{_LEFT - 6}" y="16" text-anchor="end">{high:.4g}</text>'
        f'<text x="{_LEFT - 6}" y="{8 + height}" text-anchor="end">{low:.4g}</text>'
        f'<text x="{_LEFT}" y="{_HEIGHT - 6}">{left:,.0f}</text>'
        f'<text x="{_WIDTH - 8}" y="{_HEIGHT - 6}" text-anchor="end">{right:,.0f} frames</text>'
        "</svg>"
    )


def _mark(x: float, height: float, change: Change) -> str:
    return (
        f'<line x1="{x:.1f}" x2="{x:.1f}" y1="8" y2="{8 + height}" stroke="#d08700" '
        f'stroke-dasharray="3 3"><title>{html.escape(_told(change))}</title></line>'
    )


def _journal(changes: Sequence[Change]) -> str:
    if not changes:
        return "<p>Nobody changed anything.</p>"
    rows = "".join(
        f'<tr><td>{_clock(change.time_s)}</td><td class="n">{change.frame:,}</td>'
        f"<td>{html.escape(_told(change))}</td></tr>"
        for change in changes
    )
    return f"<table><tr><th>time</th><th>frame</th><th>change</th></tr>{rows}</table>"


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
    rows = "".join(
        f"<tr><th>{html.escape(str(section))}</th><td>{html.escape(str(name))}</td>"
        f"<td>{html.escape(json.dumps(value))}</td></tr>"
        for section, values in {
            **settings.get("settings", {}),
            "versions": settings.get("versions", {}),
        }.items()
        for name, value in (values.items() if isinstance(values, dict) else [("", values)])
    )
    return f"<table>{rows}</table>"


def _clock(time_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time_s))
