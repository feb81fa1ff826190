"""explore.lua, rehearsal.lua and mame_inventory.lua on every Lua, with machines of our own."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from lua import VERSIONS, Lua

PORT, BUTTON = ":JOY", "Fire"


@pytest.fixture(params=VERSIONS)
def lua(request: pytest.FixtureRequest) -> Lua:
    return Lua(request.param)


def table(lua: Lua, **items: Any) -> Any:
    """Make a Lua table of what may also be functions."""
    made = lua.runtime.table()
    for name, value in items.items():
        made[name.encode()] = value
    return made


# --- explore.lua --------------------------------------------------------------------------------


class Machine:
    """Two bytes of RAM: one counts frames, one adds up the button. States are kept as MAME does."""

    def __init__(self) -> None:
        self.ram = [0, 0]
        self.held = 0
        self.states: dict[bytes, list[int]] = {}
        self.asked: list[tuple[str, bytes]] = []
        self.cleared = 0

    def advance(self) -> None:
        """Carry out what was asked for, then run one frame."""
        for what, name in self.asked:
            if what == "save":
                self.states[name] = list(self.ram)
            else:
                self.ram = list(self.states[name])
        self.asked = []
        self.ram = [(self.ram[0] + 1) % 256, (self.ram[1] + self.held) % 256]

    def set(self, port: bytes, name: bytes, value: int) -> None:
        assert (port, name) == (PORT.encode(), BUTTON.encode())
        self.held = value

    def clear(self, port: bytes, name: bytes) -> None:
        self.held, self.cleared = 0, self.cleared + 1

    def table(self, lua: Lua) -> Any:
        return table(
            lua,
            read_range=lambda first, last: bytes(self.ram[int(first) : int(last) + 1]),
            set=self.set,
            clear=self.clear,
            save=lambda name: self.asked.append(("save", name)),
            load=lambda name: self.asked.append(("load", name)),
            inventory=lambda: lua.table(["one", "two"]),
        )


class Files:
    """Files that are opened for writing."""

    def __init__(self, lua: Lua) -> None:
        self._lua = lua
        self.written: dict[str, bytes] = {}
        self.closed: list[str] = []

    def open(self, name: bytes) -> Any:
        file = name.decode()
        self.written[file] = b""

        def write(_: Any, *parts: bytes) -> None:
            self.written[file] += b"".join(parts)

        return table(self._lua, write=write, close=lambda _: self.closed.append(file))


def explore(lua: Lua, plan: dict[str, Any], frames: int) -> tuple[Machine, Files, list[str]]:
    """Carry a plan out and give the machine, the files and what was said."""
    machine, files, said = Machine(), Files(lua), []
    options = table(
        lua,
        machine=machine.table(lua),
        plan=lua.table(plan),
        open=files.open,
        say=lambda text: said.append(text.decode()),
        done=lambda: said.append("done"),
    )
    exploration = lua.load("explore.lua")[b"new"](options)
    for _ in range(frames):
        machine.advance()
        exploration[b"frame"](exploration)
    return machine, files, said


def test_scenes_start_from_saved_moments_and_are_recorded_row_by_row(lua: Lua) -> None:
    held = [[0, PORT, BUTTON, 1], [3, PORT, BUTTON, 0]]
    plan = {
        "ram": [[0, 0], [1, 1]],
        "scenes": [
            {"frames": 5, "steps": [[2, PORT, BUTTON, 1]], "save": "start"},
            {"from": "start", "frames": 6, "steps": held, "record": "held"},
            {"from": "start", "frames": 6, "steps": [], "record": "idle"},
            {"from": "start", "frames": 6, "steps": held, "record": "again"},
        ],
    }
    machine, files, said = explore(lua, plan, 60)
    held_rows = list(struct.iter_unpack("2B", files.written["held"]))
    idle_rows = list(struct.iter_unpack("2B", files.written["idle"]))
    first = idle_rows[0]
    assert idle_rows == [(first[0] + frame, first[1]) for frame in range(6)]
    # Set after row 0, so row 1 shows it; let go after row 3.
    assert [row[1] - first[1] for row in held_rows] == [0, 1, 2, 3, 3, 3]
    assert files.written["again"] == files.written["held"]
    assert [row[0] for row in held_rows] == [row[0] for row in idle_rows]
    assert files.closed == ["held", "idle", "again"]
    assert machine.held == 0 and machine.cleared == 3
    assert said == ["done"]


def test_inputs_are_given_back_at_a_scenes_end(lua: Lua) -> None:
    plan = {
        "ram": [[1, 1]],
        "scenes": [
            {"frames": 3, "steps": [[0, PORT, BUTTON, 1]]},
            {"frames": 4, "steps": [], "record": "after"},
        ],
    }
    _, files, _ = explore(lua, plan, 10)
    assert len(set(files.written["after"])) == 1


def test_the_inventory_comes_first_and_progress_is_told(lua: Lua) -> None:
    plan = {"inventory": "list", "ram": [], "scenes": [{"frames": 700, "steps": []}]}
    _, files, said = explore(lua, plan, 720)
    assert files.written["list"] == b"one\ntwo\n"
    assert said == ["explored 300 frames", "explored 600 frames", "done"]


# --- mame_inventory.lua -------------------------------------------------------------------------


def test_inputs_and_ram_are_listed_in_order(lua: Lua) -> None:
    machine = lua.runtime.eval(
        b"""{
          ioport = {
            input_type_to_token = function(_, kind, player)
              return "P" .. (player + 1) .. "_" .. kind
            end,
            ports = {
              [":JOY"] = {fields = {
                ["P1 Fire"] = {enabled = true, is_analog = false, mask = 32, defvalue = 32,
                               type = "BUTTON1", type_class = "controller", player = 0},
                ["%p Fire"] = {enabled = true, is_analog = false, mask = 32, player = 0},
                ["Off"] = {enabled = false, is_analog = false, mask = 1, player = 0},
              }},
              [":POT"] = {fields = {
                ["Paddle 2"] = {enabled = true, is_analog = true, mask = 255, minvalue = 0,
                                maxvalue = 255, defvalue = 128, type = "PADDLE",
                                type_class = "controller", player = 1},
              }},
            },
          },
          devices = {[":maincpu"] = {spaces = {program = {map = {entries = {
            {address_start = 0, address_end = 127, read = {handlertype = "delegate"},
             write = {handlertype = "delegate"}},
            {address_start = 128, address_end = 255, read = {handlertype = "ram"},
             write = {handlertype = "ram"}},
          }}}}}},
        }"""
    )
    lines = lua.plain(lua.load("mame_inventory.lua")[b"list"](machine))
    assert lines == [
        b"input\t:JOY\tP1 Fire\tdigital\t32\t\t\t32\tcontroller\t1\tP1_BUTTON1",
        b"input\t:POT\tPaddle 2\tanalog\t255\t0\t255\t128\tcontroller\t2\tP2_PADDLE",
        b"ram\t128\t255",
    ]


def test_a_machine_without_a_main_processor_has_no_ram(lua: Lua) -> None:
    machine = lua.runtime.eval(b"{ioport = {ports = {}}, devices = {}}")
    assert lua.plain(lua.load("mame_inventory.lua")[b"list"](machine)) in ([], {})


# --- rehearsal.lua ------------------------------------------------------------------------------

GAME = b"""{
  observation = {dtype = "%s", shape = {2}},
  actions = {discrete = {{name = "stick", choices = 3}},
             continuous = {{name = "dial", low = -1, high = 3}}},
  rewards = {"gold", "pain"},
}"""


class Rehearsal:
    """A rehearsal of a game with two values, a stick and a dial."""

    def __init__(self, lua: Lua, dtype: str = "uint8") -> None:
        self.lua = lua
        self.said: list[str] = []
        self._number = 0
        options = table(
            lua,
            game=lua.runtime.eval(GAME.replace(b"%s", dtype.encode())),
            random=self._random,
            log=lambda text: self.said.append(text.decode()),
        )
        self.link = lua.load("rehearsal.lua")[b"new"](options)

    def _random(self, most: int) -> int:
        self._number += 7
        return self._number % (int(most) + 1)

    def play(self, observation: bytes = b"ab", flags: int = 0, **changes: Any) -> Any:
        frame = {"flags": flags, "rewards": [0, 0], "observation": observation, **changes}
        lua_frame = self.lua.table(frame)
        lua_frame[b"observation"] = observation
        return self.lua.plain(self.link[b"exchange"](self.link, lua_frame))

    def close(self) -> list[str]:
        self.link[b"close"](self.link, b"done")
        return self.said


def test_actions_are_random_and_within_their_ranges(lua: Lua) -> None:
    rehearsal = Rehearsal(lua)
    assert rehearsal.link[b"join"](rehearsal.link)
    actions = [rehearsal.play() for _ in range(60)]
    assert {action[b"discrete"][0] for action in actions} == {0, 1, 2}
    values = [action[b"continuous"][0] for action in actions]
    assert min(values) >= -1 and max(values) <= 3 and len(set(values)) > 10


def test_what_was_seen_is_summed_up(lua: Lua) -> None:
    rehearsal = Rehearsal(lua)
    rehearsal.play(flags=4, rewards=[9, 9])  # counts for nothing: the first frame of an episode
    rehearsal.play(b"ac", rewards=[2, -1])
    rehearsal.play(flags=1, rewards=[3, 0])
    rehearsal.play(flags=4)
    rehearsal.play(flags=2, rewards=[0, -0.5])
    assert rehearsal.close() == [
        "observation: 1 of 2 values (uint8) changed",
        "reward gold: +5 and -0 in 5 decisions",
        "reward pain: +0 and -1.5 in 5 decisions",
        "episodes: 2 over (1 terminal, 1 truncated), mean return 1.75",
    ]


def test_what_nobody_could_learn_from_is_warned_of(lua: Lua) -> None:
    quiet = Rehearsal(lua)
    quiet.play(flags=4)
    quiet.play()
    told = "\n".join(quiet.close())
    for words in ("the observation never changed", "no reward was earned", "no episode ended"):
        assert f"warning: {words}" in told
    assert "warning: no decision was made" in Rehearsal(lua).close()[-1]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"observation": b"abc"}, "observation.read gave 3 bytes; 2 uint8 values are 2"),
        ({"rewards": [1]}, "reward gave 1 numbers; rewards names 2"),
        ({"rewards": [1, float("nan")]}, "reward 'pain' is .*nan, not a finite number"),
        ({"rewards": [float("inf"), 0]}, "reward 'gold' is inf, not a finite number"),
        ({"info": [["level", True]]}, r"info\[1\] must be a name and a number or a text"),
        ({"expert": {"discrete": [3], "continuous": [0]}}, "chose 3.* for 'stick'; .* 0 to 2"),
        ({"expert": {"discrete": [1], "continuous": [4]}}, "chose 4.* for 'dial'; .* -1 to 3"),
        ({"expert": {"continuous": [0]}}, "the expert chose nil for 'stick'"),
    ],
)
def test_what_a_server_would_refuse_is_named(lua: Lua, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(Exception, match=words):
        Rehearsal(lua).play(**changes)


def test_numbers_that_are_not_finite_are_found_in_an_observation(lua: Lua) -> None:
    rehearsal = Rehearsal(lua, "float32")
    for value in (0.0, -1.5, 3.4e38, -3.4e38, 1e-42):
        rehearsal.play(struct.pack("<2f", 1.0, value))
    for value in (float("nan"), float("inf"), float("-inf")):
        with pytest.raises(Exception, match="value 2 of the observation is not a finite number"):
            rehearsal.play(struct.pack("<2f", 1.0, value))


def test_good_info_and_a_good_expert_pass(lua: Lua) -> None:
    rehearsal = Rehearsal(lua)
    rehearsal.play(
        info=[["level", 3], ["place", "cave"]], expert={"discrete": [2], "continuous": [-1]}
    )
