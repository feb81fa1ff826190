"""Values that change as the frames go by."""

from __future__ import annotations

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
