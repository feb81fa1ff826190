"""Settings from the server to a game script, on every Lua; Tempest against a real server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cabinet import Program
from live import Server
from lua import VERSIONS, Lua
from test_lua_link import Line, RealLine, make_link, polite

from server.learn.replay import Layout, Replay
from server.net import wire
from server.net.wire import Source


@pytest.fixture(params=VERSIONS)
def lua(request: pytest.FixtureRequest) -> Lua:
    return Lua(request.param)


# --- what a game declares -----------------------------------------------------------------------

SPEED = {"name": "speed", "default": 2, "low": 0, "high": 10, "about": "How fast."}


class Stage:
    """A player of a game that decides, begins and is set as the test says."""

    def __init__(self, lua: Lua, settings: list[dict[str, Any]] | None = None) -> None:
        self.lua = lua
        self.log: list[str] = []
        self.flags: list[int] = []
        self.joined = 0
        self.due = self.begun = True
        self.game = lua.runtime.eval(
            b"""function(stage) return {
              name = "set", decide = function() return stage.due() end,
              observation = {dtype = "uint8", shape = {1}, read = function() return "a" end},
              actions = {discrete = {{name = "stick", choices = 3}},
                         apply = function() end, release = function() end},
              rewards = {"score"}, reward = function() return {1} end,
              episode = {ready = function() return true end, idle_frames = 0,
                         begin = function(_, state) stage.begin(state) return stage.begun() end,
                         over = function() end},
            } end"""
        )(self._table(due=lambda: self.due, begin=self._begin, begun=lambda: self.begun))
        if settings is not None:
            self.game[b"settings"] = lua.table(settings)
        self.link = self._table(
            exchange=self._exchange,
            settings=lua.runtime.table(),
            join=self._join,
            log=lambda text: self.log.append(text.decode()),
        )
        self.state: Any = None
        self.player = lua.load("player.lua")[b"new"](
            self._table(
                game=self.game,
                link=self.link,
                wire=lua.load("wire.lua"),
                machine=self._table(save=lambda: None, load=lambda: None),
            )
        )

    def _table(self, **items: Any) -> Any:
        table = self.lua.runtime.table()
        for name, value in items.items():
            table[name.encode()] = value
        return table

    def _begin(self, state: Any) -> None:
        self.state = state

    def _join(self, link: Any) -> None:
        self.joined += 1

    def _exchange(self, link: Any, frame: Any) -> Any:
        self.flags.append(frame[b"flags"])
        return self.lua.table({"discrete": [1], "continuous": []})

    def push(self, **settings: Any) -> None:
        for name, value in settings.items():
            self.link[b"settings"][name.encode()] = value

    def run(self, frames: int) -> None:
        for _ in range(frames):
            self.player[b"frame"](self.player)

    def problems(self) -> Any:
        return self.lua.plain(self.lua.load("game.lua")[b"problems"](self.game))

    @property
    def settings(self) -> Any:
        return self.lua.plain(self.state[b"settings"])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"name": 7}, b"settings[1] needs a name"),
        ({"low": "0"}, b"settings[1] ('speed') needs the numbers default, low and high"),
        ({"default": None}, b"settings[1] ('speed') needs the numbers default, low and high"),
        ({"default": 11}, b"settings[1] ('speed'): the default 11 is not within 0 to 10"),
        ({"about": None}, b"settings[1] ('speed') needs a sentence: about"),
    ],
)
def test_a_declaration_is_checked(lua: Lua, changes: dict[str, Any], words: bytes) -> None:
    assert Stage(lua, [SPEED]).problems() in ([], {})
    setting = {name: value for name, value in {**SPEED, **changes}.items() if value is not None}
    assert Stage(lua, [setting]).problems() == [words]


def test_a_setting_is_its_default_until_the_server_says_otherwise(lua: Lua) -> None:
    stage = Stage(lua, [SPEED])
    stage.run(3)
    assert stage.settings == {b"speed": 2}
    stage.push(speed=7, other=1)
    stage.run(1)
    assert stage.settings == {b"speed": 7}  # at once, in the table that the game has
    assert stage.log == []


def test_a_value_that_cannot_be_taken_is_told_once(lua: Lua) -> None:
    stage = Stage(lua, [SPEED])
    stage.run(2)
    stage.push(speed=-1)
    stage.run(5)
    assert stage.settings == {b"speed": 0}
    stage.push(speed="fast")
    stage.run(5)
    assert stage.settings == {b"speed": 0}
    stage.push(speed=3)
    stage.run(5)
    assert stage.settings == {b"speed": 3}
    assert stage.log == [
        "the server's speed = -1 is not within 0 to 10; taking 0",
        "the server's speed = 'fast' is not a number; it stays 0",
    ]


def test_the_server_is_met_before_an_episode_only_if_it_may_have_something_to_say(lua: Lua) -> None:
    plain, asking = Stage(lua), Stage(lua, [SPEED])
    plain.run(3)
    asking.run(3)
    assert (plain.joined, asking.joined) == (0, 1)
    assert plain.settings in ([], {})


def test_a_game_may_take_frames_to_begin_and_decide_by_its_own_clock(lua: Lua) -> None:
    stage = Stage(lua)
    stage.begun = False
    stage.run(10)
    assert stage.flags == []
    stage.begun = True
    stage.run(1)
    assert stage.flags == [wire.START]
    stage.due = False
    stage.run(10)
    assert stage.flags == [wire.START]
    stage.due = True
    stage.run(2)
    assert stage.flags == [wire.START, 0, 0]


# --- the link -----------------------------------------------------------------------------------


def test_to_join_is_to_know_the_settings_before_a_frame(lua: Lua) -> None:
    line = Line()
    line.answer = polite
    link = make_link(lua, line)
    assert link[b"join"](link) is True
    assert lua.plain(link[b"settings"]) == {b"level": 3}
    assert [type(message) for message in line.heard] == [wire.Hello]
    assert link[b"join"](link) is True
    assert line.opened == 1


def test_joining_waits_only_if_told_to_and_never_for_a_refusal(lua: Lua) -> None:
    line = Line()
    line.reachable = False
    link = make_link(lua, line)
    assert link[b"join"](link) is False
    assert line.opened == 1
    waiting = Line()
    waiting.answer = lambda message: [wire.encode(wire.Reject("wrong token"))]
    opened = waiting.open

    def second_time_lucky(host: bytes, port: int) -> Any:
        waiting.reachable = waiting.opened >= 1
        return opened(host, port)

    waiting.open = second_time_lucky  # type: ignore[method-assign]
    link = make_link(lua, waiting, wait=True)
    assert link[b"join"](link) is False
    assert (waiting.opened, link[b"refused"]) == (2, b"wrong token")


# --- a real server ------------------------------------------------------------------------------


class Client:
    """The whole client as MAME would run it, but for the emulator: that is a cabinet of ours."""

    def __init__(self, lua: Lua, port: int, name: str) -> None:
        self.lua = lua
        self.program = Program(life_ticks=30)
        self.words: list[str] = []
        self._settings = {"GAME": "tempest", "SERVER": f"127.0.0.1:{port}", "NAME": name}
        line = RealLine()
        transport = self._table(name=b"a socket")
        for verb in ("open", "send", "receive", "close", "sleep"):
            transport[verb.encode()] = getattr(line, verb)
        boot = lua.load("boot.lua", **self._offered())
        self._session = boot[b"start"](
            self._table(
                emulator=b"mame",
                clock=time.monotonic,
                transport=lambda: transport,
                machine=lambda: self.program.adapter_machine(lua),
            )
        )
        self.player = self._session[b"player"]

    def _table(self, **items: Any) -> Any:
        table = self.lua.runtime.table()
        for name, value in items.items():
            table[name.encode()] = value
        return table

    def _offered(self) -> dict[str, Any]:
        def setting(name: bytes) -> bytes | None:
            value = self._settings.get(name.decode().removeprefix("COINOP_"))
            return None if value is None else value.encode()

        def leave(code: int, clean: bool) -> None:
            raise AssertionError(f"left with {code}: {self.words}")

        def write(file: Any, text: bytes) -> None:
            self.words.append(text.decode())

        output = self._table(write=write, flush=lambda file: None)
        return {
            "os": self._table(getenv=setting, exit=leave),
            "io": self._table(stdout=output),
            "loadfile": lambda path: self.lua.chunk(path.decode(), **self._offered()),
        }

    def play(self, episodes: int) -> None:
        for _ in range(20_000):
            if self.player[b"episodes"] >= episodes:
                break
            self.program.frame()
            self._session[b"frame"](self._session)
        assert self.player[b"episodes"] == episodes, self.words
        self._session[b"close"](self._session, b"done")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tempest")


@pytest.fixture(scope="module")
def server(runs: Path) -> Iterator[Server]:
    running = Server(runs, "--client-setting", "start_level=26")
    yield running
    running.stop()
    running.kill()


def test_tempest_starts_where_the_command_line_says(lua: Lua, server: Server, runs: Path) -> None:
    replay_file = runs / "default" / "agents" / "tempest" / "replay.bin"
    layout = Layout(20_000, "float32", 222, 2, 1)
    before = Replay.to_read(replay_file, layout).head if replay_file.exists() else 0
    name = f"tempest{time.monotonic_ns()}"
    client = Client(lua, server.port, name)
    client.play(episodes=2)
    server.wait_for(f"{name} at .* joined agent tempest")
    server.wait_for(f"{name} at .* left: done")
    replay = Replay.to_read(replay_file, layout)
    replay.check_valid()
    frames = slice(before, replay.head)
    assert replay.head - before == client.player[b"decisions"] > 2 * 2 * 25
    flags = replay.column("flags")[frames]
    assert [np.count_nonzero(flags == flag) for flag in (wire.START, wire.TERMINAL)] == [2, 2]
    # Two lives lost in each episode, and a trickle for never a near threat.
    rewards = replay.column("reward")[frames]
    assert rewards.sum() == pytest.approx(-4, abs=0.3)
    assert np.count_nonzero(rewards < -0.5) == 4
    # The level that was pushed is in every frame: the first value of the block "game".
    levels = replay.column("observation")[frames, 28] * 99
    assert np.unique(np.round(levels)).tolist() == [26]
    # Chance chose, and the expert: its proposals were in order.
    assert set(replay.column("source")[frames]) >= {Source.EXPLORATION, Source.EXPERT}
