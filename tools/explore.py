"""Finds out what the RAM of an unknown game means, and writes a first game file from it.

It runs the game in MAME without a window: with no input, with each input held at several moments
of the game, and with random input; and tells which bytes answer to which input, and which look
like a score, lives, a clock or something that moves. Every run finds the same (--seed).

  python main.py explore mame:a2600 --cart ale:boxing --write boxing
  python main.py explore mame:a2600 --cart ale:pong --option joyport1=pad
  python main.py explore mame:nes --cart game.nes --start ":ctrl1:joypad:JOYPAD/P1 Start@200"
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress as Bar

from server import emulators, spaces
from server.emulators import LaunchError, Seat
from tools.child import ChildError
from tools.exploring import plan, ram, report, skeleton
from tools.exploring.inventory import Input, Inventory, InventoryError, merged
from tools.exploring.plan import PRESS_FRAMES, Press
from tools.exploring.recorder import Progress, Recorder
from tools.exploring.report import Findings
from tools.exploring.skeleton import Start

_MOST_BYTES = 8192  # of RAM; more takes gigabytes of traces, and says less
_APART_FRAMES = 40  # from one start button to the next
_SETTLE_FRAMES = 60  # from the last start button to the game
_COIN_BOOT_FRAMES = 600  # arcade machines test themselves first
_TITLE_BOOT_FRAMES = 180  # and consoles with a start button show a title
_BOOT_FRAMES = 60
_NOBODY = Seat("explore", "", 0, Path())  # for a command that is only checked
_LINE_S = 5.0  # between lines of progress where there is no terminal
_RANGE = re.compile(r"(0x[0-9a-fA-F]+|\d+)-(0x[0-9a-fA-F]+|\d+)")
_START = re.compile(r"(?P<title>.+?)(@(?P<frame>\d+))?")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this command."""
    add = parser.add_argument
    add("machine", metavar="mame:SYSTEM", help="the machine, as MAME calls it: mame:a2600")
    add("--cart", metavar="FILE", help="its cartridge: a file, or ale:NAME from the ale-py wheel")
    _add_machine_options(parser)
    add("--frames", type=_positive, default=2400, help="of each long run (default: %(default)s)")
    add("--runs", type=_positive, default=4, help="with random input (default: %(default)s)")
    add(
        "--moments",
        type=_positive,
        default=8,
        help="of the game at which each input is held (default: %(default)s)",
    )
    add("--seed", type=int, default=1, help="of the random input (default: %(default)s)")
    add("--json", type=Path, metavar="FILE", help="write everything that was found to FILE")
    add(
        "--write",
        metavar="NAME",
        help="write a first game file: games/NAME.lua and .toml here, or a path",
    )


def _add_machine_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of MAME's, such as joyport1=pad (may be repeated)",
    )
    add(
        "--start",
        action="append",
        metavar="PORT/NAME[@FRAME]",
        help="what to press after power-on to start the game, in order; 'none' for nothing "
        "(default: coin and start, or the console's own switch)",
    )
    add("--boot", type=_positive, metavar="FRAMES", help="after which the first one is pressed")
    add(
        "--ram",
        action="append",
        default=[],
        metavar="FIRST-LAST",
        help="addresses to look at, such as 0x0000-0x03FF (default: the RAM that MAME tells of)",
    )
    add("--player", type=_positive, metavar="N", help="try only this player's inputs")
    add(
        "--input",
        action="append",
        metavar="PORT/NAME",
        help="try only this input (may be repeated; default: all that players play with)",
    )


def run(options: argparse.Namespace) -> int:
    """Explore, show what was found, and write it; give the exit code."""
    try:
        return _explore(options, Console(highlight=False, markup=False))
    except (LaunchError, InventoryError, spaces.SpaceError) as error:
        print(f"coinop: {error}", file=sys.stderr)
        return 2
    except ChildError as error:
        print(f"coinop: {error}", file=sys.stderr)
        if not options.cart and (missing := _missing_roms(options.machine.partition(":")[2])):
            print(f"coinop: {missing}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("coinop: stopped; nothing was written", file=sys.stderr)
        return 130


def _explore(options: argparse.Namespace, console: Console) -> int:
    settings, title = _settings(options)
    target = _target(options.write) if options.write else None
    recorder = Recorder(settings, title)
    found = recorder.look()
    probed = _probed(options, found)
    start = _start(options, found)
    made = plan.make(
        ram=_ranges(options.ram, found),
        controls=probed,
        presses=start.presses,
        ready=start.ready,
        moments=options.moments,
        runs=options.runs,
        frames=options.frames,
        seed=options.seed,
    )
    with _progress(made.frames) as progress:
        recording = recorder.record(made, probed, progress)
    study = ram.study(recording)
    findings = Findings(title, found, tuple(probed), made.ram, study, made.frames)
    console.print(report.render(findings))
    for hint in _hints(findings, repeats=recording.repeats()):
        console.print(f"\n{hint}")
    if options.json:
        text = json.dumps(report.to_json(findings), indent=1)
        options.json.write_text(f"{text}\n", encoding="utf-8")
        console.print(f"\nwrote {options.json}")
    if target is not None:
        _write(target, settings, findings, start, console)
    return 0


# --- what to do ---------------------------------------------------------------------------------


def _settings(options: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """Give how MAME is started, as a game's TOML file says it, and what to call the game."""
    kind, _, system = options.machine.partition(":")
    if kind != "mame" or not system:
        raise LaunchError(f"{options.machine!r} must be mame:SYSTEM, such as mame:a2600")
    settings: dict[str, Any] = {"system": system}
    if options.option:
        settings["options"] = [part for text in options.option for part in _option(text)]
    if options.cart:
        ours = options.cart.startswith(("ale:", "cc65:"))
        path = Path(options.cart).expanduser()
        settings["cart"] = options.cart if ours else str(path.resolve())
        name = options.cart.partition(":")[2] if ours else path.stem
        emulators.mame(settings, name, _NOBODY)  # says what is missing
        return settings, f"{name} ({system})"
    missing = _missing_roms(system)
    return (settings if missing else {**settings, "romsets": [system]}), system


def _missing_roms(system: str) -> str:
    """Say where the ROMs of a machine are expected, if they are not there."""
    try:
        emulators.mame({"system": system, "romsets": [system]}, system, _NOBODY)
    except LaunchError as error:
        return str(error)
    return ""


def _option(text: str) -> list[str]:
    name, equals, value = text.lstrip("-").partition("=")
    return [f"-{name}", value] if equals else [f"-{name}"]


def _start(options: argparse.Namespace, found: Inventory) -> Start:
    """Give what is pressed to start the game, and when it can be played."""
    starters = found.starters()
    frame = options.boot or _boot_frames(starters)
    named: list[tuple[Input, int | None]] = [(button, None) for button in starters]
    if options.start:
        matches = [_START.fullmatch(text) for text in options.start if text != "none"]
        named = [
            (found.find(match["title"]), int(match["frame"]) if match["frame"] else None)
            for match in matches
            if match is not None
        ]
    presses = []
    for button, wanted in named:
        frame = frame if wanted is None else wanted
        presses.append(Press(button, frame))
        frame += _APART_FRAMES
    last = max((press.frame for press in presses), default=frame)
    return Start(tuple(presses), last + PRESS_FRAMES + _SETTLE_FRAMES)


def _boot_frames(starters: list[Input]) -> int:
    tokens = {button.token for button in starters}
    if "COIN1" in tokens:
        return _COIN_BOOT_FRAMES
    return _TITLE_BOOT_FRAMES if "P1_START" in tokens else _BOOT_FRAMES


def _probed(options: argparse.Namespace, found: Inventory) -> list[Input]:
    """Give the inputs to try."""
    if options.input:
        return [found.find(name) for name in options.input]
    players = {control.player for control in found.controls()}
    if not players:
        raise InventoryError("the machine has no input that players play with; name some: --input")
    if options.player and options.player not in players:
        raise InventoryError(f"there is no player {options.player}; there are: {sorted(players)}")
    return [c for c in found.controls() if options.player in (None, c.player)]


def _ranges(wanted: list[str], found: Inventory) -> tuple[tuple[int, int], ...]:
    """Give the addresses to look at, or say how to name them."""
    ranges = []
    for text in wanted:
        match = _RANGE.fullmatch(text)
        if match is None or int(match[2], 0) < int(match[1], 0):
            raise InventoryError(f"--ram {text!r} must be FIRST-LAST, such as 0x0000-0x03FF")
        ranges.append((int(match[1], 0), int(match[2], 0)))
    chosen = merged(ranges) if ranges else found.ram
    size = sum(last - first + 1 for first, last in chosen)
    if not size:
        raise InventoryError("MAME tells of no RAM in this machine; name it: --ram 0x0000-0x03FF")
    if size > _MOST_BYTES:
        told = ", ".join(f"0x{first:04X}-0x{last:04X}" for first, last in chosen)
        raise InventoryError(
            f"{size} bytes of RAM ({told}) are more than {_MOST_BYTES}; choose some with --ram"
        )
    return chosen


def _target(name: str) -> Path:
    """Give the Lua file to write; refuse to write over one."""
    path = Path(name.removesuffix(".lua")) if "/" in name else Path("games") / name
    spaces.check_name("--write", path.name)
    file = path.with_name(f"{path.name}.lua")
    if file.exists():
        raise LaunchError(f"--write: {file} is there already; take another name, or delete it")
    return file


# --- what to show and write ---------------------------------------------------------------------


@contextmanager
def _progress(frames: int) -> Iterator[Progress]:
    """Show how far it is: a bar in a terminal, lines elsewhere."""
    console = Console(stderr=True)
    if console.is_terminal:
        with Bar(console=console, transient=True) as bar:
            task = bar.add_task(f"exploring {frames:,} frames", total=frames)
            yield lambda done: bar.update(task, completed=done)
        return
    shown_s = time.monotonic()

    def tell(done: int) -> None:
        nonlocal shown_s
        if time.monotonic() - shown_s >= _LINE_S:
            shown_s = time.monotonic()
            print(f"coinop: explored {done:,} of {frames:,} frames", file=sys.stderr, flush=True)

    print(f"coinop: exploring {frames:,} frames", file=sys.stderr, flush=True)
    yield tell


def _hints(findings: Findings, *, repeats: bool) -> list[str]:
    """Say what a person should know about a strange result."""
    hints = []
    if not findings.study.effects:
        hints.append(
            "No input changed anything. Has the game begun (--start, --boot)? Are these its "
            "controllers? Paddle games of the Atari 2600 need --option joyport1=pad."
        )
    if not repeats:
        hints.append(
            "The machine did not repeat itself from the same moment: what the inputs do may be "
            "chance. Does MAME support save states for it?"
        )
    return hints


def _write(
    file: Path,
    settings: dict[str, Any],
    findings: Findings,
    start: Start,
    console: Console,
) -> None:
    player = skeleton.best_player(findings)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(skeleton.game_file(file.stem, findings, start, player), encoding="utf-8")
    file.with_suffix(".toml").write_text(skeleton.start_file(settings), encoding="utf-8")
    name = file.stem if file.parent == Path("games") else file
    console.print(f"\nwrote {file} and {file.with_suffix('.toml')}; next:")
    console.print(f"  python main.py rehearse mame:{name}")
    console.print(f"  python main.py --run {file.stem} --launch mame:{name}=2")


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number from 1 on")
    return int(text)
