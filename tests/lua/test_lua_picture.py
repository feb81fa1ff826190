"""picture.lua on every Lua, with small screens of our own."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from lua import VERSIONS, Lua

ORDERS = {"BGRA": [2, 1, 0, 3], "ARGB": [3, 0, 1, 2]}  # of red, green, blue, alpha


@pytest.fixture(params=VERSIONS)
def lua(request: pytest.FixtureRequest) -> Lua:
    return Lua(request.param)


def screen(width: int, height: int) -> npt.NDArray[np.uint8]:
    """Give a screen on which no two pixels are alike: (height, width, 4)."""
    colours = np.random.default_rng(1).permutation(1 << 16)[: width * height]
    pixels = np.stack([colours % 256, colours // 256, colours % 251, colours * 0 + 255], axis=1)
    return pixels.astype(np.uint8).reshape(height, width, 4)


def shrink(
    lua: Lua, pixels: npt.NDArray[np.uint8], most: tuple[int, int], order: str = "BGRA"
) -> npt.NDArray[np.uint8]:
    height, width, _ = pixels.shape
    data = pixels[:, :, ORDERS[order]].tobytes()
    across, down, got = lua.load("picture.lua")[b"shrink"](
        *most, data, width, height, order.encode()
    )
    assert len(got) == 3 * across * down
    return np.frombuffer(got, np.uint8).reshape(down, across, 3)


@pytest.mark.parametrize("order", ORDERS)
def test_a_small_screen_keeps_every_pixel(lua: Lua, order: str) -> None:
    pixels = screen(5, 3)
    assert (shrink(lua, pixels, (160, 120), order) == pixels[:, :, :3]).all()


@pytest.mark.parametrize("order", ORDERS)
def test_a_large_one_keeps_the_pixels_in_the_middle_of_each_part(lua: Lua, order: str) -> None:
    pixels = screen(12, 6)
    small = shrink(lua, pixels, (4, 2), order)
    assert (small == pixels[1::3, 1::3, :3]).all()


@pytest.mark.parametrize(("width", "height"), [(176, 223), (1552, 40), (256, 240), (161, 1)])
def test_each_side_is_fitted_alone(lua: Lua, width: int, height: int) -> None:
    pixels = screen(width, height)
    small = shrink(lua, pixels, (160, 120))
    assert small.shape == (min(height, 120), min(width, 160), 3)
    rows = ((np.arange(small.shape[0]) + 0.5) * height / small.shape[0]).astype(int)
    columns = ((np.arange(small.shape[1]) + 0.5) * width / small.shape[1]).astype(int)
    assert (small == pixels[rows][:, columns, :3]).all()


@pytest.mark.parametrize("size", [(0, 0), (4, 0), (0, 3), (4, 3)])
def test_without_a_whole_screen_there_is_no_picture(lua: Lua, size: tuple[int, int]) -> None:
    pick = lua.load("picture.lua")[b"shrink"]
    assert pick(160, 120, bytes(40), *size, b"BGRA") is None
    assert pick(160, 120, None, None, None, None) is None


def test_an_unknown_order_is_named(lua: Lua) -> None:
    with pytest.raises(Exception, match="pixels in the order 'GRAY' are not known"):
        lua.load("picture.lua")[b"shrink"](160, 120, bytes(48), 4, 3, b"GRAY")
