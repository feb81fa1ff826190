"""Steer a running server from outside: look at it, change live settings, save, evaluate, stop.

examples:
  python main.py ctl status                         what the server does
  python main.py ctl get                            every live setting
  python main.py ctl set epsilon 0.05 --over 1M     go there over a million frames
  python main.py ctl set epsilon natural            give it back to its schedule
  python main.py ctl set client.start_level 9       push a setting to the games' scripts
  python main.py ctl eval                           evaluate now, and wait for the score
  python main.py ctl --run pong stop                stop and save, and wait for it
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping

from server import record
from server.console import plain
from server.controls import Command, Verb
from server.request import Do, Request, RequestError
from server.stats import AgentView, DialView, Snapshot
from tools import control
from tools.control import Line, NoServerError
from tools.progress import Progress

_WHO = "ctl"
_LOOK_S = 0.25  # between looks at an evaluation
_SUFFIXES = {"k": 1e3, "M": 1e6, "G": 1e9}

# Commands that need nothing beside their name.
_DEEDS: dict[str, tuple[Verb, str]] = {
    "save": (Verb.SAVE, "save a checkpoint now, and wait for it"),
    "undo": (Verb.UNDO, "take the newest change of a live setting back"),
    "sync": (Verb.SYNC, "copy the trained weights into play now"),
    "target": (Verb.TARGET, "make the target network equal to the one that trains"),
    "flush": (Verb.FLUSH, "empty the replay"),
    "stop": (Verb.STOP, "stop the server in good order, and wait until it has saved"),
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Describe the commands."""
    control.add_options(parser)
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    status = actions.add_parser("status", help="say what the server does")
    status.add_argument("--json", action="store_true", help="all figures, as JSON")
    get = actions.add_parser("get", help="show a live setting, or all of them")
    get.add_argument("name", nargs="?", default="", help="which one")
    change = actions.add_parser("set", help="change a live setting")
    change.add_argument("name", help="which one; `get` lists them, client.NAME is a game's own")
    change.add_argument("value", help="a value, on or off, or natural")
    change.add_argument(
        "--over",
        type=frames,
        default=0,
        metavar="FRAMES",
        help="go there in a straight line over this many frames, such as 1M",
    )
    for name, (_, about) in _DEEDS.items():
        actions.add_parser(name, help=about)
    actions.add_parser("eval", help="evaluate the agents now, and wait for their scores")
    watch = actions.add_parser("watch", help="print a status line again and again")
    watch.add_argument("--every-s", type=float, default=1.0, metavar="S", help="how often (1 s)")
    watch.add_argument("--json", action="store_true", help="all figures, a line of JSON each")


def run(options: argparse.Namespace) -> int:
    """Do it; 1 if the server refused, 2 if there is none."""
    action = _ACTIONS.get(options.action, _deed)
    try:
        with Line(control.find(options.runs_dir, options.run)) as line:
            action(line, options)
    except RequestError as error:
        print(f"ctl: {error}", file=sys.stderr)
        return 1
    except (NoServerError, OSError) as error:
        print(f"ctl: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def frames(text: str) -> int:
    """Read a number of frames such as 250000, 250k or 1.5M."""
    scale = _SUFFIXES.get(text[-1:], 1.0)
    try:
        count = int(float(text[:-1] if scale > 1 else text) * scale)
    except (ValueError, OverflowError):
        count = 0
    if count < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of frames, such as 250k or 1M")
    return count


def _status(line: Line, options: argparse.Namespace) -> None:
    if options.json:
        print(json.dumps(line.ask(Request(Do.STATUS))))
        return
    snapshot = line.status()
    print(f"run {snapshot.run} on {snapshot.address}")
    print(plain.status_line(snapshot))
    for dial in snapshot.dials:
        if dial.chosen:
            print(f"{dial.name} = {dial.value} {dial.unit}".rstrip() + f" (natural {dial.natural})")


def _get(line: Line, options: argparse.Namespace) -> None:
    dials = [record.from_plain(DialView, dial) for dial in line.ask(Request(Do.GET))]
    found = [dial for dial in dials if dial.name == options.name]
    if options.name and not found:
        known = ", ".join(dial.name for dial in dials)
        raise RequestError(f"there is no live setting {options.name!r}; known: {known}")
    for dial in found or dials:
        chosen = f"chosen {dial.chosen}" if dial.chosen else "natural"
        value = dial.value if options.name else f"{dial.name:<18} {dial.value:<10}"
        print(value if options.name else f"{value} {chosen:<24} {dial.allowed:<28} {dial.about}")


def _set(line: Line, options: argparse.Namespace) -> None:
    print(line.obey(Command(Verb.SET, options.name, options.value, options.over), _WHO))


def _deed(line: Line, options: argparse.Namespace) -> None:
    verb = _DEEDS[options.action][0]
    print(line.obey(Command(verb), _WHO), flush=True)
    if verb is Verb.STOP:
        line.wait_for_end()
        print("stopped")


def _eval(line: Line, options: argparse.Namespace) -> None:
    before = {agent.name: agent.evaluations for agent in line.status().agents}
    print(line.obey(Command(Verb.EVAL), _WHO), flush=True)
    waited_for: dict[str, AgentView] = {}
    with Progress("evaluating") as progress:
        for seen in line.watch(_LOOK_S):
            agents = record.from_plain(Snapshot, seen).agents
            if not waited_for:
                waited_for = {agent.name: agent for agent in agents if _is_examined(agent, before)}
            for agent in (agent for agent in agents if agent.name in waited_for):
                if agent.evaluating and agent.evaluating != waited_for[agent.name].evaluating:
                    count = f"{agent.evaluating} of {agent.evaluating_of or '?'}"
                    progress.tell(f"{agent.name}: {count} episodes")
                waited_for[agent.name] = agent
            if all(agent.evaluating is None for agent in waited_for.values()):
                break
        else:
            raise NoServerError("the server ended before the evaluation did")
    _scores(waited_for.values(), before)


def _is_examined(agent: AgentView, before: Mapping[str, int]) -> bool:
    """Say whether an agent is being evaluated, or was while nobody looked."""
    return agent.evaluating is not None or agent.evaluations > before.get(agent.name, 0)


def _scores(agents: Iterable[AgentView], before: Mapping[str, int]) -> None:
    """Print what evaluations found; one that found nothing is a RequestError."""
    for agent in agents:
        if agent.evaluation is None or agent.evaluations <= before.get(agent.name, 0):
            raise RequestError(
                f"the evaluation of {agent.name} came to nothing; the events say why"
            )
        print(f"{agent.name}: {agent.evaluation.describe()}")


def _watch(line: Line, options: argparse.Namespace) -> None:
    for seen in line.watch(options.every_s):
        if options.json:
            print(json.dumps(seen), flush=True)
        else:
            print(plain.status_line(record.from_plain(Snapshot, seen)), flush=True)


_ACTIONS: dict[str, Callable[[Line, argparse.Namespace], None]] = {
    "status": _status,
    "get": _get,
    "set": _set,
    "eval": _eval,
    "watch": _watch,
}
