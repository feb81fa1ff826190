"""Lets training in a process of its own rest for as long as the event loop waits for a core.

With more busy parties than cores Linux wakes a client on the core of the event loop that has just
answered it, unless another core is idle. So the two share one core, each of them waits while the
other runs, and a learner that never rests keeps the other core to itself. Whenever it rests they
have a core each. So it rests for the share of the time in which the event loop was ready to run
and did not: the kernel counts that for each thread (``schedstat``). An event loop that is let in at
once waits for nearly nothing, and nothing is taken from training.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from server.stats import Governed

LOOK_S = 0.5  # between looks
_LOOKS = 4  # of which the mean counts
_LEAST_SHARE = 0.5  # of its time that training keeps
_STEPS = 20  # of the share, from 0 to 1: smaller changes are not worth telling
_LITTLE = 0.1  # share of the time: who waits less has nothing to gain


class Courtesy:
    """Says which share of its time training may use; asked by the event loop's own thread."""

    def __init__(
        self,
        waited_s: Callable[[], float] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._waited_s = waited_s or Runqueue().waited_s
        self._clock = clock
        self._looks: deque[tuple[float, float]] = deque(maxlen=_LOOKS + 1)
        self.share = 1.0

    def look(self, *, shares_core: bool = False) -> float:
        """Look at how long we have waited for a core lately, and give the share.

        An event loop that shares a core with its only client waits because it chose to: no rest
        of anybody else would end that.
        """
        fair = self._fair()
        self.share = 1.0 if shares_core else fair
        return self.share

    def view(self) -> Governed | None:
        """Give what people see of it; nothing while nothing is taken from training."""
        return Governed("a core", "giving way", self.share) if self.share < 1 else None

    def _fair(self) -> float:
        self._looks.append((self._clock(), self._waited_s()))
        (began_s, before_s), (now_s, after_s) = self._looks[0], self._looks[-1]
        if now_s <= began_s:
            return 1.0
        waiting = (after_s - before_s) / (now_s - began_s)
        if waiting < _LITTLE:
            return 1.0
        return max(_LEAST_SHARE, round((1 - waiting) * _STEPS) / _STEPS)


class Runqueue:
    """What the kernel counts about the thread that makes it."""

    def __init__(self) -> None:
        self._file = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")
        self._waited_s = 0.0

    def waited_s(self) -> float:
        """Give for how long the thread was ready to run and did not; 0 where nobody counts it."""
        with contextlib.suppress(OSError, IndexError, ValueError):  # also: no descriptor is free
            self._waited_s = int(self._file.read_text(encoding="ascii").split()[1]) * 1e-9
        return self._waited_s
