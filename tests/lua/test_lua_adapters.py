"""boot.lua and the adapters on every Lua, with emulators of our own."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lua import VERSIONS, Lua

RAM = 0x800
PHASE = 0x500  # of catch: 1 while it is played
WIDTH, HEIGHT = 4, 2


class LeftError(Exception):
    """The script ended the process."""


class Stage:
    """One emulator as its adapter sees it, and what the script did with it."""

    emulator = ""

    def __init__(self, lua: Lua, *, sockets: bool = True, **settings: str) -> None:
        self.lua = lua
        self.settings = {"GAME": "catch", "SERVER": "127.0.0.1:9", "FRAMES": "100", **settings}
        self.sockets = sockets
        self.memory = bytearray(RAM)
        self.words = ""
        self.codes: list[int] = []
        self.asked: list[Any] = []  # of the emulator, in order
        self.time = 0.0
        self.frames = 0
        self.probe: Callable[[Any], None] = lambda machine: None

    def table(self, **items: Any) -> Any:
        table = self.lua.runtime.table()
        for name, value in items.items():
            table[name.encode()] = value
        return table

    def run(self) -> int:
        """Run the boot script until it leaves; give the exit code."""
        with pytest.raises(Exception, match="left with"):
            self.script(**self.api())()
            self.play_on()
        return self.codes[0]

    def script(self, **api: Any) -> Any:
        """Give the adapter's script; nobody else sees the emulator's API."""
        return self.lua.chunk(f"{self.emulator}.lua", **self.offered(), **api)

    def offered(self) -> dict[str, Any]:
        """What Lua itself offers to every file."""
        return {
            "os": self.table(getenv=self.getenv, exit=self.exit),
            "io": self.table(stdout=self.table(write=self.write, flush=lambda file: None)),
            "loadfile": self.loadfile,
            "require": self.require,
            "package": self.table(loaded=self.table()),
        }

    def getenv(self, name: bytes) -> bytes | None:
        value = self.settings.get(name.decode().removeprefix("COINOP_"))
        return None if value is None else value.encode()

    def exit(self, code: int, clean: bool = True) -> None:
        self.codes.append(code)
        raise LeftError(f"left with {code}")

    def write(self, file: Any, text: bytes) -> None:
        self.words += text.decode()

    def loadfile(self, path: bytes) -> Any:
        probe = {"probe": lambda machine: self.probe(machine)}
        try:
            return self.lua.chunk(path.decode(), **self.offered(), **probe)
        except OSError as error:
            return None, str(error).encode()

    def require(self, name: bytes) -> Any:
        if not self.sockets:
            raise ImportError(f"module {name.decode()} not found")
        refusing = self.table(
            settimeout=lambda peer, seconds: None,
            connect=lambda peer, host, port: (None, b"connection refused"),
            close=lambda peer: None,
        )
        return self.table(tcp=lambda: refusing, gettime=self.clock, sleep=lambda seconds: None)

    def clock(self) -> float:
        self.time += 0.01
        return self.time

    def frame(self) -> None:
        """Emulate one frame: Start begins the game."""
        self.frames += 1
        assert self.frames < 10_000, "the script does not end"
        if self.held("start"):
            self.memory[PHASE] = 1

    def api(self) -> dict[str, Any]:
        raise NotImplementedError

    def held(self, button: str) -> bool:
        raise NotImplementedError

    def play_on(self) -> None:
        raise NotImplementedError


class Fceux(Stage):
    emulator = "fceux"
    port: Any = 1

    def api(self) -> dict[str, Any]:
        self.buttons: dict[bytes, bool] = {}
        self.closing: Any = None
        number = itertools.count(1)
        screen = bytes([255, 254, 0, WIDTH, 0, HEIGHT, 1, 0, 0, 0, 0]) + bytes(WIDTH * HEIGHT * 4)
        return {
            "emu": self.table(
                frameadvance=self.advance,
                speedmode=lambda mode: self.asked.append(("speed", mode.decode())),
                registerexit=lambda callback: setattr(self, "closing", callback),
            ),
            "memory": self.table(
                readbyte=lambda at: self.memory[at],
                readbyterange=lambda at, size: bytes(self.memory[at : at + size]),
                writebyte=self.memory.__setitem__,
            ),
            "joypad": self.table(set=self.press),
            "savestate": self.table(
                object=lambda: next(number),
                save=lambda state: self.asked.append(("save", state)),
                load=lambda state: self.asked.append(("load", state)),
            ),
            "gui": self.table(gdscreenshot=lambda: screen),
        }

    def press(self, player: int, buttons: Any) -> None:
        assert player == 1
        self.buttons = dict(buttons.items())

    def advance(self) -> None:
        self.frame()
        self.buttons = {}  # FCEUX holds a button for one frame

    def held(self, button: str) -> bool:
        return self.buttons.get(button.encode(), False)

    def play_on(self) -> None:
        raise AssertionError("the script's loop ended")


class Mame(Stage):
    emulator = "mame"
    port: Any = b":ctrl1:joypad:JOYPAD"

    def api(self) -> dict[str, Any]:
        self.fields: dict[str, float] = {}
        self.callback: Any = None
        self.closing: Any = None
        names = ("P1 Left", "P1 Right", "P1 Start")
        pad = self.table(fields=self.table(**{name: self.field(name) for name in names}))
        space = self.table(
            read_u8=lambda space, at: self.memory[at],
            read_range=lambda space, first, last, width: bytes(self.memory[first : last + 1]),
            write_u8=lambda space, at, value: self.memory.__setitem__(at, value),
        )
        screen = self.table(
            pixels=lambda screen: (bytes(WIDTH * HEIGHT * 4), WIDTH, HEIGHT),
            frame_number=lambda screen: self.frames,
        )
        machine = self.table(
            devices=self.table(**{":maincpu": self.table(spaces=self.table(program=space))}),
            ioport=self.table(ports=self.table(**{":ctrl1:joypad:JOYPAD": pad})),
            screens=self.table(**{":screen": screen}),
            save=lambda machine, name: self.asked.append(("save", name)),
            load=lambda machine, name: self.asked.append(("load", name)),
        )
        file = self.table(open=lambda file, name: b"no connection")
        return {
            "manager": self.table(machine=machine),
            "emu": self.table(
                register_frame_done=lambda callback: setattr(self, "callback", callback),
                register_stop=lambda callback: setattr(self, "closing", callback),
                osd_ticks=self.clock,
                osd_ticks_per_second=lambda: 1,
                file=lambda mode: file,
            ),
        }

    def field(self, name: str) -> Any:
        return self.table(
            set_value=lambda field, value: self.fields.__setitem__(name, value),
            clear_value=lambda field: self.fields.pop(name, None),
        )

    def held(self, button: str) -> bool:
        return self.fields.get(f"P1 {button.capitalize()}", 0) == 1

    def play_on(self) -> None:
        while True:
            self.frame()
            self.callback()


ADAPTERS: dict[str, type[Stage]] = {"fceux": Fceux, "mame": Mame}


@pytest.fixture(params=VERSIONS)
def lua(request: pytest.FixtureRequest) -> Lua:
    return Lua(request.param)


@pytest.fixture(params=ADAPTERS)
def adapter(request: pytest.FixtureRequest) -> type[Stage]:
    return ADAPTERS[request.param]


@pytest.fixture
def game(tmp_path: Path) -> Callable[..., str]:
    """Write a game file of a few lines; its parts can be changed."""

    def write(inputs: str = "nil", ready: str = "true", reward: str = "{0}") -> str:
        path = tmp_path / "game.lua"
        path.write_text(
            f"""return {{
              name = "small", inputs = {inputs},
              observation = {{dtype = "uint8", shape = {{1}}, read = function() return "a" end}},
              actions = {{discrete = {{{{name = "a", choices = 2}}}},
                          apply = function() end, release = function() end}},
              rewards = {{"r"}}, reward = function(machine) return {reward} end,
              episode = {{ready = function(machine) return {ready} end,
                          over = function() end}},
            }}"""
        )
        return str(path)

    return write


def test_a_game_is_begun_by_its_own_names_for_the_inputs(lua: Lua, adapter: type[Stage]) -> None:
    stage = adapter(lua)
    starts: list[int] = []
    plain_frame = stage.frame

    def frame() -> None:
        plain_frame()
        if stage.held("start"):
            starts.append(stage.frames)

    stage.frame = frame  # type: ignore[method-assign]
    assert stage.run() == 0
    assert starts == list(range(31, 37))
    assert [name for name, _ in stage.asked].count("save") == 1
    assert "coinop: playing catch over LuaSocket\n" in stage.words
    assert "coinop: no server at 127.0.0.1:9 (connection refused)" in stage.words
    assert "coinop: played 100 frames, " in stage.words
    assert any(stage.memory[0x509:0x50B]), "the game's seed was not chosen"


def test_the_machine_is_the_same_in_every_emulator(
    lua: Lua, adapter: type[Stage], game: Callable[..., str]
) -> None:
    stage = adapter(lua)
    button = {"mame": "P1 Left", "fceux": "left"}[stage.emulator]
    inputs = f"""{{{stage.emulator} = {{go = {{"%s", "{button}"}}}}}}"""
    inputs = inputs.replace('"%s"', "1" if stage.port == 1 else f'"{stage.port.decode()}"')
    stage.settings |= {"GAME": game(inputs, "probe(machine) or true"), "FRAMES": "2"}
    seen: list[Any] = []

    def probe(machine: Any) -> None:
        assert machine[b"emulator"] == stage.emulator.encode()
        machine[b"write"](0x10, 7)
        machine[b"write"](0x11, 8)
        assert machine[b"read"](0x11) == 8
        assert machine[b"read_range"](0x10, 0x12) == b"\x07\x08\x00"
        pixels, width, height, order = machine[b"pixels"]()
        assert (len(pixels), width, height) == (WIDTH * HEIGHT * 4, WIDTH, HEIGHT)
        assert order in (b"BGRA", b"ARGB")
        draws = {machine[b"random"](3) for _ in range(100)}
        assert draws == {0, 1, 2, 3}
        machine[b"press"](b"go", 1)
        with pytest.raises(Exception, match="names no input 'stop' for " + stage.emulator):
            machine[b"press"](b"stop", 1)
        with pytest.raises(Exception, match=f"{stage.emulator.upper()} has no .*Turbo"):
            machine[b"set"](stage.port, b"Turbo", 1)
        seen.append(machine)

    stage.probe = probe
    held: list[bool] = []
    plain_frame = stage.frame

    def frame() -> None:
        plain_frame()
        held.append(stage.held("left"))
        if held[-1]:
            seen[0][b"release"]()

    stage.frame = frame  # type: ignore[method-assign]
    assert stage.run() == 0, stage.words
    assert held[:3] in ([False, True], [False, True, False])  # FCEUX leaves a second later
    assert not stage.held("left")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"GAME": ""}, "set COINOP_GAME to the name of a game in "),
        ({"GAME": "no_such_game"}, "cannot load the game: "),
        ({"SERVER": "here"}, "COINOP_SERVER = 'here' must be ADDRESS:PORT"),
        ({"SEED": "lucky"}, "COINOP_SEED = 'lucky' must be a number"),
        ({"FRAMES": "all"}, "COINOP_FRAMES = 'all' must be a number"),
    ],
)
def test_wrong_settings_are_named(
    lua: Lua, adapter: type[Stage], settings: dict[str, str], words: str
) -> None:
    stage = adapter(lua, **settings)
    assert stage.run() == 2
    assert f"coinop: {words}" in stage.words


def test_a_game_for_other_emulators_is_refused(
    lua: Lua, adapter: type[Stage], game: Callable[..., str]
) -> None:
    stage = adapter(lua, GAME=game("{snes9x = {}, bsnes = {}}"))
    assert stage.run() == 2
    assert f"names no inputs for {stage.emulator}, only for bsnes, snes9x" in stage.words


def test_a_game_that_falls_is_reported(
    lua: Lua, adapter: type[Stage], game: Callable[..., str]
) -> None:
    stage = adapter(lua, GAME=game(reward='error("out of coins")'))
    assert stage.run() == 1
    assert "coinop: error: " in stage.words
    assert "out of coins" in stage.words


def test_without_its_server_it_ends_if_told_to(lua: Lua, adapter: type[Stage]) -> None:
    stage = adapter(lua, ONCE="1")
    assert stage.run() == 1
    assert "played" not in stage.words


def test_fceux_needs_luasocket(lua: Lua) -> None:
    stage = Fceux(lua, sockets=False)
    assert stage.run() == 2
    assert stage.words == (
        "coinop: FCEUX needs LuaSocket for Lua 5.1; on Debian: apt-get install lua-socket\n"
    )


def test_fceux_does_not_leave_while_its_window_is_made(lua: Lua) -> None:
    stage = Fceux(lua, FRAMES="2")
    assert stage.run() == 0
    assert "coinop: played 2 frames, " in stage.words
    assert stage.time > 1
    assert stage.codes == [0]


def test_mame_has_sockets_of_its_own(lua: Lua) -> None:
    stage = Mame(lua, sockets=False)
    assert stage.run() == 0
    assert "playing catch over emu.file" in stage.words
    forced = Mame(lua, TRANSPORT="file")
    assert forced.run() == 0
    assert "playing catch over emu.file" in forced.words


def test_fceux_runs_as_fast_as_it_can_or_in_a_persons_time(lua: Lua) -> None:
    for setting, mode in (("", "nothrottle"), ("1", "normal")):
        stage = Fceux(lua, THROTTLE=setting)
        stage.run()
        assert ("speed", mode) in stage.asked


def test_a_frame_that_mame_tells_of_twice_is_played_once(lua: Lua) -> None:
    stage = Mame(lua, FRAMES="10")
    stage.script(**stage.api())()
    for _ in range(9):
        stage.frame()
        stage.callback()
        stage.callback()
    assert stage.codes == []
    stage.frame()
    with pytest.raises(Exception, match="left with 0"):
        stage.callback()
    assert "coinop: played 10 frames, " in stage.words


def test_a_soft_reset_of_mame_makes_no_second_player(lua: Lua) -> None:
    stage = Mame(lua)
    script = stage.script(**stage.api())
    script()
    first = stage.callback
    script()
    assert stage.callback is first
    assert stage.words.count("playing") == 1


def test_who_closes_the_emulator_ends_the_game(lua: Lua) -> None:
    mame = Mame(lua)
    mame.script(**mame.api())()
    with pytest.raises(Exception, match="left with 0"):
        mame.closing()
    fceux = Fceux(lua)
    fceux.run()
    fceux.closing()
    assert fceux.codes == [0]
