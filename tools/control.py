"""The other end of a run's control socket: finds a running server and talks to it."""

from __future__ import annotations

import argparse
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from config import Run
from server import gate, record, request
from server.controls import Command
from server.request import Do, Request
from server.stats import Snapshot

_PATIENCE_S = 60.0  # for an answer: a save of a large network takes a while


class NoServerError(RuntimeError):
    """Nobody answers for a run; the message says how to start it."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Let a person name the run."""
    parser.add_argument(
        "--run", default="", help="name of the run (default: the one that runs, or default)"
    )
    parser.add_argument(
        "--runs-dir",
        type=Path,
        default=Path(Run().runs_dir),
        metavar="DIR",
        help="directory that holds all runs (default: %(default)s)",
    )


def find(runs: Path, name: str) -> Path:
    """Give the socket of the run of this name, or of the only one that runs."""
    if name:
        return (runs / name / gate.NAME).absolute()
    running = [path for path in sorted(runs.glob(f"*/{gate.NAME}")) if _answers(path)]
    if len(running) > 1:
        names = ", ".join(path.parent.name for path in running)
        raise NoServerError(f"several servers run in {runs}: {names}; choose one with --run NAME")
    return (running[0] if running else runs / Run().run / gate.NAME).absolute()


def connect(path: Path) -> socket.socket:
    """Open a connection; where nobody listens, a NoServerError says how to start a server."""
    end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with gate.reachable(path) as name:
            end.connect(name)
    except OSError as error:
        end.close()
        raise NoServerError(
            f"no server runs the run {path.parent.name!r} ({path}: {error.strerror}); start it "
            f"with: python main.py --run {path.parent.name} --runs-dir {path.parent.parent}"
        ) from error
    end.settimeout(_PATIENCE_S)
    return end


class Line:
    """A connection, for one request after the other."""

    def __init__(self, path: Path) -> None:
        self._socket = connect(path)
        self._file = self._socket.makefile("rb")

    def __enter__(self) -> Line:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._socket.close()

    def ask(self, asked: Request) -> Any:
        """Give the answer to a request; a refusal is a RequestError."""
        self._socket.sendall(request.encode(asked))
        return self._answer()

    def obey(self, command: Command, who: str) -> str:
        """Have a command carried out, and give what came of it."""
        return str(self.ask(Request(Do.COMMAND, command, who)))

    def status(self) -> Snapshot:
        """Give all figures of this moment."""
        return record.from_plain(Snapshot, self.ask(Request(Do.STATUS)))

    def watch(self, every_s: float) -> Iterator[Any]:
        """Give plain Snapshots as they come, until the server ends."""
        self._socket.settimeout(None)
        self._socket.sendall(request.encode(Request(Do.WATCH, every_s=every_s)))
        for line in self._file:
            yield request.read_answer(line)

    def wait_for_end(self) -> None:
        """Wait until the server has closed the connection, which is the last thing it does."""
        self._socket.settimeout(None)
        while self._file.readline():
            pass

    def _answer(self) -> Any:
        line = self._file.readline()
        if not line:
            raise NoServerError("the server ended before it answered")
        return request.read_answer(line)


def _answers(path: Path) -> bool:
    try:
        connect(path.absolute()).close()
    except NoServerError:
        return False
    return True
