"""A small picture of a screen, as the wire carries it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from server.net.wire import Preview

WIDTH, HEIGHT = 160, 120  # at most; the server takes larger ones, but these do for people


def shrink(screen: NDArray[Any], *, square: bool = True) -> Preview | None:
    """Pick the pixels of a small picture from a screen: (height, width[, channels]) of uint8.

    Square pixels keep their shape; those of a television, 4 to 3 as a whole, fill the picture.
    Give None for an array that is no such screen.
    """
    if screen.ndim == 2:
        screen = screen[:, :, None]
    if screen.ndim != 3 or screen.dtype != np.uint8 or screen.shape[2] not in (1, 3):
        return None
    down, across, _ = screen.shape
    if not down or not across:
        return None
    scale = min(1.0, WIDTH / across, HEIGHT / down)
    width = max(1, round(across * scale)) if square else min(across, WIDTH)
    height = max(1, round(down * scale)) if square else min(down, HEIGHT)
    small = screen[_picked(down, height)][:, _picked(across, width)]
    pixels = np.broadcast_to(small, (height, width, 3))  # grey is as much red as green and blue
    return Preview(width, height, pixels.tobytes())


def _picked(size: int, small: int) -> NDArray[np.intp]:
    """Give the place in the middle of each of the parts that an axis is cut into."""
    return ((np.arange(small) + 0.5) * size / small).astype(np.intp)
