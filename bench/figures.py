"""Figures of several rounds: their medians, their spread, and how they are shown."""

from __future__ import annotations

import json
import platform
import statistics
from pathlib import Path

from rich.console import Console
from rich.table import Table

Round = dict[str, float]


def medians(rounds: list[Round]) -> Round:
    """Give the median of each figure."""
    return {name: statistics.median(r[name] for r in rounds) for name in rounds[0]}


def show(title: str, rounds: list[Round]) -> None:
    """Print a table: median, lowest and highest of each figure."""
    table = Table(title=f"{title}: {len(rounds)} rounds on {machine()}", title_justify="left")
    table.add_column("figure")
    for column in ("median", "lowest", "highest"):
        table.add_column(column, justify="right")
    middle = medians(rounds)
    for name in middle:
        values = [r[name] for r in rounds]
        table.add_row(name, _shown(middle[name]), _shown(min(values)), _shown(max(values)))
    Console().print(table)


def write_json(path: Path, rounds: list[Round]) -> None:
    """Write the medians as one flat object."""
    path.write_text(json.dumps(medians(rounds), indent=2) + "\n", encoding="utf-8")


def machine() -> str:
    """Name the machine: processor, cores, Python."""
    model = platform.processor() or platform.machine()
    cores = 0
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            model, cores = line.split(":", 1)[1].strip(), cores + 1
    return f"{model}, {cores} cores, Python {platform.python_version()}"


def few_digits(value: float) -> str:
    """Write a figure with three digits, or as a whole number where it has more."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"


def _shown(value: float) -> str:
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"
