"""How each kind of emulator is started: its command, its environment, its directory."""

from __future__ import annotations

import difflib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from server import cc65

ROOT = Path(__file__).resolve().parent.parent
_GAMES = ROOT / "client_lua" / "games"
_ASK_S = 10.0  # for a program to say its version
_MAME_SETTINGS = Path("/etc/mame/mame.ini")  # of the whole system
_PLACES = "/usr/games:/usr/local/games"  # where distributions put emulators, often not on PATH
# Where distributions put Lua's compiled packages.
_LUA_PLACES = ("usr/lib/*/lua", "usr/lib/lua", "usr/lib64/lua", "usr/local/lib/lua")


class LaunchError(ValueError):
    """An emulator that cannot be started; the message names it and the fix."""


@dataclass(frozen=True, slots=True)
class Exam:
    """How an emulator plays that has an agent evaluated; what is empty is the client's default."""

    agent: str
    episodes: int  # the server ends who cannot count
    sticky: float = 0.0  # share of frames in which the last action is repeated; Atari games only
    observation: str = ""  # how an Atari game is seen
    frame_skip: int = 0


@dataclass(frozen=True, slots=True)
class Seat:
    """What one emulator is told: its name, its server, its dice, its own directory."""

    name: str
    server: str
    seed: int
    home: Path
    token: str = ""
    show: bool = False  # in a window
    throttle: bool = False  # at the speed of the real machine
    once: bool = True  # end with the server, instead of waiting for it to come back
    exam: Exam | None = None  # None: it plays for training
    tls_ca: str = ""  # file with the certificate that its server shows; empty: without TLS


@dataclass(frozen=True, slots=True)
class Program:
    """An emulator that is installed beside us."""

    file: str
    title: str
    packages: str  # of Debian
    version_option: str = "--version"
    lua: str = "5.*"  # that it runs scripts with
    without_luasocket: str = ""  # what becomes of it where LuaSocket is not installed

    def path(self) -> str:
        """Find it, or say how to install it."""
        found = shutil.which(self.file, path=f"{os.environ.get('PATH', '')}:{_PLACES}")
        if found is None:
            raise LaunchError(
                f"{self.title} is not installed; on Debian: apt-get install {self.packages}"
            )
        return found

    def lack(self) -> str:
        """Say what it would do better with; nothing if all is there."""
        if not self.without_luasocket:
            return ""
        file = f"{self.lua}/socket/core.so"
        places = (f"{place}/{file}" for place in _LUA_PLACES)
        home = Path.home() / ".luarocks" / "lib" / "lua"
        if any(any(Path("/").glob(place)) for place in places) or any(home.glob(file)):
            return ""
        return f"no LuaSocket: {self.without_luasocket}; on Debian: apt-get install lua-socket"

    def version(self) -> str:
        """Ask it for its version; "?" if it does not say."""
        command = [self.path(), self.version_option]
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_ASK_S
            )
        except (OSError, subprocess.TimeoutExpired):
            return "?"
        found = re.search(r"\d+(\.\d+)+", done.stdout)
        return found[0] if found else "?"


# What the kinds of emulator need; a name of ours leads to the program.
PROGRAMS = {
    "mame": Program(
        "mame", "MAME", "mame lua-socket", "-version", "5.[34]", "it keeps a core busy as it waits"
    ),
    "fceux": Program(
        "fceux", "FCEUX", "fceux lua-socket", lua="5.1", without_luasocket="it cannot play"
    ),
}


@dataclass(frozen=True, slots=True)
class Command:
    """What is run."""

    arguments: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    directory: Path = ROOT
    files: dict[str, str] = field(default_factory=dict)  # what it must find in its directory

    def prepare(self) -> None:
        """Write the files, over those that an earlier life left."""
        for name, text in self.files.items():
            path = self.directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")


def command(emulator: str, game: str, seat: Seat) -> Command:
    """Give the command for one emulator, or say what is missing."""
    if seat.show:
        _check_display()
    if seat.exam is not None and emulator != "ale":
        _check_plain(emulator, game, seat.exam)
    return _KINDS[emulator](game, seat)


def check(emulator: str, game: str, *, show: bool = False, tls_ca: str = "") -> None:
    """Say at once what would be missing later."""
    command(emulator, game, Seat("check", "", 0, ROOT, show=show, tls_ca=tls_ca))


def kinds() -> tuple[str, ...]:
    """Name the kinds of emulator that can be launched."""
    return tuple(_KINDS)


def games() -> dict[str, tuple[str, ...]]:
    """Give the games that have a file of their own, each with the emulators it runs under.

    None for a game whose file is broken: that is no other game's trouble.
    """
    return {name: () if fault(name) else tuple(_tables(path)) for name, path in _starts().items()}


def fault(game: str) -> str:
    """Say what is wrong with the file that says how a game is started; nothing if all is well."""
    try:
        _tables(_start(game))
    except LaunchError as error:
        return str(error)
    return ""


def game_file(game: str) -> Path:
    """Give the Lua file of a game, by its name or by its path."""
    return _start(game).with_suffix(".lua")


def atari_games() -> tuple[str, ...]:
    """Name the games of the ale-py wheel; none where it is not installed."""
    return tuple(_ale_roms())


# --- kinds of emulator --------------------------------------------------------------------------


def _ale(game: str, seat: Seat) -> Command:
    _ale_rom(game)
    return _python("--ale", game, seat)


def _gym(game: str, seat: Seat) -> Command:
    if importlib.util.find_spec("gymnasium") is None:
        raise LaunchError(f"the game {game!r} needs gymnasium; pip install gymnasium")
    return _python("--env", game, seat)


def _python(option: str, game: str, seat: Seat) -> Command:
    """Start our Python client."""
    arguments = [sys.executable, "-m", "client_py", option, game, "--server", seat.server]
    arguments += ["--name", seat.name, "--seed", str(seat.seed)]
    for flag in ("once", "throttle"):
        arguments += [f"--{flag}"] if getattr(seat, flag) else []
    arguments += ["--render"] if seat.show else []
    arguments += ["--tls-ca", seat.tls_ca] if seat.tls_ca else []
    arguments += _exam_options(seat.exam) if seat.exam is not None else []
    return Command(arguments, {"COINOP_TOKEN": seat.token} if seat.token else {})


def _exam_options(exam: Exam) -> list[str]:
    given = {
        "agent": exam.agent,
        "episodes": exam.episodes,
        "sticky": exam.sticky,
        "observation": exam.observation,
        "frame-skip": exam.frame_skip,
    }
    told = [(f"--{name}", str(value)) for name, value in given.items() if value]
    return ["--evaluate", *(text for pair in told for text in pair)]


def _mame(game: str, seat: Seat) -> Command:
    made = mame(_settings("mame", game), game, seat)
    return replace(made, environment={**made.environment, **_told(game, seat)})


def mame(settings: Mapping[str, Any], game: str, seat: Seat) -> Command:
    """Give the command for a machine of MAME's with our script, which is told nothing yet."""
    arguments = [PROGRAMS["mame"].path(), settings["system"], *settings.get("options", [])]
    if "cart" in settings:
        arguments += ["-cart", str(_rom(game, settings["cart"]))]
    if "romsets" in settings:
        arguments += ["-rompath", _rompath(game, settings["romsets"])]
    arguments += ["-window"] if seat.show else ["-video", "none", "-sound", "none"]
    arguments += ["-throttle" if seat.throttle else "-nothrottle", "-skip_gameinfo"]
    for kind in ("snapshot", "state", "cfg", "nvram"):
        arguments += [f"-{kind}_directory", str(seat.home)]
    script = ROOT / "client_lua" / "mame.lua"
    arguments += ["-autoboot_script", str(script), "-autoboot_delay", "0"]
    return Command(arguments, _home(seat), seat.home)


def _fceux(game: str, seat: Seat) -> Command:
    settings = _settings("fceux", game)
    script = ROOT / "client_lua" / "fceux.lua"
    arguments = [PROGRAMS["fceux"].path(), "--sound", "1" if seat.show else "0"]
    arguments += ["--loadlua", str(script), str(_rom(game, settings["cart"]))]
    environment = {**_home(seat), **_told(game, seat)}
    if not seat.show:
        environment |= {"QT_QPA_PLATFORM": "offscreen", "XDG_RUNTIME_DIR": str(seat.home)}
    # FCEUX draws with OpenGL, and crashes where there is none, unless it is told not to.
    files = {".fceux/fceux.cfg": "SDL.VideoDriver = 1\n"}
    return Command(arguments, environment, seat.home, files)


# --- what several kinds share -------------------------------------------------------------------


def _check_plain(emulator: str, game: str, exam: Exam) -> None:
    """Refuse what only the Atari games of the ale-py wheel know."""
    for name, value in (("sticky", exam.sticky), ("observation", exam.observation)):
        if value:
            raise LaunchError(
                f"{emulator}:{game} cannot be played with --{name} {value}: only ale games can"
            )


def _told(game: str, seat: Seat) -> dict[str, str]:
    """Tell the Lua client what it plays, for whom and how."""
    if seat.tls_ca:
        raise LaunchError(
            f"{game}: emulators that speak Lua know no TLS; give them a tunnel (docs/security.md)"
        )
    exam = seat.exam
    asked = {"COINOP_EVALUATE": "1", "COINOP_AGENT": exam.agent} if exam is not None else {}
    if exam is not None and exam.frame_skip:
        asked["COINOP_FRAME_SKIP"] = str(exam.frame_skip)
    return {
        **asked,
        "COINOP_GAME": str(game_file(game)),
        "COINOP_SERVER": seat.server,
        "COINOP_NAME": seat.name,
        "COINOP_SEED": str(seat.seed),
        "COINOP_TOKEN": seat.token,
        "COINOP_ONCE": "1" if seat.once else "",
        "COINOP_WAIT": "" if seat.once else "1",
        "COINOP_THROTTLE": "1" if seat.throttle else "",
    }


def _home(seat: Seat) -> dict[str, str]:
    """Give an emulator a home of its own, and a screen only if people are to see it."""
    # SDL would take the signal to end, and an emulator without a window never asks SDL for it.
    home = {"HOME": str(seat.home), "SDL_NO_SIGNAL_HANDLERS": "1"}
    if not seat.show:
        return {**home, "SDL_VIDEODRIVER": "dummy", "SDL_AUDIODRIVER": "dummy"}
    # X keeps the key to the display in the person's home.
    return {**home, "XAUTHORITY": os.environ.get("XAUTHORITY") or str(Path.home() / ".Xauthority")}


def _check_display() -> None:
    screens = [os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")]
    if sys.platform == "linux" and not any(screens):
        raise LaunchError(
            "there is no display to show emulators on: neither DISPLAY nor WAYLAND_DISPLAY is "
            "set; leave --show out, or run it under xvfb-run"
        )


def _starts() -> dict[str, Path]:
    """Give the file that says how each game is started; people's own are in ./games."""
    own = Path("games").resolve()
    files = [file for place in (_GAMES, own) for file in sorted(place.glob("*.toml"))]
    return {file.stem: file for file in files if file.with_suffix(".lua").exists()}


def _start(game: str) -> Path:
    """Find the file that says how a game is started, by its name or by the path of its Lua file."""
    if "/" not in game:
        return _starts().get(game, _GAMES / f"{game}.toml")
    return Path(game.removesuffix(".lua") + ".toml").expanduser().resolve()


def _tables(path: Path) -> dict[str, dict[str, Any]]:
    """Read how a game is started, by emulator."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise LaunchError(f"{_short(path)} is not TOML: {error}") from error
    except OSError as error:
        raise LaunchError(f"cannot read {_short(path)}: {error.strerror}") from error


def _short(path: Path) -> Path:
    """Give a path as a person would name it from here."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _settings(emulator: str, game: str) -> dict[str, Any]:
    """Give how a game is started under an emulator."""
    title = PROGRAMS[emulator].title
    tables = _tables(_start(game)) if "/" in game or game in _starts() else {}
    if "/" not in game and emulator not in tables:
        known = [name for name, emulators in games().items() if emulator in emulators]
        raise LaunchError(f"no game {game!r} for {title}; there are: {', '.join(known)}")
    if emulator not in tables:
        raise LaunchError(f"{_start(game)} has no table [{emulator}], so {title} cannot start it")
    return tables[emulator]


def _rom(game: str, cart: str) -> Path:
    """Find a game's ROM: one of the ale-py wheel, one we build, or a file the user brings."""
    if cart.startswith("cc65:"):
        try:
            return cc65.build(_GAMES / cart.removeprefix("cc65:"), "nes")
        except cc65.BuildError as error:
            raise LaunchError(f"no ROM for the game {game!r}: {error}") from error
    if not cart.startswith("ale:"):
        path = Path(cart).expanduser()
        if not path.exists():
            raise LaunchError(f"the ROM of game {game!r} is expected at {path}; put it there")
        return path
    return _ale_rom(cart.removeprefix("ale:"))


def _rompath(game: str, romsets: list[str]) -> str:
    """Give where MAME is to look for ROMs, once one of these sets is there; users bring them."""
    # Said to MAME itself, because its own settings are read from a home that is not the user's.
    places = [Path.home() / ".coinop" / "roms", *_mame_rom_places()]
    files = [f"{romset}{ending}" for romset in romsets for ending in ("", ".zip", ".7z")]
    if not any((place / file).exists() for place in places for file in files):
        others = ", ".join(map(str, places[1:]))
        raise LaunchError(
            f"the game {game!r} needs MAME's ROM set {romsets[0]!r}, which you must bring: put "
            f"{romsets[0]}.zip into {places[0]} (also looked in {others})"
        )
    return ";".join(map(str, places))


def _mame_rom_places() -> list[Path]:
    """Give where the user's MAME looks for ROMs: as its settings say, the user's own first."""
    for file in (Path.home() / ".mame" / "mame.ini", _MAME_SETTINGS):
        text = file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""
        match = re.search(r"^rompath\s+(\S.*?)\s*$", text, re.MULTILINE)
        if match is not None:
            return [Path(os.path.expandvars(place)) for place in match[1].strip('"').split(";")]
    return [Path.home() / "mame" / "roms"]


def _ale_rom(game: str) -> Path:
    roms = _ale_roms()
    if not roms:
        raise LaunchError(f"the game {game!r} comes with ale-py; pip install ale-py")
    if game not in roms:
        near = difflib.get_close_matches(game, roms, n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are: {', '.join(roms)}"
        raise LaunchError(f"ale-py has no game {game!r}; {hint}")
    return roms[game]


def _ale_roms() -> dict[str, Path]:
    """Give the ROMs of the ale-py wheel by name; none where it is not installed."""
    wheel = importlib.util.find_spec("ale_py")
    if wheel is None or wheel.origin is None:
        return {}
    return {path.stem: path for path in sorted(Path(wheel.origin).parent.glob("roms/*.bin"))}


_KINDS: dict[str, Callable[[str, Seat], Command]] = {
    "ale": _ale,
    "gym": _gym,
    "mame": _mame,
    "fceux": _fceux,
}
