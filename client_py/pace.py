"""The rhythm of a loop: so many rounds a second, and no hurry to make up for lost ones."""

from __future__ import annotations

import time


class Pace:
    """Holds a loop to an interval; one of 0 lets it run free."""

    __slots__ = ("_due_s", "_interval_s")

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._due_s = 0.0

    def wait(self) -> None:
        """Sleep until the next round is due."""
        if not self._interval_s:
            return
        now = time.monotonic()
        self._due_s = max(now, self._due_s + self._interval_s)
        time.sleep(self._due_s - now)
