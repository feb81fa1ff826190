"""The command line of the Python client: python -m client_py --help."""

from __future__ import annotations

import argparse
import os
import re
import secrets
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from client_py.player import Game, Player

VERSION = "1"
_USAGE_ERROR = 2

_EXAMPLES = """\
examples:
  python -m client_py --ale pong                      Atari Pong from the ale-py wheel
  python -m client_py --ale breakout --observation ram --agent breakout-ram
                                                      another view needs an agent of its own
  python -m client_py --env CartPole-v1 --episodes 100
  python -m client_py --env Pendulum-v1 --render      watch it in a window
  python -m client_py --ale pong --server 10.0.0.5:9797 --token-file token
                                                      a server on another machine

Start one client per game you want to play in parallel; they train the same agent.
If the server is away the client waits for it, and goes on where it was.
exit codes: 0 played or stopped, 1 gave up (--once), 2 refused by the server or bad options
"""


def main(arguments: list[str] | None = None) -> int:
    """Play one game for a server; give the exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.env and options.observation:
        parser.error("--observation goes with --ale: an environment has one view only")
    if options.env and options.sticky:
        parser.error("--sticky goes with --ale: an environment has dice of its own")
    # Several BLAS threads per client fight for the cores; must be set before numpy is loaded.
    for library in ("OMP", "OPENBLAS", "MKL"):
        os.environ[f"{library}_NUM_THREADS"] = "1"
    try:
        from client_py.player import GameError
    except ModuleNotFoundError as error:
        _warn(
            f"{error.name} is not installed for this Python; run `make install` and use "
            ".venv/bin/python"
        )
        return _USAGE_ERROR
    from server.net.tls import TlsError
    from server.spaces import SpaceError

    try:
        return _play(options)
    except (GameError, SpaceError, TlsError) as error:
        _warn(str(error))
        return _USAGE_ERROR


def _play(options: argparse.Namespace) -> int:
    from client_py.player import Player
    from server.net import tls
    from server.net.wire import Hello
    from server.spaces import check_name

    title = re.sub(r"[^A-Za-z0-9._-]", "-", options.ale or options.env)
    client = check_name("--name", options.name)
    agent = check_name("--agent", options.agent or title)
    seed = secrets.randbits(30) if options.seed is None else options.seed
    context = tls.for_client(options.tls_ca) if options.tls or options.tls_ca else None
    game = _game(options, seed)
    player = Player(
        game,
        servers=options.server,
        hello=Hello(
            client,
            VERSION,
            check_name("game", title),
            agent,
            game.spaces,
            evaluate=options.evaluate,
        ),
        token=_token(options),
        tls=context,
        seed=seed,
        episodes=options.episodes,
        once=options.once,
        pace_s=game.decision_s if options.throttle else 0.0,
        say=_silent if options.quiet else _say,
        warn=_warn,
    )
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stopper(player))
    return player.run()


def _game(options: argparse.Namespace, seed: int) -> Game:
    if options.ale:
        from client_py.ale import AleGame, default_observation

        return AleGame(
            options.ale,
            observation=options.observation or default_observation(options.ale),
            frame_skip=options.frame_skip or 4,
            seed=seed,
            render=options.render,
            repeat_action_probability=options.sticky,
        )
    from client_py.gym import GymGame

    return GymGame(
        options.env, frame_skip=options.frame_skip or 1, seed=seed, render=options.render
    )


def _stopper(player: Player) -> Callable[[int, FrameType | None], None]:
    """Give a signal handler that asks the player to stop, and insists the second time."""

    def handle(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        player.stop()

    return handle


def _token(options: argparse.Namespace) -> str:
    if options.token_file is None:
        return os.environ.get("COINOP_TOKEN", "")
    text: str = options.token_file.read_text()
    return text.strip()


def _say(line: str) -> None:
    print(line, flush=True)


def _silent(line: str) -> None:
    pass


def _warn(line: str) -> None:
    print(f"client_py: {line}", file=sys.stderr, flush=True)


# --- options ----------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m client_py",
        description="Plays a game and lets a Coinop server choose the actions and learn.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--env", metavar="ID", help="a Gymnasium environment, such as CartPole-v1")
    what.add_argument("--ale", metavar="GAME", help="an Atari game, such as pong or breakout")
    add = parser.add_argument
    add(
        "--server",
        metavar="HOST:PORT",
        type=_addresses,
        default="127.0.0.1:9797",
        help="where the server listens; several by commas: to another if it is gone "
        "(default: %(default)s)",
    )
    add("--agent", help="which agent plays (default: the game's name)")
    add(
        "--observation",
        choices=("features", "ram", "image"),
        help="how to see an Atari game (default: features where they are known, else ram)",
    )
    add(
        "--frame-skip",
        metavar="N",
        type=_positive,
        help="frames that an action is held (default: 4 for Atari, else 1)",
    )
    add("--seed", metavar="N", type=_count, help="makes the games repeatable (default: random)")
    add(
        "--episodes",
        metavar="N",
        type=_count,
        default=0,
        help="stop after so many; 0 = never (default: %(default)s)",
    )
    add(
        "--evaluate",
        action="store_true",
        help="have the agent evaluated: it plays its best, and nothing is learned from it",
    )
    add(
        "--sticky",
        metavar="P",
        type=_share,
        default=0.0,
        help="share of an Atari game's frames in which the last action is repeated, whatever was "
        "asked for; 0.25 is usual (default: %(default)s)",
    )
    add("--render", action="store_true", help="show the game in a window")
    add("--throttle", action="store_true", help="play at the speed of the real machine")
    add("--name", default="client_py", help="what the server calls it (default: %(default)s)")
    add(
        "--token-file",
        metavar="FILE",
        type=_file,
        help="file with the server's token (or set COINOP_TOKEN)",
    )
    add("--tls", action="store_true", help="connect with TLS, trusting the system's authorities")
    add(
        "--tls-ca",
        metavar="FILE",
        type=_file,
        help="connect with TLS, trusting the certificates in this file (PEM)",
    )
    add("--once", action="store_true", help="give up at the first failure (exit code 1)")
    add("--quiet", action="store_true", help="print failures only")
    return parser


def _addresses(text: str) -> list[tuple[str, int]]:
    """Read the address of a server, or those of several by commas."""
    return [_address(part) for part in text.split(",")]


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT, such as 127.0.0.1:9797")
    return host.strip("[]"), int(port)


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 on")
    return int(text)


def _positive(text: str) -> int:
    number = _count(text)
    if number == 0:
        raise argparse.ArgumentTypeError("0 frames are no action: use 1 or more")
    return number


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:  # at 1 no action would ever get through
        raise argparse.ArgumentTypeError(f"{text!r} is not a share from 0 to below 1")
    return value


def _file(text: str) -> Path:
    path = Path(text)
    if not path.is_file():
        raise argparse.ArgumentTypeError(f"no file {text!r}")
    return path


if __name__ == "__main__":
    sys.exit(main())
