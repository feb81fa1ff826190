"""The colours of the screen, readable on a dark and on a light background."""

from __future__ import annotations

from rich.style import Style

PLAIN = Style()
STRONG = Style(bold=True)
BORDER = Style(color="grey42")
QUIET = Style(color="grey54")  # labels, units, all that is not a figure
TITLE = Style(color="steel_blue")
COIN = Style(color="dark_goldenrod", bold=True)  # the name, the keys
COLUMN = Style(color="grey54", italic=True)
MARKED = Style(color="dark_goldenrod", italic=True, underline=True)
GOOD = Style(color="green")
CAUTION = Style(color="dark_orange")
BAD = Style(color="red", bold=True)
BAR = Style(color="dark_goldenrod")
CHART = Style(color="dark_cyan")

POLICY = Style(color="dark_cyan")
EXPERT = Style(color="dark_goldenrod")
EXPLORATION = Style(color="grey42")

LEVELS = {"info": PLAIN, "warning": CAUTION, "error": BAD}
STATES = {"training": GOOD, "paused": CAUTION, "stopping": BAD}
