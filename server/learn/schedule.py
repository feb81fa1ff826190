"""Values that change as frames or steps go by."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Linear:
    """Goes from one value to another in a straight line, then stays."""

    start: float
    end: float
    frames: int

    def at(self, frame: int) -> float:
        """Give the value at a frame."""
        done = min(1.0, max(0.0, frame / self.frames))
        return self.start + (self.end - self.start) * done


@dataclass(frozen=True, slots=True)
class Warmed:
    """Rises from nothing over some steps, then stays, or falls as a cosine to its end."""

    peak: float
    warmup: int = 0
    fall: int = 0  # steps after the warm-up; 0: it never falls
    end: float = 0.0

    def at(self, step: int) -> float:
        """Give the value at a step."""
        if step < self.warmup:
            return self.peak * (step + 1) / self.warmup
        if not self.fall:
            return self.peak
        done = min(1.0, (step - self.warmup) / self.fall)
        return self.end + (self.peak - self.end) * (1 + math.cos(math.pi * done)) / 2
