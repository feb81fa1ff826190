"""Starts emulators for a server that runs already, on this machine or another.

They wait for a server that is away, are started again if they fall, and end with Ctrl-C. The
server's token comes from COINOP_TOKEN or --token-file.
"""

from __future__ import annotations

import argparse
import contextlib
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import config
from server import fleet as fleet_module
from server.emulators import LaunchError
from server.fleet import Fleet

_USUAL = config.Emulators()
_LOOK_S = 0.1  # between looks at the emulators
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # the last: the terminal was closed
_REACH_S = 2.0


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this command."""
    add = parser.add_argument
    add("what", nargs="+", metavar="EMULATOR:GAME=COUNT", help="such as mame:pong2600=4")
    add(
        "--server",
        metavar="HOST:PORT",
        default=f"{config.Server().host}:{config.Server().port}",
        help="where the server listens; several by commas: to another if it is gone "
        "(default: %(default)s)",
    )
    add("--token-file", metavar="FILE", default="", help="file that holds the server's token")
    add(
        "--tls-ca",
        metavar="FILE",
        type=_file,
        help="connect with TLS, trusting the certificates in this file (PEM)",
    )
    add("--show", action="store_true", help="show them in windows, at the real machine's speed")
    add(
        "--throttle",
        action=argparse.BooleanOptionalAction,
        help="hold them to the speed of the real machine (default: as --show)",
    )
    add(
        "--niceness",
        metavar="N",
        type=int,
        choices=range(20),
        default=_USUAL.niceness,
        help="how far they give way to others, 0 to 19 (default: %(default)s)",
    )
    add(
        "--stagger-s",
        metavar="X",
        type=float,
        default=_USUAL.stagger_s,
        help="seconds between two starts (default: %(default)s)",
    )
    add("--seed", metavar="N", type=int, help="makes the games repeatable (default: random)")


def run(options: argparse.Namespace) -> int:
    """Keep emulators running until somebody says stop; give the exit code."""
    homes = Path(tempfile.mkdtemp(prefix="coinop-"))
    try:
        fleet = _fleet(options)
        token = config.read_token(options.token_file)
        fleet.seat(options.server, token, homes, tls_ca=options.tls_ca or "")
    except (LaunchError, config.ConfigError) as error:
        print(f"coinop: {error}", file=sys.stderr)
        shutil.rmtree(homes)
        return 2
    print(f"{fleet.size} emulators play for {options.server}; Ctrl-C ends them", flush=True)
    with _stop_signals() as stop:
        _say_if_away(options.server)
        try:
            while not stop.wait(_LOOK_S) and not fleet.down:
                for text in fleet.tend():
                    print(text, flush=True)
        finally:
            down = fleet.down
            fleet.stop()
    if down:
        print(f"coinop: no emulator is left; their logs are in {homes}", file=sys.stderr)
        return 1
    shutil.rmtree(homes)
    return 0


def _file(text: str) -> str:
    path = Path(text).absolute()  # emulators have directories of their own
    if not path.is_file():
        raise argparse.ArgumentTypeError(f"no file {text!r}")
    return str(path)


def _fleet(options: argparse.Namespace) -> Fleet:
    if each := [text for text in options.what if fleet_module.parse(text).each]:
        raise LaunchError(f"{each[0]}: @each is for a server on a cluster; these are started here")
    launches = [
        fleet_module.parse(text)
        .settled(show=options.show, throttle=options.throttle, niceness=options.niceness)
        .check(tls_ca=options.tls_ca or "")
        for text in options.what
    ]
    machine = socket.gethostname().split(".")[0]
    return Fleet(
        launches,
        seed=secrets.randbits(30) if options.seed is None else options.seed,
        prefix=f"{machine}-" if machine else "",  # people see where a client runs
        once=False,
        stagger_s=options.stagger_s,
    )


def _say_if_away(server: str) -> None:
    """Warn where no server can be reached; an address may be wrong."""
    for address in server.split(","):
        host, _, port = fleet_module.reachable(address).rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), _REACH_S).close()
        except OSError as error:
            problem = error.strerror or error
        else:
            return
    print(f"no server at {server} ({problem}); the emulators wait for it", flush=True)


@contextlib.contextmanager
def _stop_signals() -> Iterator[threading.Event]:
    """Turn signals into an event; those before it are put back at the end."""
    stop = threading.Event()
    before = {
        number: signal.signal(number, lambda number, frame: stop.set()) for number in _SIGNALS
    }
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
