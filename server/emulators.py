"""How each kind of emulator is started: its command, its environment, its directory."""

from __future__ import annotations

import difflib
import importlib.util
import os
import shutil
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
_GAMES = ROOT / "client_lua" / "games"
_MAME_PLACES = "/usr/games:/usr/local/games"  # where distributions put it, often not on PATH


class LaunchError(ValueError):
    """An emulator that cannot be started; the message names it and the fix."""


@dataclass(frozen=True, slots=True)
class Seat:
    """What one emulator is told: its name, its server, its dice, its own directory."""

    name: str
    server: str
    seed: int
    home: Path
    token: str = ""


@dataclass(frozen=True, slots=True)
class Command:
    """What is run."""

    arguments: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    directory: Path = ROOT


def command(emulator: str, game: str, seat: Seat) -> Command:
    """Give the command for one emulator, or say what is missing."""
    return _KINDS[emulator](game, seat)


def check(emulator: str, game: str) -> None:
    """Say at once what would be missing later."""
    if emulator == "ale":
        _ale_rom(game)
    elif emulator == "mame":
        _mame(game, Seat("check", "", 0, ROOT))


def kinds() -> tuple[str, ...]:
    """Name the kinds of emulator that can be launched."""
    return tuple(_KINDS)


def _python(option: str) -> Callable[[str, Seat], Command]:
    """Start our Python client, which ends with its server."""

    def make(game: str, seat: Seat) -> Command:
        arguments = [sys.executable, "-m", "client_py", option, game, "--server", seat.server]
        arguments += ["--name", seat.name, "--seed", str(seat.seed), "--once"]
        return Command(arguments, {"COINOP_TOKEN": seat.token} if seat.token else {})

    return make


def _mame(game: str, seat: Seat) -> Command:
    settings = _mame_settings(game)
    found = shutil.which("mame", path=f"{os.environ.get('PATH', '')}:{_MAME_PLACES}")
    if found is None:
        raise LaunchError("MAME is not installed; on Debian: apt-get install mame lua-socket")
    arguments = [found, settings["system"], *settings.get("options", [])]
    if "cart" in settings:
        arguments += ["-cart", str(_rom(game, settings["cart"]))]
    arguments += ["-video", "none", "-sound", "none", "-nothrottle", "-skip_gameinfo"]
    for kind in ("snapshot", "state", "cfg", "nvram"):
        arguments += [f"-{kind}_directory", str(seat.home)]
    script = ROOT / "client_lua" / "mame.lua"
    arguments += ["-autoboot_script", str(script), "-autoboot_delay", "0"]
    environment = {
        "HOME": str(seat.home),
        "SDL_VIDEODRIVER": "dummy",
        "SDL_AUDIODRIVER": "dummy",
        "COINOP_GAME": game,
        "COINOP_SERVER": seat.server,
        "COINOP_NAME": seat.name,
        "COINOP_SEED": str(seat.seed),
        "COINOP_TOKEN": seat.token,
        "COINOP_ONCE": "1",
    }
    return Command(arguments, environment, seat.home)


def _mame_settings(game: str) -> dict[str, Any]:
    path = _GAMES / f"{game}.toml"
    known = sorted(file.stem for file in _GAMES.glob("*.toml"))
    if game not in known:
        raise LaunchError(f"no game {game!r} for MAME; there are: {', '.join(known)}")
    settings: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))["mame"]
    return settings


def _rom(game: str, cart: str) -> Path:
    """Find a game's ROM: one of the ale-py wheel, or a file the user brings."""
    if not cart.startswith("ale:"):
        path = Path(cart).expanduser()
        if not path.exists():
            raise LaunchError(f"the ROM of game {game!r} is expected at {path}; put it there")
        return path
    return _ale_rom(cart.removeprefix("ale:"))


def _ale_rom(game: str) -> Path:
    wheel = importlib.util.find_spec("ale_py")
    if wheel is None or wheel.origin is None:
        raise LaunchError(f"the game {game!r} comes with ale-py; pip install ale-py")
    roms = Path(wheel.origin).parent / "roms"
    names = sorted(path.stem for path in roms.glob("*.bin"))
    if game not in names:
        near = difflib.get_close_matches(game, names, n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are: {', '.join(names)}"
        raise LaunchError(f"ale-py has no game {game!r}; {hint}")
    return roms / f"{game}.bin"


_KINDS: dict[str, Callable[[str, Seat], Command]] = {
    "ale": _python("--ale"),
    "gym": _python("--env"),
    "mame": _mame,
}
