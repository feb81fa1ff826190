"""Small pictures from large screens."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from client_py.picture import shrink
from server.net import wire


def noise(*shape: int) -> Any:
    return np.random.default_rng(2).integers(0, 256, shape, np.uint8)


@pytest.mark.parametrize(
    ("shape", "square", "expected"),
    [
        ((120, 160, 3), True, (160, 120)),
        ((60, 80, 3), True, (80, 60)),
        ((400, 600, 3), True, (160, 107)),
        ((600, 400, 3), True, (80, 120)),
        ((1, 2000, 3), True, (160, 1)),
        ((2000, 1), True, (1, 120)),
        ((210, 160, 3), True, (91, 120)),
        ((210, 160, 3), False, (160, 120)),
        ((40, 500, 1), False, (160, 40)),
    ],
)
def test_the_size_of_the_picture(
    shape: tuple[int, ...], square: bool, expected: tuple[int, int]
) -> None:
    picture = shrink(noise(*shape), square=square)
    assert picture is not None
    assert (picture.width, picture.height) == expected
    assert wire.read_control(wire.unpack(wire.encode(picture)[4:])) == picture


def test_it_holds_the_pixels_in_the_middle_of_each_part() -> None:
    screen = noise(360, 480, 3)
    picture = shrink(screen)
    assert picture is not None
    assert picture.pixels == screen[1::3, 1::3].tobytes()


def test_grey_becomes_rgb() -> None:
    screen = noise(3, 4)
    picture = shrink(screen)
    assert picture is not None
    assert picture.pixels == np.repeat(screen[:, :, None], 3, axis=2).tobytes()


@pytest.mark.parametrize(
    "screen",
    [
        np.array(None),
        np.zeros(128, np.uint8),
        np.zeros((4, 84, 84), np.uint8),
        np.zeros((84, 84, 3), np.float32),
        np.zeros((0, 84, 3), np.uint8),
        np.zeros((2, 2, 2, 2), np.uint8),
    ],
    ids=["nothing", "a vector", "a stack", "floats", "empty", "too deep"],
)
def test_what_is_no_screen_gives_no_picture(screen: Any) -> None:
    assert shrink(screen) is None
