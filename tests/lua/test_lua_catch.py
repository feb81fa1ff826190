"""games/catch.lua on every Lua, with a cartridge's memory of our own."""

from __future__ import annotations

from typing import Any

import pytest
from lua import VERSIONS, Lua

PHASE, BASKET_X, APPLE_X, APPLE_Y, DRIFT, SPEED, SCORE, MISSES = range(0x500, 0x508)
SEED = 0x509


@pytest.fixture(params=VERSIONS)
def lua(request: pytest.FixtureRequest) -> Lua:
    return Lua(request.param)


class Console:
    """A machine with 2 KB of RAM and buttons."""

    def __init__(self, lua: Lua) -> None:
        self.memory = bytearray(0x800)
        self.buttons: dict[bytes, int] = {}
        self.machine: Any = lua.runtime.table()
        for name, function in {
            b"read": lambda at: self.memory[at],
            b"read_range": lambda first, last: bytes(self.memory[first : last + 1]),
            b"write": self.memory.__setitem__,
            b"press": self.buttons.__setitem__,
            b"release": self.buttons.clear,
            b"random": lambda most: 0xA5,
        }.items():
            self.machine[name] = function


def test_what_is_seen(lua: Lua) -> None:
    console, game = Console(lua), lua.game("catch")
    console.memory[PHASE : MISSES + 1] = bytes([1, 116, 0, 0, 0, 24, 0, 0])
    read = game[b"observation"][b"read"]
    assert lua.plain(read(console.machine, None)) == [0, 0, 0, 0, 0, -1, 0]
    # An apple half a basket to the right, halfway down, drifting to the left.
    console.memory[APPLE_X : SPEED + 1] = bytes([116 + 8 + 12, 116, 255, 40])
    seen = lua.plain(read(console.machine, None))
    assert seen == [0, pytest.approx(12 / 108), 0.5, 0, -1, 1, 1]
    console.memory[BASKET_X] = 8
    assert lua.plain(read(console.machine, None))[:3] == [-1, 1, 1]


def test_what_is_pressed(lua: Lua) -> None:
    console, actions = Console(lua), lua.game("catch")[b"actions"]
    for move, buttons in enumerate([(0, 0), (1, 0), (0, 1)]):
        actions[b"apply"](console.machine, lua.table({"discrete": [move], "continuous": []}))
        assert console.buttons == {b"left": buttons[0], b"right": buttons[1]}
    actions[b"release"](console.machine)
    assert console.buttons == {}


def test_a_game_from_the_title_to_its_end(lua: Lua) -> None:
    console, game = Console(lua), lua.game("catch")
    episode, state = game[b"episode"], lua.runtime.table()
    pressed = []
    for frame in range(1, 50):
        assert not episode[b"ready"](console.machine, frame)
        pressed.append(console.buttons[b"start"])
    assert pressed == [0] * 29 + [1] * 6 + [0] * 14
    console.memory[PHASE] = 1
    assert episode[b"ready"](console.machine, 50)
    episode[b"begin"](console.machine, state)
    assert console.memory[SEED : SEED + 2] == b"\xa5\xa5"
    reward = game[b"reward"]
    assert lua.plain(reward(console.machine, state)) == [0, 0]
    console.memory[SCORE] = 3
    assert lua.plain(reward(console.machine, state)) == [3, 0]
    console.memory[MISSES] = 5
    assert episode[b"over"](console.machine, state) is None
    console.memory[PHASE] = 2
    assert lua.plain(reward(console.machine, state)) == [0, -5]
    assert episode[b"over"](console.machine, state) == b"terminal"
    assert lua.plain(game[b"info"](console.machine, state)) == [[b"score", 3], [b"misses", 5]]


def test_inputs_that_name_no_place_are_told(lua: Lua) -> None:
    game = lua.game("catch")
    game[b"inputs"][b"mame"][b"left"] = b":JOYPAD"
    problems = lua.plain(lua.load("game.lua")[b"problems"](game))
    assert problems == [b"inputs.mame.left must be {port, field}"]
