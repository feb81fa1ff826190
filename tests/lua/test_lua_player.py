"""player.lua and game.lua on every Lua, with a machine and a link of our own."""

from __future__ import annotations

from typing import Any

import pytest
from lua import VERSIONS, Lua

from server.net import wire

GAMES = ("pong2600",)


@pytest.fixture(params=VERSIONS)
def lua(request: pytest.FixtureRequest) -> Lua:
    return Lua(request.param)


class Stage:
    """A player of a counting game: the score is the frame number, an episode lasts five frames."""

    def __init__(self, lua: Lua, **changes: Any) -> None:
        self.lua = lua
        self.frames: list[dict[bytes, Any]] = []
        self.inputs: list[str] = []
        self.score = 0
        self.answers = True
        game = lua.runtime.eval(
            b"""function(stage, skip) return {
              name = "count", frame_skip = skip,
              observation = {dtype = "uint8", shape = {1},
                             read = function() return string.char(stage.score()) end},
              actions = {discrete = {{name = "stick", choices = 3}},
                         apply = function(_, action) stage.input(action.discrete[1]) end,
                         release = function() stage.input("release") end},
              rewards = {"score"},
              reward = function() return {1} end,
              episode = {ready = function(_, frame) return frame >= 3 end,
                         over = function(_, state)
                           state.age = (state.age or 0) + 1
                           return state.age >= 6 and "terminal" or nil
                         end,
                         idle_frames = 0},
            } end"""
        )(self._table(score=lambda: self.score, input=self._input), changes.get("skip", 1))
        link = self._table(exchange=self._exchange)
        self.link = link
        self.machine = machine = self._table(
            save=lambda: self.inputs.append("save"), load=lambda: self.inputs.append("load")
        )
        options = self._table(game=game, wire=lua.load("wire.lua"), link=link, machine=machine)
        options[b"frame_skip"] = changes.get("forced_skip")
        self.player = lua.load("player.lua")[b"new"](options)

    def _table(self, **items: Any) -> Any:
        table = self.lua.runtime.table()
        for name, value in items.items():
            table[name.encode()] = value
        return table

    def _input(self, value: Any) -> None:
        self.inputs.append(value.decode() if isinstance(value, bytes) else f"{value:g}")

    def _exchange(self, link: Any, frame: Any) -> Any:
        self.frames.append(self.lua.plain(frame))
        return self.lua.table({"discrete": [1], "continuous": []}) if self.answers else None

    def run(self, frames: int) -> None:
        for _ in range(frames):
            self.score += 1
            self.player[b"frame"](self.player)


def test_an_episode_from_start_to_end(lua: Lua) -> None:
    stage = Stage(lua)
    stage.run(12)
    assert [f[b"flags"] for f in stage.frames[:7]] == [4, 0, 0, 0, 0, 0, 1]
    assert [f[b"rewards"][0] for f in stage.frames[:7]] == [0, 1, 1, 1, 1, 1, 1]
    assert [f[b"observation"][0] for f in stage.frames[:7]] == [4, 5, 6, 7, 8, 9, 10]
    # Released before the state is kept, an input per decision, then back to the kept state.
    assert stage.inputs == ["release", "save", *["1"] * 7, "release", "load"]
    stage.run(20)
    assert [f[b"flags"] for f in stage.frames[7:14]] == [4, 0, 0, 0, 0, 0, 1]


def test_a_frame_skip_adds_up_the_rewards(lua: Lua) -> None:
    stage = Stage(lua, skip=4)
    stage.run(12)
    assert [(f[b"flags"], f[b"rewards"][0]) for f in stage.frames] == [(4, 0), (0, 4), (1, 2)]


def test_an_info_is_sent_when_it_is_news(lua: Lua) -> None:
    stage = Stage(lua)
    told = {"level": 1}
    stage.player[b"game"][b"info"] = lambda machine, state: lua.table(
        [[name, value] for name, value in told.items()]
    )
    stage.player[b"game"][b"episode"][b"over"] = lambda machine, state: None
    stage.run(6)
    told["level"] = 2
    stage.run(70)
    infos = [frame.get(b"info") for frame in stage.frames]
    assert infos[0] == [[b"level", 1]]  # at a start
    assert infos[1] is None
    changed = infos.index([[b"level", 2]])
    assert infos[changed + 1 : changed + 60] == [None] * 59
    assert infos[changed + 60] == [[b"level", 2]]  # now and then, for who has come since


def test_a_picture_every_so_many_decisions(lua: Lua) -> None:
    stage, asked = Stage(lua), []

    def picture(*most: int) -> tuple[int, int, bytes]:
        asked.append(most)
        return 2, 1, bytes([stage.score] * 6)

    def shown() -> list[Any]:
        frames, stage.frames = stage.frames, []
        return [frame.get(b"preview") for frame in frames]

    stage.machine[b"picture"] = picture
    stage.run(5)
    assert shown() == [None, None]  # not connected yet: nobody asked
    stage.link[b"connected"], stage.link[b"settings"] = True, lua.table({"preview_every": 3})
    stage.run(4)
    third = wire.encode(wire.Preview(2, 1, bytes([6] * 6)))
    assert shown() == [third, None, None, wire.encode(wire.Preview(2, 1, bytes([9] * 6)))]
    assert asked == [(160, 120)] * 2
    stage.link[b"settings"][b"preview_every"] = 0
    stage.run(20)
    assert set(shown()) == {None}
    assert len(asked) == 2


def test_a_machine_without_a_screen_sends_no_pictures(lua: Lua) -> None:
    stage = Stage(lua)
    stage.link[b"connected"], stage.link[b"settings"] = True, lua.table({"preview_every": 1})
    stage.run(5)
    stage.machine[b"picture"] = lambda *most: None
    stage.run(5)
    assert not any(b"preview" in frame for frame in stage.frames)


def test_a_frame_skip_of_the_person_wins_over_the_games(lua: Lua) -> None:
    stage = Stage(lua, skip=4, forced_skip=2)
    stage.run(12)
    assert [f[b"rewards"][0] for f in stage.frames[:4]] == [0, 2, 2, 2]


def test_without_an_answer_the_controls_are_released(lua: Lua) -> None:
    stage = Stage(lua)
    stage.answers = False
    stage.run(6)
    assert set(stage.inputs[2:]) == {"release"}


@pytest.mark.parametrize("name", GAMES)
def test_the_games_are_right(lua: Lua, name: str) -> None:
    problems = lua.load("game.lua")[b"problems"](lua.load(f"games/{name}.lua"))
    assert lua.plain(problems) in ([], {})


def test_a_wrong_game_is_told_everything_that_is_wrong(lua: Lua) -> None:
    check = lua.load("game.lua")[b"check"]
    wrong = lua.runtime.eval(
        b"""{ name = 7, observation = {dtype = "float32", shape = {1}}, actions = {},
              rewards = {"r"}, reward = function() end, episode = "none" }"""
    )
    with pytest.raises(Exception, match=r"the game file wrong\.lua is not right") as caught:
        check(wrong, b"wrong.lua")
    for words in (
        "name must be a string, not a number",
        "observation.read is missing: a function",
        "actions.apply is missing",
        "episode must be a table, not a string",
    ):
        assert words in str(caught.value)
    assert lua.plain(lua.load("game.lua")[b"problems"](7))[0] == (
        b"a game file must return a table, not a number"
    )


RIGHT = """{ name = "g", observation = {dtype = "float32", shape = {1}, read = print},
  actions = {discrete = {{name = "stick", choices = 2}}, apply = print, release = print},
  rewards = {"r"}, reward = print, episode = {ready = print, over = print} }"""


@pytest.mark.parametrize(
    ("right", "wrong", "words"),
    [
        ("{ name", "{ frameskip = 4, name", "frameskip is no field of a game"),
        ("{ready", "{idle_frame = 0, ready", "episode.idle_frame is no field of a game"),
        ("{dtype", "{size = 1, dtype", "observation.size is no field of a game"),
        ("{ name", "{ frame_skip = 0, name", "frame_skip must be 1 or more, not 0"),
        ("shape = {1}", "shape = {0}", "observation.shape[1] must be 1 or more, not 0"),
        ("choices = 2", "choices = 0", "actions.discrete[1].choices must be 1 or more"),
        ('{"r"}', "{7}", "rewards[1] must be a name, not 7"),
        (
            "apply",
            'continuous = {{name = "x", low = 1, high = 1}}, apply',
            "actions.continuous[1].low must be less than its high",
        ),
    ],
)
def test_what_would_be_ignored_is_named_too(lua: Lua, right: str, wrong: str, words: str) -> None:
    problems = lua.load("game.lua")[b"problems"]
    assert lua.plain(problems(lua.runtime.eval(RIGHT.encode()))) in ([], {})
    (found,) = lua.plain(problems(lua.runtime.eval(RIGHT.replace(right, wrong, 1).encode())))
    assert words in found.decode()


def test_pong_reads_its_ram(lua: Lua) -> None:
    """A memory image of our own: own paddle, ball, scores."""
    memory = {0x80 + 49: 136, 0x80 + 50: 121, 0x80 + 51: 163, 0x80 + 54: 125}
    game = lua.load("games/pong2600.lua")
    machine = lua.runtime.table()
    machine[b"read_range"] = lambda first, last: bytes(
        memory.get(address, 0) for address in range(int(first), int(last) + 1)
    )
    state = lua.runtime.table()
    read = game[b"observation"][b"read"]
    first = lua.plain(read(machine, state))
    assert first[:6] == [pytest.approx(0.5), 0, 0, 0, 0, 0]
    memory[0x80 + 49] += 8
    memory[0x80 + 54] -= 4
    second = lua.plain(read(machine, state))
    assert second[4:6] == [0.5, -0.25]
    game[b"episode"][b"begin"](machine, state)
    memory[0x80 + 14] = 2
    memory[0x80 + 13] = 5
    assert lua.plain(game[b"reward"](machine, state)) == [2 - 5]
    assert game[b"episode"][b"over"](machine, state) is None
    memory[0x80 + 13] = 21
    game[b"reward"](machine, state)
    assert game[b"episode"][b"over"](machine, state) == b"terminal"
