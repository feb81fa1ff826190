"""Coinop's command line: settings in, a running server out."""

from __future__ import annotations

import argparse
import difflib
import importlib
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

import config

_ABOUT = """\
Train agents on games that run in emulators. The server takes a frame from every emulator,
answers each with an action, and learns while they play."""

_EXAMPLES = """\
commands:
{commands}

examples:
  python main.py                                  wait for emulators (see the commands it shows)
  python main.py --launch ale:pong=2              start two Atari emulators that play Pong
  python main.py --run breakout --launch ale:breakout=4 --batch-size 512
  python main.py --run breakout                   go on with that run
  python main.py --config my.toml --fresh         start over; the old run is kept
  python main.py --cluster auto --gateways 4      on all machines of a Ray cluster; with slow steps
                                                  (images, wide networks) --learners 2 share them

Settings come from their defaults, then --config FILE, then the command line.
docs/configuration.md explains each of them."""


_CLOSE = 0.75  # how alike what was typed and what was meant must be; dashes are alike already

# What `python main.py NAME` does besides serving; tools/NAME.py has `add_options` and `run`.
TOOLS: dict[str, str] = {
    "games": "list the games, the emulators they run under, and what is missing",
    "attach": "show the dashboard of a server that runs already, with its keys",
    "ctl": "steer a server that runs already: status, get, set, save, eval, stop, watch",
    "emulate": "start emulators for a server that runs already, here or elsewhere",
    "explore": "find out what an unknown game's RAM means, and write a first game file",
    "rehearse": "try a game file with random actions, without a server",
    "eval": "evaluate a run's agent: greedy episodes with fixed seeds",
    "report": "write a page about a run: curves, settings, journal, last evaluation",
    "replay": "play a tape of all clients' messages (--record) back against a server",
    "snapshot": "save pictures of the clients' screens (--preview-every)",
}


def main(arguments: list[str] | None = None) -> int:
    """Read the command line and serve, or run a tool; give the process's exit code."""
    _pin_threads()
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments and arguments[0] in TOOLS:
        return _run_tool(arguments[0], arguments[1:])
    parser = make_parser()
    options = parser.parse_args(arguments)
    try:
        base = config.read_toml(options.config) if options.config else {}
        settings = config.from_arguments(options, base)
        token = config.read_token(settings.server.token_file)
    except config.ConfigError as error:
        print(f"coinop: {error}", file=sys.stderr)
        return 2
    # Imported late: --help, a wrong option and a taken port should not wait for torch.
    try:
        from server.net import listener

        if not settings.cluster.cluster:  # there, gateways listen, and may do so already
            listener.check_free(settings.server.host, settings.server.port)
        if sys.stdout.isatty():
            print("coinop: starting (loading torch takes a few seconds)", flush=True)
        from server.app import serve
    except OSError as error:
        print(f"coinop: {error}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        print(
            f"coinop: {error.name} is not installed for this Python; run `make install` and use "
            ".venv/bin/python",
            file=sys.stderr,
        )
        return 2
    return serve(settings, token=token)


class Parser(argparse.ArgumentParser):
    """A parser that guesses what a person meant who mistyped an option or a command."""

    def __init__(self, commands: Iterable[str] = (), **settings: Any) -> None:
        super().__init__(**settings)
        self._commands = tuple(commands)

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and what comes close to it."""
        _, unrecognized, given = message.partition("unrecognized arguments: ")
        known = [option for action in self._actions for option in action.option_strings]
        for word in given.split() if unrecognized else ():
            option = word.split("=")[0]
            near = difflib.get_close_matches(option, (*known, *self._commands), 1, _CLOSE)
            if near:
                message += f"; did you mean {near[0]}?"
        super().error(message)


def _run_tool(name: str, arguments: list[str]) -> int:
    """Run one of the commands beside the server."""
    tool = importlib.import_module(f"tools.{name}")
    parser = Parser(
        prog=f"main.py {name}",
        description=tool.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    tool.add_options(parser)
    code: int = tool.run(parser.parse_args(arguments))
    return code


def make_parser() -> argparse.ArgumentParser:
    """Build the parser: every setting of config.py, and the file that may hold them."""
    parser = Parser(
        TOOLS,
        prog="main.py",
        usage="python main.py [--config FILE] [options]\n       python main.py COMMAND [options]",
        description=_ABOUT,
        epilog=_EXAMPLES.format(
            commands="\n".join(f"  python main.py {name:<41}{TOOLS[name]}" for name in TOOLS)
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="TOML file with settings")
    config.add_arguments(parser)
    return parser


def _pin_threads() -> None:
    """Keep BLAS and OpenMP to one thread each; unpinned they cost 3 to 30 times (see docs)."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")


if __name__ == "__main__":
    sys.exit(main())
