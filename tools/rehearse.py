"""Tries a game file in its emulator with random actions, without a server.

Everything a server would refuse is named: a field that is missing, an observation of the wrong
size, an input that the machine does not have. At the end it says what an agent would have seen.

  python main.py rehearse mame:boxing
  python main.py rehearse mame:./somewhere/boxing.lua --frames 20000
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from server import emulators
from server.emulators import LaunchError, Seat
from tools import child
from tools.child import ChildError

_TOLD = re.compile(r"coinop: ((playing|rehearsed|observation|reward|episodes|warning|played)\b.*)")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this command."""
    add = parser.add_argument
    add("what", metavar="EMULATOR:GAME", help="such as mame:boxing; a path is a file elsewhere")
    add("--frames", type=int, default=6000, help="of the emulator (default: %(default)s)")
    add("--seed", type=int, default=1, help="of the random actions (default: %(default)s)")


def run(options: argparse.Namespace) -> int:
    """Rehearse a game; give the exit code."""
    try:
        _rehearse(options.what, options.frames, options.seed)
    except LaunchError as error:
        print(f"coinop: {error}", file=sys.stderr)
        return 2
    except ChildError as error:
        print(f"coinop: {options.what} is not right yet: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("coinop: stopped", file=sys.stderr)
        return 130
    print(f"{options.what}: nothing that a server would refuse")
    return 0


def _rehearse(what: str, frames: int, seed: int) -> None:
    kind, _, game = what.partition(":")
    if kind not in emulators.PROGRAMS or not game:
        known = ", ".join(emulators.PROGRAMS)
        raise LaunchError(f"{what!r} must be EMULATOR:GAME with one of the emulators {known}")
    with tempfile.TemporaryDirectory(prefix="coinop-") as home:
        command = emulators.command(kind, game, Seat("rehearsal", "", seed, Path(home)))
        told = {"COINOP_REHEARSE": "1", "COINOP_FRAMES": str(frames)}
        child.run(replace(command, environment={**command.environment, **told}), _show)


def _show(line: str) -> bool:
    """Print what a rehearsal says; what else there is to hear is about an error."""
    told = _TOLD.fullmatch(line)
    if told:
        print(told[1], flush=True)
    return told is not None
