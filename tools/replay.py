"""Plays a tape (--record FILE) back against a server: the same clients say the same things again.

Each message is sent when its time has come, and when the server has answered again what it had
answered before it. Neither emulators nor ROMs are needed.

  python main.py replay bug.tape --speed 10
  python main.py replay bug.tape --speed 0 --server 127.0.0.1:9898   # as fast as it is answered
"""

from __future__ import annotations

import argparse
import ssl
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import config
from client_py.link import Link, LinkError, Rejected
from server.emulators import LaunchError
from server.fleet import reachable
from server.net import tape as tapes
from server.net import tls, wire
from server.net.tape import Entry, Kind, TapeError
from server.net.wire import Bye, Error, Hello, Reject, Welcome

_ANSWER_S = 60.0
_CONNECT_S = 5.0
_STOPPED = 130  # exit code after Ctrl-C


class ReplayFailure(Exception):  # noqa: N818 - what was found, not a fault of ours
    """A server that did not do as on the tape; the message says where."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this command."""
    add = parser.add_argument
    add("tape", metavar="FILE", type=Path, help="what --record wrote")
    add(
        "--speed",
        metavar="N",
        type=_speed,
        default=1.0,
        help="times as fast as it was; 0: as fast as it is answered (default: %(default)s)",
    )
    add(
        "--server",
        metavar="HOST:PORT",
        default=f"{config.Server().host}:{config.Server().port}",
        help="where the server listens (default: %(default)s)",
    )
    add("--token-file", metavar="FILE", default="", help="file that holds the server's token")
    add("--tls-ca", metavar="FILE", type=Path, help="connect with TLS, trusting this file (PEM)")


def run(options: argparse.Namespace) -> int:
    """Play a tape to its end; give the exit code."""
    try:
        host, _, port = reachable(options.server).rpartition(":")
        token = config.read_token(options.token_file)
        context = tls.for_client(options.tls_ca) if options.tls_ca else None
    except (LaunchError, tls.TlsError, config.ConfigError) as error:
        _warn(str(error))
        return 2
    began = time.monotonic()
    with Stage(host=host.strip("[]"), port=int(port), token=token, context=context) as stage:
        try:
            stage.play(tapes.read(options.tape, _warn), options.speed)
        except TapeError as error:
            _warn(str(error))
            return 2
        except (ReplayFailure, LinkError) as error:
            _warn(f"{error} ({stage.time_s:.3f} s after the tape's beginning)")
            return 1
        except KeyboardInterrupt:
            return _STOPPED
    print(
        f"replayed {stage.frames:,} frames of {stage.clients} clients in "
        f"{time.monotonic() - began:.1f} s; recorded in {stage.time_s:.1f} s"
    )
    return 0


class Stage:
    """The clients of a tape, played in the order in which things happened."""

    def __init__(self, *, host: str, port: int, token: str, context: ssl.SSLContext | None) -> None:
        self._host, self._port, self._token, self._context = host, port, token, context
        self._links: dict[int, Link] = {}
        self._refused: dict[int, str] = {}  # whom the server turned away, and why
        self._sessions: dict[str, str] = {}  # of the tape, to those of this server
        self._news: dict[int, str] = {}  # sessions that this server gave, by connection
        self.frames = 0
        self.clients = 0
        self.time_s = 0.0  # how far the tape has been played

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *_: object) -> None:
        for link in self._links.values():
            link.drop()

    def play(self, entries: Iterable[Entry], speed: float) -> None:
        """Let everything happen again, at so many times its speed; 0 waits for answers only."""
        began = time.monotonic()
        for entry in entries:
            if speed:
                time.sleep(max(0.0, began + entry.time_s / speed - time.monotonic()))
            self.time_s = entry.time_s
            _DEEDS[entry.kind](self, entry)

    def open(self, entry: Entry) -> None:
        """Do nothing yet: a client connects when it says Hello."""

    def say(self, entry: Entry) -> None:
        """Send what a client sent."""
        message = _message(entry.payload)
        link = self._links.get(entry.connection)
        if isinstance(message, Hello) and link is None:
            self._greet(entry.connection, message)
        elif link is not None:
            link.send(len(entry.payload).to_bytes(wire.HEADER_BYTES, "little") + entry.payload)
            self.frames += type(message) is list

    def hear(self, entry: Entry) -> None:
        """Wait for what the server had said, as far as it is an answer."""
        message = _message(entry.payload)
        link, refused = self._links.get(entry.connection), self._refused.get(entry.connection)
        if isinstance(message, Welcome):
            if link is None:
                raise ReplayFailure(
                    f"client {entry.connection} was welcome, and now is not: {refused}"
                )
            self._sessions[message.session] = self._news[entry.connection]
        elif isinstance(message, Reject) and link is not None:
            raise ReplayFailure(
                f"client {entry.connection} was refused ({message.reason}), and now is welcome"
            )
        elif isinstance(message, Bye | Error):
            self.close(entry)  # as then, nobody hears what it says afterwards
        elif type(message) is list and link is not None:
            self._answer(entry.connection, link, message[0])

    def close(self, entry: Entry) -> None:
        """Leave as the client left."""
        link = self._links.pop(entry.connection, None)
        if link is not None:
            link.drop()

    def _greet(self, connection: int, hello: Hello) -> None:
        link = Link(
            self._host,
            self._port,
            timeout_s=_ANSWER_S,
            connect_timeout_s=_CONNECT_S,
            tls=self._context,
        )
        resume = self._sessions.get(hello.resume, hello.resume)
        try:
            welcome = link.greet(replace(hello, resume=resume), self._token)
        except Rejected as error:
            link.drop()
            self._refused[connection] = str(error)
            return
        except LinkError:
            link.drop()
            raise
        self._links[connection] = link
        self._news[connection] = welcome.session
        self.clients += 1

    def _answer(self, connection: int, link: Link, sequence: int) -> None:
        try:
            link.answer(sequence)
        except LinkError as error:
            raise ReplayFailure(
                f"frame {sequence} of client {connection} was answered, and now is not: {error}"
            ) from error


_DEEDS = {
    Kind.OPENED: Stage.open,
    Kind.SAID: Stage.say,
    Kind.TOLD: Stage.hear,
    Kind.CLOSED: Stage.close,
}


def _message(payload: bytes) -> Any:
    """Give a message: a list for a Frame or an Action; None for what is none."""
    try:
        value = wire.unpack(payload)
        return wire.read_control(value) if type(value) is dict else value
    except wire.WireError:
        return None


def _speed(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is no speed: use 0 or more")
    return value


def _warn(text: str) -> None:
    print(f"coinop: {text}", file=sys.stderr)
