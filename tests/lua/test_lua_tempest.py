"""Tempest on every Lua: features, rewards, episodes and the expert, from a memory image of ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cabinet import (
    COIN,
    FIRE,
    FLIPPER,
    FUSEBALL,
    HIGH_SCORE,
    LEVEL_SELECT,
    LEVELS,
    NEXT_TUBE,
    PAUSE,
    PLAY,
    PULSAR,
    SPIKER,
    START,
    TANKER,
    ZAP,
    ZOOM,
    Cabinet,
    Program,
)
from lua import VERSIONS, Lua

LAYOUT = {
    "state": 5,
    "player": 5,
    "own_lane": 16,
    "buttons": 2,
    "game": 4,
    "tube": 2,
    "counts": 4,
    "alive": 5,
    "room": 5,
    "speed": 5,
    "pulse": 3,
    "enemies": 7 * 14,
    "own_shots": 8 * 3,
    "hostile_shots": 4 * 3,
    "spikes": 16,
    "angles": 16,
}


class Stage:
    """The game, a cabinet, and the machine between them."""

    def __init__(self, version: str) -> None:
        self.lua = Lua(version)
        self.game = self.lua.game("tempest")
        self.cabinet = Cabinet()
        self.machine = self.cabinet.machine(self.lua, self.game)
        self.state = self.lua.table({"settings": {"start_level": 1}})

    def features(self) -> dict[str, list[float]]:
        """Give the observation, cut into its blocks."""
        values = self.lua.plain(self.game[b"observation"][b"read"](self.machine, self.state))
        assert len(values) == sum(LAYOUT.values())
        blocks, start = {}, 0
        for name, size in LAYOUT.items():
            blocks[name] = values[start : start + size]
            start += size
        return blocks

    def begin(self) -> None:
        assert self.game[b"episode"][b"begin"](self.machine, self.state) is True

    def reward(self) -> list[float]:
        rewards: list[float] = self.lua.plain(self.game[b"reward"](self.machine, self.state))
        return rewards

    def decides(self) -> bool:
        return bool(self.game[b"decide"](self.machine, self.state))

    def over(self) -> Any:
        return self.game[b"episode"][b"over"](self.machine, self.state)

    def expert(self) -> tuple[float, int, int]:
        """Give the expert's way (in lanes, as far as one tick goes), fire and zap."""
        proposal = self.lua.plain(self.game[b"expert"](self.machine, self.state))
        fire, zap = proposal[b"discrete"]
        return proposal[b"continuous"][0] * 31 / 16, fire, zap

    def apply(self, fire: int, zap: int, spinner: float) -> None:
        action = self.lua.table({"discrete": [fire, zap], "continuous": [spinner]})
        self.game[b"actions"][b"apply"](self.machine, action)


@pytest.fixture(params=VERSIONS)
def stage(request: pytest.FixtureRequest) -> Stage:
    return Stage(request.param)


# --- features -----------------------------------------------------------------------------------


def test_the_layout_is_what_is_announced(stage: Stage) -> None:
    assert stage.lua.plain(stage.game[b"observation"][b"shape"]) == [sum(LAYOUT.values())] == [222]
    assert stage.lua.plain(stage.game[b"rewards"]) == [b"score", b"death", b"safety"]


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (PLAY, [1, 0, 0, 0, 0]),
        (ZOOM, [0, 1, 0, 0, 0]),
        (PAUSE, [0, 0, 1, 0, 0]),
        (NEXT_TUBE, [0, 0, 0, 1, 0]),
        (HIGH_SCORE, [0, 0, 0, 0, 1]),
    ],
)
def test_the_state_is_one_of_five(stage: Stage, state: int, expected: list[int]) -> None:
    stage.cabinet.playing()
    stage.cabinet.ram[0x00] = state
    assert stage.features()["state"] == expected


def test_the_player_and_the_game(stage: Stage) -> None:
    cabinet, ram = stage.cabinet, stage.cabinet.ram
    cabinet.playing(lane=3, place=4)
    cabinet.spike(3, 0x80)
    ram[0x4D] = 0x10
    ram[0x9F], ram[0x48], ram[0x3AA], ram[0x125] = 8, 3, 1, 7
    ram[0x112] = 5
    ram[0x108], ram[0x109], ram[0x3AB], ram[0x135] = 3, 1, 16, 2
    seen = stage.features()
    assert seen["player"] == [1, pytest.approx(3 / 15), 0.25, 0, 0.5]
    assert seen["own_lane"] == [0, 0, 0, 1] + [0] * 12
    assert seen["buttons"] == [1, 0]
    assert seen["game"] == [pytest.approx(9 / 99), 0.5, 0.5, 1]
    assert seen["tube"] == [0, pytest.approx(1 / 3)]
    assert seen["counts"] == [pytest.approx(3 / 7), pytest.approx(1 / 7), 0.25, 0.25]
    ram[0x4D], ram[0x201], ram[0x202], ram[0x3AA], ram[0x125] = 0x08, 0x81, 0x80, 0, 0
    seen = stage.features()
    assert seen["player"][0] == 0
    assert seen["player"][3] == 0.5
    assert seen["buttons"] == [0, 1]
    assert seen["game"][2:] == [1, 0]


def test_what_is_known_of_each_kind_and_of_the_pulse(stage: Stage) -> None:
    cabinet, ram = stage.cabinet, stage.cabinet.ram
    cabinet.playing()
    ram[0x142:0x147] = bytes([7, 0, 1, 2, 3])
    ram[0x13D:0x142] = bytes([0, 7, 0, 0, 0])
    ram[0x160:0x165] = bytes([0x80, 0xA0, 0, 0, 0])
    ram[0x165:0x16A] = bytes([0xFE, 0xFE, 0, 0xF0, 0xFF])
    ram[0x147], ram[0x148] = 0xFC, 0xE0
    seen = stage.features()
    assert seen["alive"] == pytest.approx([1, 0, 1 / 7, 2 / 7, 3 / 7])
    assert seen["room"] == [0, 1, 0, 0, 0]
    # 16-bit two's complement: $FE80 is -1.5 a tick, $FEA0 -1.375, $F000 -16, $FF00 -1.
    assert seen["speed"] == [1.5 / 16, 1.375 / 16, 0, 1, 1 / 16]
    assert seen["pulse"] == [-0.5, -0.5, 0]
    cabinet.pulse(True)
    assert stage.features()["pulse"] == [-0.5, 0.125, 1]


def test_the_enemies(stage: Stage) -> None:
    cabinet = stage.cabinet
    cabinet.playing(lane=3)
    cabinet.enemy(0, FLIPPER | 0xC0, lane=15, depth=0x80, angle=0x84)
    cabinet.enemy(2, TANKER, lane=5, depth=0xF0, state=0x43)
    cabinet.enemy(5, FUSEBALL, lane=3, depth=0x10, state=0x80)
    cabinet.enemy(6, PULSAR | 0x40, lane=11, depth=0x48)
    cabinet.pulse(True)
    seen = stage.features()["enemies"]
    slots = [seen[14 * slot : 14 * slot + 14] for slot in range(7)]
    # there, kind (5), way, depth, flipping, direction, angle, descending, cargo, pulsing
    assert slots[0] == pytest.approx([1, 1, 0, 0, 0, 0, -4 / 15, 0.5, 1, 1, 0.25, 0, 0, 0])
    assert slots[1] == [0] * 14
    assert slots[2] == pytest.approx([1, 0, 0, 1, 0, 0, 2 / 15, 1, 0, -1, 0, 0, 1, 0])
    # A fuseball's direction bit means the opposite.
    assert slots[5] == [1, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0]
    assert slots[6] == pytest.approx([1, 0, 1, 0, 0, 0, -8 / 15, 0.25, 0, 1, 0, 0, 0, 1])


def test_an_open_tube_has_no_way_around(stage: Stage) -> None:
    stage.cabinet.playing(lane=1)
    stage.cabinet.enemy(0, SPIKER, lane=14, depth=0x80)
    assert stage.features()["enemies"][6] == pytest.approx(-3 / 15)
    stage.cabinet.playing(lane=1, open_tube=True)
    assert stage.features()["enemies"][6] == pytest.approx(13 / 15)
    assert stage.features()["tube"][0] == 1


def test_shots_spikes_and_angles(stage: Stage) -> None:
    cabinet = stage.cabinet
    cabinet.playing(lane=10)
    cabinet.own_shot(0, lane=10, depth=0x10)
    cabinet.own_shot(7, lane=12, depth=0x80)
    cabinet.hostile_shot(3, lane=7, depth=0x48)
    cabinet.spike(0, 0x20)
    cabinet.spike(15, 0xF0)
    cabinet.ram[0x3EE : 0x3EE + 16] = bytes(range(16))
    seen = stage.features()
    assert seen["own_shots"] == pytest.approx([1, 0, 0] + [0] * 18 + [1, 2 / 15, 0.5])
    assert seen["hostile_shots"] == pytest.approx([0] * 9 + [1, -3 / 15, 0.25])
    assert seen["spikes"] == pytest.approx([1 - 16 / 224] + [0] * 15)
    assert seen["angles"] == [lane / 16 for lane in range(16)]


# --- rewards ------------------------------------------------------------------------------------


def test_points_are_decimal_and_bonuses_count_nothing(stage: Stage) -> None:
    cabinet = stage.cabinet
    cabinet.playing()
    cabinet.score(950)
    stage.begin()
    assert stage.reward() == [0, 0, 0]
    cabinet.score(1_100)  # a flipper; the digits carry
    assert stage.reward()[0] == pytest.approx(0.15)
    assert stage.reward()[0] == 0
    cabinet.score(2_100)
    assert stage.reward()[0] == 1
    cabinet.score(8_101)  # the bonus for the level
    assert stage.reward()[0] == 0
    cabinet.score(8_104)
    assert stage.reward()[0] == pytest.approx(0.003)
    cabinet.score(999_900)
    assert stage.reward()[0] == 0
    cabinet.score(1_000_050)  # the counter starts again
    assert stage.reward()[0] == 0


def test_a_death_costs_once(stage: Stage) -> None:
    cabinet = stage.cabinet
    cabinet.playing()
    stage.begin()
    cabinet.ram[0x201] = 0x81
    assert [stage.reward()[1] for _ in range(3)] == [-1, 0, 0]
    cabinet.playing()
    assert stage.reward()[1] == 0
    cabinet.ram[0x201] = 0x80
    assert stage.reward()[1] == -1


def test_free_lanes_earn_a_trickle_each_tick(stage: Stage) -> None:
    cabinet = stage.cabinet
    cabinet.playing(lane=0)
    stage.begin()

    def safety() -> float:
        cabinet.tick()
        return stage.reward()[2]

    assert safety() == pytest.approx(0.001)
    assert stage.reward()[2] == 0  # the same tick
    cabinet.enemy(0, FLIPPER, lane=15, depth=0x50)
    cabinet.enemy(1, FLIPPER, lane=15, depth=0x30)
    cabinet.enemy(2, FLIPPER, lane=2, depth=0x10)
    assert safety() == pytest.approx(0.001 * 2 / 3)
    cabinet.hostile_shot(0, lane=0, depth=0x20)
    assert safety() == pytest.approx(0.001 / 3)
    cabinet.enemy(0, FLIPPER, lane=15, depth=0x51)
    cabinet.enemy(1, FLIPPER, lane=1, depth=0x11)
    assert safety() == pytest.approx(0.001 / 3)
    cabinet.ram[0x00] = ZOOM
    assert safety() == 0
    cabinet.playing(lane=0)
    cabinet.ram[0x201] = 0x81
    assert safety() == 0


# --- controls and episodes ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spinner", "written"), [(0, 0), (1, 256 - 31), (-1, 31), (16 / 31, 240), (0.001, 0)]
)
def test_the_spinner_is_written_as_a_signed_turn(
    stage: Stage, spinner: float, written: int
) -> None:
    stage.apply(0, 0, spinner)
    assert stage.cabinet.ram[0x50] == written


def test_buttons_are_pressed_and_let_go(stage: Stage) -> None:
    stage.apply(1, 0, 0.5)
    assert stage.cabinet.inputs == {FIRE: 1, ZAP: 0}
    stage.apply(0, 1, 0.5)
    assert stage.cabinet.inputs == {FIRE: 0, ZAP: 1}
    stage.game[b"actions"][b"release"](stage.machine)
    assert stage.cabinet.inputs == {}
    assert stage.cabinet.ram[0x50] == 0


def test_one_decision_a_tick_while_alive(stage: Stage) -> None:
    cabinet = stage.cabinet
    cabinet.playing()
    stage.begin()
    assert not stage.decides()
    cabinet.tick()
    assert [stage.decides(), stage.decides()] == [True, False]
    cabinet.ram[0x201] = 0x81
    cabinet.tick()
    assert not stage.decides()
    cabinet.playing()
    assert not stage.decides()  # in the same tick
    cabinet.tick()
    assert stage.decides()


def test_what_ends_an_episode(stage: Stage) -> None:
    cabinet = stage.cabinet
    for state in (PLAY, PAUSE, NEXT_TUBE, ZOOM, 0x02, 0x06, 0x0E, 0x1E):
        cabinet.playing()
        cabinet.ram[0x00] = state
        assert stage.over() is None, state
    for address, value in ((0x48, 0), (0x05, 0x00), (0x00, HIGH_SCORE), (0x00, 0x10)):
        cabinet.playing()
        cabinet.ram[address] = value
        assert stage.over() == b"terminal", (address, value)


class Episodes:
    """The real player with a running cabinet; the server's side is ours."""

    def __init__(self, version: str, **settings: Any) -> None:
        self.lua = lua = Lua(version)
        self.program = Program()
        self.frames: list[dict[bytes, Any]] = []
        self.log: list[str] = []
        self.spinner = 0.0
        game = lua.game("tempest")
        self.link = lua.runtime.table()
        self.link[b"settings"] = lua.runtime.table()
        self.link[b"exchange"] = self._exchange
        self.link[b"log"] = lambda text: self.log.append(text.decode())
        # The server is met, and its settings are known, when the link is asked to join.
        self.link[b"join"] = lambda link: self.push(**settings)
        options = lua.table({})
        options[b"game"], options[b"link"] = game, self.link
        options[b"machine"] = self.program.machine(lua, game)
        options[b"wire"] = lua.load("wire.lua")
        options[b"random"] = lambda most: most
        self.player = lua.load("player.lua")[b"new"](options)

    def push(self, **settings: Any) -> None:
        for name, value in settings.items():
            self.link[b"settings"][name.encode()] = value

    def _exchange(self, link: Any, frame: Any) -> Any:
        self.frames.append(self.lua.plain(frame))
        return self.lua.table({"discrete": [1, 0], "continuous": [self.spinner]})

    def run_until(self, done: Callable[[], bool], most: int = 4000) -> None:
        for _ in range(most):
            if done():
                return
            self.program.frame()
            self.player[b"frame"](self.player)
        raise AssertionError(f"not within {most} frames: {self.program.ticks[-50:]}")

    @property
    def level(self) -> int:
        return self.program.ram[0x9F] + 1


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def test_from_power_on_to_game_over_and_again(version: str) -> None:
    show = Episodes(version)
    program = show.program
    show.run_until(lambda: program.saved == 1)
    assert (program.ram[0x00], program.ram[0x04], program.coins) == (LEVEL_SELECT, 0x10, 1)
    assert program.inputs == {}
    assert not show.frames
    show.run_until(lambda: program.loaded == 1)
    first, *rest, last = show.frames
    assert [first[b"flags"], last[b"flags"]] == [4, 1]
    assert {frame[b"flags"] for frame in rest} == {0}
    assert first[b"info"] == [[b"score", 0], [b"level", 1], [b"lives", 2]]
    assert dict(last[b"info"])[b"lives"] == 0
    # Two lives of 50 ticks with a pause of 20 before the second; none while dead.
    assert 2 * 48 + 18 <= len(show.frames) <= 2 * 50 + 20 + 1
    deaths = [place for place, frame in enumerate(show.frames) if frame[b"rewards"][1]]
    assert len(deaths) == 2
    assert deaths[1] == len(show.frames) - 1
    assert all(len(frame[b"observation"]) == 4 * 222 for frame in show.frames)
    # The next episode begins at the same place, with no second coin.
    show.run_until(lambda: program.loaded == 2)
    assert [frame[b"flags"] for frame in show.frames].count(4) == 2
    assert (program.coins, program.saved) == (1, 1)


@pytest.mark.parametrize(
    ("wanted", "level"), [(1, 1), (2, 1), (9, 9), (10, 9), (30, 28), (80, 73), (81, 81)]
)
def test_the_start_level_is_what_the_server_pushed(wanted: int, level: int) -> None:
    show = Episodes("lua54", start_level=wanted)
    show.run_until(lambda: bool(show.frames))
    assert show.level == level
    assert dict(show.frames[0][b"info"])[b"level"] == level
    assert show.program.ram[0x127] == max(4, LEVELS.index(level))
    assert show.log == []


def test_a_changed_start_level_counts_from_the_next_episode(version: str) -> None:
    show = Episodes(version, start_level=9)
    show.run_until(lambda: bool(show.frames))
    show.link[b"join"] = lambda link: True
    show.push(start_level=33)
    show.run_until(lambda: show.program.loaded == 1)
    assert dict(show.frames[-1][b"info"])[b"level"] == 9
    show.run_until(lambda: show.frames[-1][b"flags"] == 4)
    assert show.level == 33


def test_a_start_level_that_cannot_be_is_told(version: str) -> None:
    show = Episodes(version, start_level=500, no_such_setting=1)
    show.run_until(lambda: bool(show.frames))
    assert show.level == 81
    assert show.log == ["the server's start_level = 500 is not within 1 to 81; taking 81"]
    show.push(start_level="high")
    show.run_until(lambda: show.program.loaded == 1)
    assert show.log[1:] == ["the server's start_level = 'high' is not a number; it stays 81"]


@pytest.mark.parametrize(("spinner", "lanes"), [(1, [14, 15, 1, 3]), (-1, [14, 12, 10, 8])])
def test_the_spinner_turns_toward_higher_and_lower_lanes(spinner: int, lanes: list[int]) -> None:
    show = Episodes("luajit21")
    show.spinner = spinner
    show.run_until(lambda: len(show.frames) == 5)
    seen = [np.frombuffer(frame[b"observation"], "<f4") for frame in show.frames]
    assert [int(np.argmax(values[10:26])) for values in seen[:4]] == lanes


def test_it_gets_out_of_an_attract_mode_that_it_is_thrown_into(version: str) -> None:
    show = Episodes(version)
    show.run_until(lambda: show.program.saved == 1)
    show.program.ram[0x05], show.program.ram[0x00] = 0x00, PAUSE
    show.run_until(lambda: bool(show.frames))
    assert show.program.coins == 2
    assert START not in show.program.inputs
    assert COIN not in show.program.inputs


# --- the expert ---------------------------------------------------------------------------------

Situation = Callable[[Cabinet], None]


def enemies(*placed: tuple[int, int, int]) -> Situation:
    def put(cabinet: Cabinet) -> None:
        for slot, (kind, lane, depth) in enumerate(placed):
            cabinet.enemy(slot, kind, lane, depth)

    return put


def pulsing(*placed: tuple[int, int, int]) -> Situation:
    def put(cabinet: Cabinet) -> None:
        enemies(*placed)(cabinet)
        cabinet.pulse(True)

    return put


def shot_at(lane: int, depth: int) -> Situation:
    return lambda cabinet: cabinet.hostile_shot(0, lane, depth)


MOST = 31 / 16  # lanes in one tick


@pytest.mark.parametrize(
    ("situation", "way"),
    [
        # The player is in lane 4 of a closed tube.
        pytest.param(enemies(), 0, id="nobody: stay"),
        pytest.param(enemies((FLIPPER, 5, 0x80)), 1, id="go to the prey's lane"),
        pytest.param(enemies((FLIPPER, 15, 0x80)), -MOST, id="the shorter way around"),
        pytest.param(
            enemies((FLIPPER, 3, 0x30), (FUSEBALL, 5, 0xE0)), 1, id="fuseball before flipper"
        ),
        pytest.param(enemies((TANKER, 3, 0x30), (FLIPPER, 5, 0xE0)), 1, id="flipper before tanker"),
        pytest.param(enemies((SPIKER, 3, 0x30), (TANKER, 5, 0xE0)), 1, id="tanker before spiker"),
        pytest.param(enemies((PULSAR, 3, 0x30), (SPIKER, 5, 0xE0)), 1, id="spiker before pulsar"),
        pytest.param(enemies((PULSAR, 3, 0x30)), -1, id="a pulsar between pulses"),
        pytest.param(
            enemies((FLIPPER, 3, 0x80), (FLIPPER, 5, 0x60)), 1, id="of a kind, the nearest to us"
        ),
        pytest.param(enemies((FLIPPER, 5, 0x10)), 0, id="beside a flipper on the rim: stay"),
        pytest.param(enemies((FLIPPER, 6, 0x18)), 1, id="stop one lane before one that is close"),
        pytest.param(enemies((FLIPPER, 4, 0x10)), 1, id="in our lane on the rim: away"),
        pytest.param(pulsing((PULSAR, 4, 0x80)), 1, id="leave a pulsing lane"),
        pytest.param(pulsing((PULSAR, 4, 0xD0)), 0, id="a pulse far down is harmless"),
        pytest.param(pulsing((PULSAR, 5, 0x80)), 0, id="a pulsing pulsar is not hunted"),
        pytest.param(
            pulsing((PULSAR, 5, 0x80), (FLIPPER, 5, 0x90)), 0, id="no prey in a pulsing lane"
        ),
        pytest.param(
            pulsing((PULSAR, 6, 0x80), (FLIPPER, 6, 0x90)), 1, id="but from the lane before it"
        ),
        pytest.param(shot_at(4, 0x20), 1, id="dodge a shot that is nearly here"),
        pytest.param(shot_at(4, 0x60), 0, id="a shot far off is shot down"),
        pytest.param(shot_at(5, 0x20), 0, id="a shot in another lane"),
    ],
)
def test_where_the_expert_turns(stage: Stage, situation: Situation, way: float) -> None:
    stage.cabinet.playing(lane=4)
    situation(stage.cabinet)
    assert stage.expert()[0] == pytest.approx(way)


def test_the_expert_knows_the_ends_of_an_open_tube(stage: Stage) -> None:
    stage.cabinet.playing(lane=14, open_tube=True)
    stage.cabinet.enemy(0, FLIPPER, lane=0, depth=0x80)
    assert stage.expert()[0] == pytest.approx(-MOST)
    shot_at(14, 0x20)(stage.cabinet)
    stage.cabinet.enemy(0, FLIPPER, lane=14, depth=0x80)
    assert stage.expert()[0] == pytest.approx(-1)


def test_a_long_way_out_of_danger_is_the_shorter_one(stage: Stage) -> None:
    stage.cabinet.playing(lane=0)
    stage.cabinet.pulse(True)
    for slot, lane in enumerate((13, 14, 15, 0, 1, 2, 3)):
        stage.cabinet.enemy(slot, PULSAR, lane, 0x40)
    assert stage.expert()[0] == pytest.approx(MOST)  # four lanes up
    stage.cabinet.enemy(0, PULSAR, 4, 0x40)
    assert stage.expert()[0] == pytest.approx(-MOST)  # three lanes down


@pytest.mark.parametrize("before", [False, True])
def test_in_a_zoom_the_expert_takes_the_shortest_spike(stage: Stage, before: bool) -> None:
    cabinet = stage.cabinet
    cabinet.playing(lane=4)
    cabinet.ram[0x00] = PAUSE if before else ZOOM
    cabinet.ram[0x02] = ZOOM
    cabinet.enemy(0, FLIPPER, lane=9, depth=0x10)  # left behind on the rim
    for lane in range(16):
        cabinet.spike(lane, 0x40)
    cabinet.spike(3, 0xA0)
    assert stage.expert() == (pytest.approx(-1), 1, 0)
    cabinet.spike(5, 0)  # none at all
    assert stage.expert()[0] == pytest.approx(1)
    cabinet.spike(4, 0)
    assert stage.expert()[0] == 0


def test_the_expert_fires_nearly_always(stage: Stage) -> None:
    cabinet = stage.cabinet
    cabinet.playing(lane=4)
    for shots, fire in ((0, 1), (6, 1), (7, 0), (8, 0)):
        cabinet.ram[0x135] = shots
        assert stage.expert()[1] == fire
    cabinet.ram[0x135] = 7
    cabinet.enemy(0, FLIPPER, lane=6, depth=0x10)
    assert stage.expert()[1] == 0
    cabinet.enemy(0, FLIPPER, lane=5, depth=0x10)
    assert stage.expert()[1] == 1


def test_the_expert_zaps_a_crowd_on_the_rim(stage: Stage) -> None:
    cabinet, ram = stage.cabinet, stage.cabinet.ram
    cabinet.playing(lane=4)
    ram[0x109] = 2
    assert stage.expert()[2] == 0
    ram[0x109] = 3
    assert stage.expert()[2] == 1
    ram[0x125] = 5  # at work
    assert stage.expert()[2] == 0
    ram[0x125], ram[0x3AA] = 0, 2  # used up
    assert stage.expert()[2] == 0
    ram[0x3AA], ram[0x00] = 1, ZOOM
    assert stage.expert()[2] == 0
