"""Figures as people read them: short, of steady width, and never a surprise."""

from __future__ import annotations

import math
import time
import unicodedata

from rich.cells import get_character_cell_size

MISSING = "–"
_MINUTE_S, _HOUR_S, _DAY_S = 60, 3_600, 86_400
_UNITS = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


def count(value: int) -> str:
    """Write a whole number: 123,456."""
    return f"{value:,}"


def short(value: float, decimals: int = 1) -> str:
    """Write a large number in few characters: 123k, 1.0M; without decimals 1M."""
    for unit, letter in _UNITS:
        if value >= unit * 0.9995:  # what rounds to 1000 takes the next unit
            scaled = value / unit
            return f"{scaled:.{decimals if scaled < 9.95 else 0}f}{letter}"
    return f"{value:.0f}"


def few(value: float | None) -> str:
    """Write a number of either sign with three digits or less: -0.42, 18.3, 250, 12k."""
    if value is None:
        return MISSING
    size = abs(value)
    if size >= 999.5:
        return ("-" if value < 0 else "") + short(size)
    return f"{value:.{0 if size >= 99.95 else 1 if size >= 9.995 else 2}f}"


def rate(value: float) -> str:
    """Write a number per second: 1,003 or 81.2."""
    return _grouped(value, 0 if abs(value) >= 99.95 else 1)


def real(value: float | None) -> str:
    """Write a number of any size with four digits: 0.01230."""
    return MISSING if value is None else f"{value:#.4g}".removesuffix(".")


def points(value: float | None) -> str:
    """Write a return: -18.3."""
    return MISSING if value is None else _grouped(value, 1)


def share(value: float) -> str:
    """Write a share of one: 0.42."""
    return f"{value:.2f}"


def percent(value: float) -> str:
    """Write a share of one as percent: 42%."""
    return f"{value:.0%}"


def milliseconds(value: float | None) -> str:
    """Write a time in milliseconds, without the unit: 2.1, or 0.02 where a tenth is too coarse."""
    return MISSING if value is None else _grouped(value, 2 if 0 < value < 0.1 else 1)


def duration(seconds: float) -> str:
    """Write a length of time as a clock: 01:02:03, or 2d 01:02:03."""
    if not math.isfinite(seconds):
        return MISSING
    minutes, second = divmod(max(0, int(seconds)), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    return (f"{days}d " if days else "") + f"{hour:02}:{minute:02}:{second:02}"


def age(seconds: float | None) -> str:
    """Write how long ago something was: 3.2 s, 12 s, 5 min, 7 h, 2 d."""
    if seconds is None or not math.isfinite(seconds):
        return MISSING
    seconds = max(0.0, seconds)
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    for size, unit in ((_DAY_S, "d"), (_HOUR_S, "h"), (_MINUTE_S, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def clock(time_s: float) -> str:
    """Write a wall-clock time of day: 14:05:09."""
    try:
        return time.strftime("%H:%M:%S", time.localtime(time_s))
    except (OverflowError, ValueError, OSError):  # no such day
        return "--:--:--"


def clean(text: str) -> str:
    """Make a stranger's text safe to show: no control characters, nothing without a width."""
    if text.isascii() and text.isprintable():
        return text
    text = unicodedata.normalize("NFC", text)
    return "".join(
        character if character.isprintable() and get_character_cell_size(character) else "?"
        for character in text
    )


def _grouped(value: float, decimals: int) -> str:
    return f"{value:.3g}" if abs(value) >= 1e9 else f"{value:,.{decimals}f}"
