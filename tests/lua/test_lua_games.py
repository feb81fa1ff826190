"""The games on every Lua: hand-made memory, hand-drawn screens, and ALE's own word."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ale_py
import numpy as np
import pytest
from ale_py import roms
from lua import ROOT, VERSIONS, Lua

from client_py.games import CARTRIDGES

GAMES = sorted(path.stem for path in (ROOT / "client_lua" / "games").glob("*.lua"))


@pytest.fixture(params=VERSIONS)
def lua(request: pytest.FixtureRequest) -> Lua:
    return Lua(request.param)


class Atari:
    """A console: its 128 bytes of RAM, its inputs, and a game that looks at them."""

    def __init__(self, lua: Lua, name: str) -> None:
        self.ram = bytearray(128)
        self.inputs: dict[str, int] = {}
        self.game = lua.game(name)
        self.state = lua.runtime.table()
        self.machine = lua.runtime.table()
        self._lua = lua
        for function, value in {
            b"read": lambda address: self.ram[address - 0x80],
            b"read_range": lambda first, last: bytes(self.ram[first - 0x80 : last - 0x7F]),
            b"press": lambda name, value: self.inputs.__setitem__(name.decode(), value),
            b"release": self.inputs.clear,
            b"set": lambda port, field, value: self.inputs.__setitem__(field.decode(), value),
        }.items():
            self.machine[function] = value

    def begin(self) -> None:
        self.state = self._lua.runtime.table()
        self.game[b"episode"][b"begin"](self.machine, self.state)

    def observe(self) -> list[float]:
        return list(self._lua.plain(self.game[b"observation"][b"read"](self.machine, self.state)))

    def earn(self) -> list[float]:
        return list(self._lua.plain(self.game[b"reward"](self.machine, self.state)))

    def over(self) -> Any:
        return self.game[b"episode"][b"over"](self.machine, self.state)

    def info(self) -> dict[bytes, Any]:
        return dict(self._lua.plain(self.game[b"info"](self.machine, self.state)))

    def act(self, discrete: list[int], continuous: list[float]) -> dict[str, int]:
        action = self._lua.table({"discrete": discrete, "continuous": continuous})
        self.game[b"actions"][b"apply"](self.machine, action, self.state)
        return self.inputs

    def boot(self, frames: int) -> list[tuple[int, bool]]:
        """Give, frame by frame, whether Reset is pressed and whether the game is ready."""
        seen = []
        for frame in range(1, frames + 1):
            ready = bool(self.game[b"episode"][b"ready"](self.machine, frame))
            seen.append((self.inputs["reset"], ready))
        return seen


@pytest.mark.parametrize("name", GAMES)
def test_every_game_is_right(lua: Lua, name: str) -> None:
    game = lua.game(name)
    assert game[b"name"] == name.encode()
    assert (ROOT / "client_lua" / "games" / f"{name}.toml").exists()


@pytest.mark.parametrize(("name", "frames"), [("breakout2600", 120), ("spaceinvaders2600", 200)])
def test_the_console_is_reset_once_and_then_ready(lua: Lua, name: str, frames: int) -> None:
    seen = Atari(lua, name).boot(frames)
    assert [frame for frame, (reset, _) in enumerate(seen, 1) if reset] == list(range(30, 40))
    assert [frame for frame, (_, ready) in enumerate(seen, 1) if ready] == [frames]


# --- Breakout ---------------------------------------------------------------------------------

WALL = [63] * 6 + [255] * 24 + [192] * 6


def breakout(lua: Lua) -> Atari:
    """Give a game with all its bricks and the ball in the middle, above the paddle's right end."""
    atari = Atari(lua, "breakout2600")
    atari.ram[0:36] = bytes(WALL)
    atari.ram[99], atari.ram[101], atari.ram[72], atari.ram[108] = 128, 115, 111, 8
    atari.ram[57] = 5
    atari.begin()
    return atari


def test_breakout_sees_ball_paddle_and_wall(lua: Lua) -> None:
    atari = breakout(lua)
    middle = (111 + 9 - 128) / 72
    first = atari.observe()
    expected = [0, 0, 0, 0, middle, 0, 1, 8 / 40, 0, 1, *[1] * 6]
    assert first == [pytest.approx(value) for value in expected]
    atari.ram[99] += 8
    atari.ram[101] -= 4
    atari.ram[72] -= 12
    atari.ram[108] = 4
    second = atari.observe()
    assert second[:4] == [pytest.approx(v) for v in (8 / 72, -4 / 95, 0.5, -0.25)]
    assert second[5:8] == [pytest.approx(v) for v in (-0.5, 0.5, 32 / 40)]


def test_breakout_counts_bricks_by_row(lua: Lua) -> None:
    atari = breakout(lua)
    atari.ram[6] = 0xCF  # two bits of the second register: a brick of the lowest row
    atari.ram[12] = 0x0F  # two bricks of the half register; its low four bits are none
    for register in range(6):
        atari.ram[6 * register + 5] = 0x0F if register == 2 else 0
    assert atari.observe()[10:] == [pytest.approx(v) for v in (15 / 18, 1, 1, 1, 1, 0)]


def test_a_new_ball_of_breakout_has_no_speed(lua: Lua) -> None:
    atari = breakout(lua)
    atari.observe()
    atari.ram[101] = 0
    assert atari.observe()[:4] + atari.observe()[7:9] == [0, 0, 0, 0, 0, 1]
    atari.ram[101] = 120
    assert atari.observe()[2:4] == [0, 0]
    atari.ram[101] = 190
    assert atari.observe()[2:4] == [0, 0]  # 70 lines in one decision: another ball


def test_breakout_turns_its_paddle_and_serves(lua: Lua) -> None:
    atari = breakout(lua)
    assert atari.act([], [10.4]) == {"knob": 281 - 121, "button": 0}
    atari.ram[72] = 60
    assert atari.act([], [-24])["knob"] == 281 - 55  # the left wall
    atari.ram[101] = 0
    assert atari.act([], [0]) == {"knob": 281 - 60, "button": 1}
    atari.game[b"actions"][b"release"](atari.machine)
    assert atari.inputs == {}


def test_breakout_pays_points_and_takes_balls(lua: Lua) -> None:
    atari = breakout(lua)
    atari.ram[77] = 0x97
    atari.begin()
    assert atari.earn() == [0, 0]
    atari.ram[76], atari.ram[77] = 0x01, 0x04  # 97 and 7 are 104
    assert atari.earn() == [7, 0]
    assert atari.info() == {b"score": 104, b"lives": 5}
    atari.ram[57] = 4
    assert atari.earn() == [0, -1]
    assert atari.over() is None
    atari.ram[57] = 0
    assert atari.over() == b"terminal"


def test_a_ball_that_never_ends_is_cut_off(lua: Lua) -> None:
    atari = breakout(lua)
    atari.state[b"frames"] = 108_000 - 2
    assert atari.over() is None
    assert atari.over() == b"truncated"


# --- Space Invaders ---------------------------------------------------------------------------

OWN, SHOT, BOMBS, COLUMNS, SHIELDS = 0, 9, 12, 18, 30
SHIELD = bytes([60, 126, 126, 126, 126, 255, 255, 255, 195])


def invaders(lua: Lua) -> Atari:
    """Give the start of a game: nothing flies, the third column is right above the player."""
    atari = Atari(lua, "spaceinvaders2600")
    ram = atari.ram
    ram[17:25] = bytes([36, *[63] * 6, 82])
    ram[26], ram[28], ram[30], ram[73] = 44, 76, 180, 3
    ram[43:70] = SHIELD * 3
    ram[81:87] = bytes([246, 246, 63, 63, 246, 246])
    atari.begin()
    return atari


def test_space_invaders_sees_the_start(lua: Lua) -> None:
    seen = invaders(lua).observe()
    assert len(seen) == 33
    assert seen[OWN:SHOT] == [0, 0, pytest.approx(0.1), 0, 1, 1, 1, 0, 0]
    assert seen[SHOT:COLUMNS] == [0] * 9
    aside = [-32 / 40, -16 / 40, 0, 16 / 40, 32 / 40, 1]
    assert seen[COLUMNS:SHIELDS:2] == [pytest.approx(value) for value in aside]
    assert seen[COLUMNS + 1 : SHIELDS : 2] == [1] * 6
    assert seen[SHIELDS:] == [1, 1, 1]


def test_space_invaders_sees_what_has_changed(lua: Lua) -> None:
    atari = invaders(lua)
    atari.observe()
    ram = atari.ram
    ram[28] += 4
    ram[16], ram[24] = 20, 80  # lower, and to the left
    for row in range(18, 24):
        ram[row] = 0b011110  # the first and the last column are gone
    ram[18] = 0b001110
    ram[17], ram[30], ram[73] = 23, 120, 2
    ram[43:52] = bytes(9)
    seen = atari.observe()
    expected = [4 / 41, 0.5, 0.1, 0.5, -1, 23 / 36, 2 / 3, 1, 0.5]
    assert seen[OWN:SHOT] == [pytest.approx(value) for value in expected]
    assert seen[COLUMNS : COLUMNS + 2] == [0, 0]
    assert seen[COLUMNS + 3 : SHIELDS : 2] == [1, 1, 1, pytest.approx(5 / 6), 0]
    assert seen[SHIELDS:] == [0, 1, 1]


@pytest.mark.parametrize("swapped", [False, True])
def test_the_lower_bomb_comes_first(lua: Lua, swapped: bool) -> None:
    atari = invaders(lua)
    low, high = (96, 90), (64, 60)  # y and x; the muzzle is at 80
    (atari.ram[81], atari.ram[83]), (atari.ram[82], atari.ram[84]) = (
        (high, low) if swapped else (low, high)
    )
    seen = atari.observe()
    assert seen[BOMBS : BOMBS + 6] == [1, 0.25, 0.75, 1, -0.5, 0.5]
    atari.ram[81 if swapped else 82] = 246
    assert atari.observe()[BOMBS : BOMBS + 6] == [1, 0.25, 0.75, 0, 0, 0]
    atari.ram[85], atari.ram[87] = 32, 80
    assert atari.observe()[SHOT : SHOT + 3] == [1, 0, 0.25]


@pytest.mark.parametrize(
    ("choice", "pressed"),
    [
        ([0, 0], {"right": 0, "left": 0, "fire": 0}),
        ([1, 1], {"right": 1, "left": 0, "fire": 1}),
        ([2, 0], {"right": 0, "left": 1, "fire": 0}),
    ],
)
def test_space_invaders_moves_and_fires(
    lua: Lua, choice: list[int], pressed: dict[str, int]
) -> None:
    assert invaders(lua).act(choice, []) == pressed


def test_space_invaders_pays_points_and_ends(lua: Lua) -> None:
    atari = invaders(lua)
    atari.ram[102], atari.ram[104] = 0x01, 0x95
    atari.begin()
    atari.ram[102], atari.ram[104] = 0x02, 0x25  # 195 and 30 are 225
    assert atari.earn() == [3, 0]
    assert atari.info() == {b"score": 225, b"lives": 3}
    atari.ram[102], atari.ram[104] = 0x99, 0x90
    atari.earn()
    atari.ram[102], atari.ram[104] = 0x00, 0x10  # the counter starts again
    assert atari.earn() == [2, 0]
    decides = atari.game[b"decide"]
    assert decides(atari.machine, atari.state)
    atari.ram[42] = 4  # hit, for many frames
    assert [atari.earn(), atari.earn()] == [[0, -1], [0, 0]]
    assert not decides(atari.machine, atari.state)
    assert atari.over() is None
    atari.ram[24] = 0x80 + 82  # landed
    assert atari.over() == b"terminal"
    atari.ram[24], atari.ram[73] = 82, 0
    assert atari.over() == b"terminal"


# --- Pong, the arcade machine -----------------------------------------------------------------

SEGMENTS = {  # x and y of each segment of a digit, both ends
    "a": (0, 62, 16, 19), "b": (47, 62, 16, 31), "c": (47, 62, 28, 47), "d": (0, 62, 44, 47),
    "e": (0, 15, 28, 47), "f": (0, 15, 16, 31), "g": (0, 62, 28, 31),
}  # fmt: skip
DIGITS = ["abcdef", "bc", "abged", "abgcd", "fgbc", "afgcd", "fgecd", "abc", "abcdefg", "abcfg"]


class Cabinet:
    """The screen of the machine, drawn by the test, and its inputs."""

    def __init__(self, lua: Lua) -> None:
        self.screen = np.zeros((240, 1552, 4), np.uint8)
        self.inputs: dict[str, float] = {}
        self.game = lua.game("pongarcade")
        self.looks = 0
        self._lua = lua
        self.machine = lua.runtime.table()
        self.machine[b"pixels"] = self._pixels
        self.machine[b"press"] = lambda name, value: self.inputs.__setitem__(name.decode(), value)
        self.state = lua.runtime.table()
        self.game[b"episode"][b"begin"](self.machine, self.state)

    def _pixels(self) -> tuple[bytes, int, int, bytes]:
        self.looks += 1
        return self.screen.tobytes(), 1552, 240, b"BGRA"

    def draw(
        self,
        own: int | None = 100,
        enemy: int | None = 100,
        ball: tuple[int, int] | None = None,
        score: tuple[int, int] = (0, 0),
    ) -> None:
        """Draw paddles by their upper ends, the ball by its upper left corner, and both scores."""
        self.screen[:] = 0
        self.screen[::8, 737:740] = self.screen[1::8, 737:740] = 255  # the net is dashed
        for x, y in ((1248, own), (225, enemy)):
            if y is not None:
                self.screen[y : y + 14, x : x + 14] = 255
        for x, points in ((1183, score[0]), (415, score[1])):
            self._digit(x, points % 10)
            if points >= 10:
                self.screen[16:48, x - 81 : x - 65] = 199
        if ball is not None:
            self.screen[ball[1] : ball[1] + 4, ball[0] : ball[0] + 15] = 255

    def _digit(self, x: int, digit: int) -> None:
        for segment in DIGITS[digit]:
            left, right, top, bottom = SEGMENTS[segment]
            self.screen[top : bottom + 1, x + left : x + right + 1] = 199

    def decide(self) -> tuple[float, list[float]]:
        """Let the four frames of a decision pass; give what was earned and what is seen."""
        earned = sum(
            self._lua.plain(self.game[b"reward"](self.machine, self.state))[0] for _ in range(4)
        )
        seen = self.game[b"observation"][b"read"](self.machine, self.state)
        return earned, self._lua.plain(seen)

    def over(self) -> Any:
        return self.game[b"episode"][b"over"](self.machine, self.state)

    def turn(self, by: float) -> dict[str, float]:
        action = self._lua.table({"discrete": [], "continuous": [by]})
        self.game[b"actions"][b"apply"](self.machine, action, self.state)
        return self.inputs


def test_pong_is_read_from_the_screen(lua: Lua) -> None:
    cabinet = Cabinet(lua)
    cabinet.draw(own=100, enemy=60)
    first = cabinet.decide()[1]
    assert first == [pytest.approx(v) for v in (-13.5 / 110, -53.5 / 110, *[0] * 7, 1)]
    cabinet.draw(own=116, enemy=60, ball=(800, 120))
    second = cabinet.decide()[1]
    assert second[2:6] == [pytest.approx(v) for v in (30 / 520, 0, 0, 0)]
    assert second[6:] == [pytest.approx(v) for v in (0.5, 0, -0.5 / 60, 0)]
    cabinet.draw(own=116, enemy=60, ball=(832, 112))
    third = cabinet.decide()[1]
    assert third[4:6] == [pytest.approx(v) for v in (0.5, -0.5)]
    assert cabinet.looks == 3  # one for each decision, not for each frame


def test_the_ball_is_found_everywhere(lua: Lua) -> None:
    cabinet = Cabinet(lua)
    for x in (0, 1, 217, 225, 232, 238, 730, 738, 745, 1000, 1240, 1250, 1262, 1537):
        for y in (0, 3, 57, 234, 236):
            cabinet.draw(ball=(x, y))
            seen = cabinet.decide()[1]
            assert seen[9] == 0
            # A paddle or the net beside it may look like a part of it.
            assert seen[2] == pytest.approx((x - 770) / 520, abs=15 / 520)
            assert seen[3] == pytest.approx((y - 120) / 110, abs=1e-6)
            assert seen[:2] == [pytest.approx(-13.5 / 110)] * 2  # and it is taken for no paddle


def test_pong_pays_points_won_and_lost(lua: Lua) -> None:
    cabinet = Cabinet(lua)
    cabinet.draw()
    assert cabinet.decide()[0] == 0
    for points in range(1, 12):
        cabinet.draw(score=(points, points - 1))
        assert cabinet.decide()[0] == 1
        assert cabinet.over() == (b"terminal" if points == 11 else None)
        cabinet.draw(score=(points, points))
        assert cabinet.decide()[0] == -1
    info = dict(lua.plain(cabinet.game[b"info"](cabinet.machine, cabinet.state)))
    assert info == {b"score": 11, b"enemy": 11}


def test_a_hidden_or_half_drawn_digit_is_no_point(lua: Lua) -> None:
    cabinet = Cabinet(lua)
    cabinet.draw(score=(0, 0), ball=(1210, 28))  # a white spot in the middle of the own 0
    assert cabinet.decide()[0] == 0
    cabinet.draw(score=(7, 0))  # nobody wins seven points at once
    assert cabinet.decide()[0] == 0
    cabinet.screen[20:30, 1183:1246] = 0  # no digit at all
    assert cabinet.decide()[0] == 0
    cabinet.draw(score=(1, 0))
    assert cabinet.decide()[0] == 1


def test_without_paddles_the_game_is_over(lua: Lua) -> None:
    cabinet = Cabinet(lua)
    cabinet.draw()
    cabinet.decide()
    assert cabinet.over() is None
    cabinet.draw(own=None, enemy=None, ball=(500, 100))
    cabinet.decide()
    assert cabinet.over() == b"terminal"


def test_pong_turns_the_knob_and_its_ends_hold(lua: Lua) -> None:
    cabinet = Cabinet(lua)
    cabinet.draw()
    cabinet.decide()
    assert cabinet.turn(10)["own"] == 102  # down is a lower value
    for _ in range(9):
        cabinet.turn(-24)
    assert cabinet.inputs["own"] == 222
    for _ in range(9):
        cabinet.turn(24)
    assert cabinet.inputs["own"] == 44


def test_the_opponent_follows_slowly_what_comes_to_it(lua: Lua) -> None:
    cabinet = Cabinet(lua)
    cabinet.draw(enemy=114, ball=(700, 200))
    cabinet.decide()
    cabinet.turn(0)
    assert cabinet.inputs["enemy"] == 112  # in the middle, and no ball is known to come
    cabinet.draw(enemy=114, ball=(668, 190))
    cabinet.decide()
    cabinet.turn(0)
    assert cabinet.inputs["enemy"] == 108  # four frames after it, down
    cabinet.draw(enemy=180, ball=(700, 20))
    cabinet.decide()
    cabinet.turn(0)
    assert cabinet.inputs["enemy"] == 112  # it goes away: back to the middle


# --- ALE's own word ---------------------------------------------------------------------------


class Ale:
    """The same cartridge in ALE: its RAM is what the game file reads."""

    def __init__(self, rom: str, atari: Atari) -> None:
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
        self.ale = ale_py.ALEInterface()
        self.ale.setFloat("repeat_action_probability", 0.0)
        self.ale.loadROM(Path(roms.get_rom_path(rom)))
        self._atari = atari
        self._look()

    def act(self, action: ale_py.Action) -> int:
        reward: int = self.ale.act(action)
        self._look()
        return reward

    def _look(self) -> None:
        self._atari.ram[:] = self.ale.getRAM().tobytes()


MOVES = {
    "pong2600": ("pong", ["NOOP", "RIGHT", "LEFT"], 1),
    "breakout2600": ("breakout", ["FIRE", "RIGHT", "LEFT"], 1),
    "spaceinvaders2600": ("space_invaders", ["FIRE", "RIGHTFIRE", "LEFTFIRE", "LEFT"], 10),
}


@pytest.mark.parametrize("name", MOVES)
def test_score_lives_and_end_are_those_of_ale(name: str) -> None:
    rom, moves, points = MOVES[name]
    atari = Atari(Lua("lua53"), name)
    ale, rng = Ale(rom, atari), np.random.default_rng(3)
    actions = [getattr(ale_py.Action, move) for move in moves]
    atari.begin()
    total = ends = frames = 0
    while frames < 12_000 and not ends:
        action = actions[rng.integers(len(actions))]
        for _ in range(5):
            frames += 1
            reward = ale.act(action)
            total += reward
            assert atari.earn()[0] * points == pytest.approx(reward)
            assert (atari.over() is not None) == ale.ale.game_over(), frames
            if ale.ale.game_over():
                ends += 1
                break
            info = atari.info()
            assert info.get(b"lives", 0) == ale.ale.lives()
            assert info[b"score"] - info.get(b"enemy", 0) == total
    assert ends == 1
    assert total != 0


@pytest.mark.parametrize("name", ["pong2600", "breakout2600"])
def test_both_clients_see_the_same_features(name: str) -> None:
    rom, moves, _ = MOVES[name]
    atari = Atari(Lua("lua53"), name)
    ale, rng = Ale(rom, atari), np.random.default_rng(4)
    features = CARTRIDGES[rom].features
    atari.begin()
    atari.observe()  # nothing has a speed yet
    before = bytes(atari.ram)
    for _ in range(400):
        action = getattr(ale_py.Action, moves[rng.integers(len(moves))])
        for _ in range(4):
            ale.act(action)
        ram = bytes(atari.ram)
        # The first ten are the same; after them come bricks by column there, by row here.
        seen = atari.observe()[:10]
        assert seen == [pytest.approx(value) for value in features(ram, before)[:10]]
        before = ram
