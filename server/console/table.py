"""Rows of values in aligned columns, as many as the width allows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from rich.segment import Segment
from rich.style import Style

from server.console import theme
from server.console.line import Line, exact, fit

T = TypeVar("T")
_GAP = 1
_SPACE = Segment(" " * _GAP)


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """One column: how to write a row's value, and how much room that takes."""

    title: str
    width: int
    text: Callable[[T], str]
    style: Callable[[T], Style] = lambda _: theme.PLAIN
    grow: int = 0  # by how much it may widen when there is room
    right: bool = True
    from_width: int = 0  # left out of narrower tables
    draw: Callable[[T, int], Line] | None = None  # instead of text and style


@dataclass(frozen=True, slots=True)
class Table(Generic[T]):
    """The columns that fit a width, and what each of them got."""

    columns: tuple[Column[T], ...]
    widths: tuple[int, ...]

    def header(self, marked: str = "") -> Line:
        """Draw the titles, one of them marked as what the rows are sorted by."""
        return self._joined(
            [
                Segment(
                    fit(column.title, width, right=column.right),
                    theme.MARKED if marked and column.title.strip() == marked else theme.COLUMN,
                )
            ]
            for column, width in self._sized()
        )

    def line(self, row: T) -> Line:
        """Draw one row; a cell's gap is part of its text, which makes half as many pieces."""
        line: Line = []
        last = len(self.columns) - 1
        for number, (column, width) in enumerate(self._sized()):
            gap = _GAP if number < last else 0
            if column.draw:
                line += exact(exact(column.draw(row, width), width), width + gap)
                continue
            text = fit(column.text(row), width, right=column.right) + " " * gap
            line.append(Segment(text, column.style(row)))
        return line

    def _sized(self) -> zip[tuple[Column[T], int]]:
        return zip(self.columns, self.widths, strict=True)

    def _joined(self, cells: Iterable[Line]) -> Line:
        line: Line = []
        for cell in cells:
            line += [*cell, _SPACE]
        return line[:-1]


def fitted(columns: Sequence[Column[T]], width: int) -> Table[T]:
    """Choose the columns for a width, and hand out the room that is left from the left on."""
    chosen = tuple(column for column in columns if column.from_width <= width)
    spare = width - sum(column.width + _GAP for column in chosen) + _GAP
    widths = []
    for column in chosen:
        extra = max(0, min(column.grow, spare))
        spare -= extra
        widths.append(column.width + extra)
    return Table(chosen, tuple(widths))
