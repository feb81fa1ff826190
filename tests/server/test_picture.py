"""The PNG writer, read back by hand."""

from __future__ import annotations

from random import Random

import numpy as np
import png
from hypothesis import given
from hypothesis import strategies as st

from server import picture


def test_a_picture_of_four_colours() -> None:
    red, green, blue, white = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)
    data = picture.png(2, 2, bytes([*red, *green, *blue, *white]))
    assert png.decode(data).tolist() == [[[*red], [*green]], [[*blue], [*white]]]


@given(st.integers(1, 64), st.integers(1, 64), st.integers(0))
def test_any_picture_comes_back(width: int, height: int, seed: int) -> None:
    pixels = Random(seed).randbytes(3 * width * height)
    decoded = png.decode(picture.png(width, height, pixels))
    assert decoded.shape == (height, width, 3)
    assert decoded.tobytes() == pixels


def test_a_plain_picture_is_small() -> None:
    data = picture.png(160, 120, bytes(3 * 160 * 120))
    assert len(data) < 400
    assert np.count_nonzero(png.decode(data)) == 0
