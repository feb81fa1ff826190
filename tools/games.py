"""Shows what can be played: every game, the emulators it runs under, and what is missing.

With the name of a game: all about that one, and the commands that play it.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from importlib import metadata
from typing import NamedTuple

from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from client_py.games import CARTRIDGES
from server import emulators
from server.emulators import LaunchError
from tools import gamefile

_PACKAGES = {"ale": "ale-py", "gym": "gymnasium"}  # emulators that are Python packages
_RAM_BYTES = 128  # of an Atari 2600


class UnknownGameError(Exception):
    """There is no such game; the message names those that are near."""


class Way(NamedTuple):
    """One way to play a game: an emulator, and what is missing for it, if anything."""

    emulator: str
    missing: str

    def state(self, ready: str) -> Text:
        """Say it in a word, or in what is missing."""
        return Text(self.missing, "red") if self.missing else Text(ready, "green")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this command."""
    parser.add_argument("game", nargs="?", help="show all about one game")
    parser.add_argument("--all", action="store_true", help="list the games of ale-py too")


def run(options: argparse.Namespace) -> int:
    """Print the games, or one game; give the exit code."""
    try:
        shown = detail(options.game) if options.game else overview(every=options.all)
    except (UnknownGameError, LaunchError) as error:  # the latter: a file that cannot be read
        print(f"coinop: {error}", file=sys.stderr)
        return 2
    Console(highlight=False, markup=False).print(shown)
    return 0


def ways(game: str) -> list[Way]:
    """Give the ways to play a game."""
    own = emulators.games()
    if game in own and not own[game]:
        return [Way("-", emulators.fault(game) or f"{game}.toml names no emulator")]
    kinds = [*own.get(game, ())]
    kinds += ["ale"] if game in emulators.atari_games() else []
    return [_way(kind, game) for kind in kinds]


def _way(kind: str, game: str) -> Way:
    try:
        emulators.check(kind, game)
    except LaunchError as error:
        return Way(kind, str(error))
    return Way(kind, "")


# --- all games ----------------------------------------------------------------------------------


def overview(*, every: bool) -> RenderableType:
    """Draw the emulators and the games."""
    atari = emulators.atari_games()
    parts: list[RenderableType] = [_emulators(len(atari)), "", _games(), ""]
    if every:
        parts += [Text("the games of ale-py", "bold"), Padding(Columns(atari), (0, 0, 1, 2))]
    parts += [Text("python main.py games GAME shows all about one of them", "dim")]
    return Group(*parts)


def _emulators(atari: int) -> Table:
    table = _table("emulator", "found", "plays")
    plays = {
        "ale": f"{atari} games of the Atari 2600, ROMs included; --all lists them",
        "gym": "any Gymnasium environment, such as CartPole-v1",
    }
    for kind in emulators.kinds():
        own = [game for game, kinds in emulators.games().items() if kind in kinds]
        table.add_row(kind, _found(kind), plays.get(kind, ", ".join(own)))
    return table


def _found(kind: str) -> Text:
    """Say where an emulator was found and its version, or how to install it."""
    try:
        if kind in emulators.PROGRAMS:
            program = emulators.PROGRAMS[kind]
            found = Text(f"{program.path()} {program.version()}")
            lack = program.lack()
            return found.append(f"\n{lack}", "yellow") if lack else found
        return Text(f"{_PACKAGES[kind]} {metadata.version(_PACKAGES[kind])}")
    except LaunchError as error:
        return Text(str(error), "red")
    except metadata.PackageNotFoundError:
        return Text(f"not installed; pip install {_PACKAGES[kind]}", "red")


def _games() -> Table:
    table = _table("game", "emulator", "ready", "what it is")
    for game in emulators.games():
        first, *others = ways(game)
        title = " ".join(gamefile.comment(game)[:1])
        table.add_row(game, first.emulator, first.state("yes"), title)
        for way in others:
            table.add_row("", way.emulator, way.state("yes"), "")
    return table


def _table(*columns: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column, no_wrap=column in ("game", "emulator"))
    return table


# --- one game -----------------------------------------------------------------------------------


def detail(game: str) -> RenderableType:
    """Draw all about one game."""
    found = ways(game)
    if not found:
        raise UnknownGameError(f"no game {game!r}; {_hint(game)}")
    own = game in emulators.games()
    about = gamefile.comment(game) if own else ["An Atari 2600 game whose ROM comes with ale-py."]
    facts = Table.grid(padding=(0, 2))
    for name, text in (gamefile.facts(game) if own else _atari_facts(game)).items():
        facts.add_row(Text(name, "bold"), text)
    for way in found:
        facts.add_row(Text(way.emulator, "bold"), way.state("ready"))
    return Group(Text(game, "bold"), *map(Text, about), "", facts, "", _commands(game, found[0]))


def _hint(game: str) -> str:
    known = [*emulators.games(), *emulators.atari_games()]
    near = difflib.get_close_matches(game, known, n=3)
    return f"did you mean {' or '.join(near)}?" if near else "python main.py games lists them"


def _atari_facts(game: str) -> dict[str, str]:
    cartridge = CARTRIDGES.get(game)
    features = f"{len(cartridge.names)} float32: {', '.join(cartridge.names)}" if cartridge else ""
    actions = ", ".join(cartridge.actions) if cartridge else "the actions ALE finds useful in it"
    return {
        "observation": features or f"{_RAM_BYTES} uint8: the console's RAM",
        "controls": f"stick: {actions}",
        "rewards": "score",
    }


def _commands(game: str, way: Way) -> Table:
    """Give the commands that play a game."""
    what = f"{way.emulator}:{game}"
    commands = {
        f"make run EMULATOR={way.emulator} GAME={game}": "train with two",
        f"python main.py --run {game} --launch {what}=4": "train with four",
        f"python main.py --run {game} --launch {what} --show": "watch one",
        f"python main.py emulate {what}=4 --server HOST:PORT": "a server elsewhere",
    }
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    for command, about in commands.items():
        table.add_row(Text(command), Text(about, "dim"))
    return table
