"""Keeps the event loop awake between the frames of few clients, while a core is free for it.

A loop that sleeps between two frames of a lone emulator has to be woken, on a core whose caches
have gone cold: on a virtual machine that costs more than the answer itself. Nothing here is paid
per frame: a look every now and then decides whether to stay awake.
"""

from __future__ import annotations

import time
from collections.abc import Callable

_PATIENCE_S = 0.004  # without a frame; then the loop may sleep


class Vigil:
    """Stays awake as long as frames come and it is allowed to."""

    def __init__(
        self,
        *,
        call_soon: Callable[[Callable[[], None]], object],
        frames: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._call_soon = call_soon
        self._frames = frames
        self._clock = clock
        self._allowed = False
        self._seen = 0  # frames
        self._until_s = 0.0
        self.awake = False

    def look(self, *, core_free: bool) -> None:
        """Stay awake from now on, if frames have come since the last look and a core is free."""
        self._allowed = core_free
        if core_free and not self.awake and self._frames() != self._seen:
            self.awake = True
            self._watch()

    def _watch(self) -> None:
        """Come back in the next turn of the loop, which therefore does not sleep."""
        now_s, frames = self._clock(), self._frames()
        if frames != self._seen:
            self._seen, self._until_s = frames, now_s + _PATIENCE_S
        self.awake = self._allowed and now_s < self._until_s
        if self.awake:
            self._call_soon(self._watch)
