"""A grid of titled cells whose borders join."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style

from server.console import theme
from server.console.line import Line, exact, fit

PADDING = 2  # one column at each side of a cell's lines
_SIDE = Segment("│", theme.BORDER)
_SPACE = Segment(" ")


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell: its title, its lines, and what stands at the right of its upper border."""

    title: str
    lines: Sequence[Line]
    note: str = ""
    title_style: Style = theme.TITLE
    note_style: Style = theme.QUIET


@dataclass(frozen=True, slots=True)
class Band:
    """Cells side by side, between two rules."""

    cells: tuple[Cell, ...]
    widths: tuple[int, ...]  # of each cell without its borders
    rows: int


def whole(cell: Cell, width: int, rows: int) -> Band:
    """Give a band that is one cell."""
    return Band((cell,), (width - 2,), rows)


def widths(width: int, *parts: int) -> tuple[int, ...]:
    """Divide a grid's width among cells by their parts; the last one takes the remainder."""
    room = width - len(parts) - 1
    shares = [room * part // sum(parts) for part in parts[:-1]]
    return (*shares, room - sum(shares))


def draw(bands: Sequence[Band], width: int) -> list[Line]:
    """Draw the bands from top to bottom, with a border around everything."""
    lines: list[Line] = []
    above: Band | None = None
    for band in bands:
        lines.append(_rule(above, band, width))
        lines += [_row(band, row) for row in range(band.rows)]
        above = band
    lines.append(_rule(above, None, width))
    return lines


def _row(band: Band, row: int) -> Line:
    line = [_SIDE]
    for cell, width in zip(band.cells, band.widths, strict=True):
        content = cell.lines[row] if row < len(cell.lines) else []
        line += [_SPACE, *exact(content, width - PADDING), _SPACE, _SIDE]
    return line


def _rule(above: Band | None, below: Band | None, width: int) -> Line:
    line: Line = []
    at = 0
    border = _border(above, below, width)
    for start, text, style in _labels(below):
        line += [Segment(border[at:start], theme.BORDER), Segment(text, style)]
        at = start + cell_len(text)
    line.append(Segment(border[at:], theme.BORDER))
    return line


def _border(above: Band | None, below: Band | None, width: int) -> str:
    up, down = _joints(above), _joints(below)
    characters = ["─"] * width
    for joint in up | down:
        characters[joint] = "┼" if joint in up & down else "┴" if joint in up else "┬"
    characters[0] = "╰" if below is None else "╭" if above is None else "├"
    characters[-1] = "╯" if below is None else "╮" if above is None else "┤"
    return "".join(characters)


def _joints(band: Band | None) -> set[int]:
    if band is None:
        return set()
    return set(accumulate(width + 1 for width in band.widths[:-1]))


def _labels(band: Band | None) -> list[tuple[int, str, Style]]:
    if band is None:
        return []
    labels = []
    start = 1
    for cell, width in zip(band.cells, band.widths, strict=True):
        room = width - 2  # a piece of the rule stays visible at both ends
        title = _label(cell.title, room)
        note = _label(cell.note, room - cell_len(title) - 1)
        labels.append((start + 1, title, cell.title_style))
        labels.append((start + 1 + room - cell_len(note), note, cell.note_style))
        start += width + 1
    return labels


def _label(text: str, room: int) -> str:
    if not text or room < 3:
        return ""
    return f" {fit(text, min(cell_len(text), room - 2))} "
