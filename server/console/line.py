"""One line of the screen: styled pieces of text of a known width.

Lines are plain lists of rich segments. Rich's own tables and panels take ten times as long, and
the screen is redrawn for as long as the server runs, in a process with better things to do.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style

from server.console import sparkline, theme

Line = list[Segment]
_LEAST_PAST, _MOST_PAST = 4, 16  # columns of a figure's past


def fit(text: str, width: int, *, right: bool = False) -> str:
    """Pad the text to the width, or cut it there with an ellipsis."""
    missing = width - (len(text) if text.isascii() else cell_len(text))
    if missing < 0:
        return set_cell_size(text, width - 1) + "…" if width > 0 else ""
    return " " * missing + text if right else text + " " * missing


def squeeze(text: str, width: int) -> str:
    """Pad the text to the width, or cut it in its middle: both ends of a name tell it apart."""
    if cell_len(text) <= width or width < 3:
        return fit(text, width)
    tail = width // 2
    return fit(set_cell_size(text, width - tail - 1) + "…" + text[-tail:], width)


def words(*pieces: tuple[str, Style], gap: int = 3) -> Line:
    """Put pieces of text next to each other; empty ones take no room."""
    line: Line = []
    for text, style in pieces:
        if text:
            if line:
                line.append(Segment(" " * gap))
            line.append(Segment(text, style))
    return line


def spread(left: Line, right: Line, width: int) -> Line:
    """Put one line at the left edge and one at the right; the left one gives way."""
    taken = length(right)
    if taken >= width:
        return exact(right, width)
    return exact(left, width - taken) + right


def figure(
    label: str,
    value: str,
    width: int,
    style: Style = theme.PLAIN,
    note: str = "",
    past: Sequence[float] = (),
) -> Line:
    """Put a label at the left edge, its value and a quiet note at the right one.

    Where there is room between them, its past is drawn there.
    """
    left = [Segment(label, theme.QUIET)]
    right = [Segment(" " + value, style)]
    if note:
        right.append(Segment(" " + note, theme.QUIET))
    room = width - cell_len(label) - length(right) - 2
    if past and room >= _LEAST_PAST:
        room = min(room, _MOST_PAST)
        right = [Segment(sparkline.draw(past, width=room)[0], theme.CHART), *right]
    return spread(left, right, width)


def bar(share: float, width: int, style: Style = theme.BAR) -> Line:
    """Draw a share of one as a horizontal bar."""
    share = min(1.0, max(0.0, share)) if math.isfinite(share) else 0.0
    halves = round(share * width * 2)
    done = "━" * (halves // 2) + "╸" * (halves % 2)
    return [Segment(done, style), Segment("─" * (width - len(done)), theme.BORDER)]


def stacked_bar(shares: Iterable[tuple[float, Style]], width: int) -> Line:
    """Draw shares of one after another, each in its own style, as far as the width goes."""
    line: Line = []
    start, total = 0, 0.0
    for share, style in shares:
        total += min(1.0, max(0.0, share)) if math.isfinite(share) else 0.0
        end = min(width, round(total * width))
        line.append(Segment("━" * (end - start), style))
        start = end
    return line


def exact(line: Line, width: int) -> Line:
    """Pad or cut a line to exactly the width."""
    missing = width - length(line)
    if missing > 0:
        return [*line, Segment(" " * missing)]
    return line if missing == 0 else Segment.adjust_line_length(line, max(0, width))


def length(line: Line) -> int:
    """Give the columns that a line takes; most of its pieces are plain ASCII, which is quick."""
    return sum([len(text) if text.isascii() else cell_len(text) for text, _, _ in line])


def overlay(lines: list[Line], panel: list[Line]) -> list[Line]:
    """Lay a panel over the middle of the lines."""
    top = max(0, (len(lines) - len(panel)) // 2)
    covered = [_covered(under, over) for under, over in zip(lines[top:], panel, strict=False)]
    return lines[:top] + covered + lines[top + len(covered) :]


def _covered(under: Line, over: Line) -> Line:
    width = sum(segment.cell_length for segment in under)
    size = sum(segment.cell_length for segment in over)
    left = max(0, (width - size) // 2)
    before, _, after = Segment.divide(under, [left, left + size, width])
    return before + over + after
