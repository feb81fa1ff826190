"""The learner's process: a training thread, and a line to the server that wants it.

``python -m server.train.child LINE BOARD`` is started by ``server.train.process`` with the
descriptors of a socket and of the board.
"""

from __future__ import annotations

import gc
import json
import os
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import torch

from server.controls import Controls
from server.learn.recipe import Recipe
from server.learn.replay import Layout, Replay
from server.train.board import Board
from server.train.thread import TrainingThread


class Child:
    """Trains as it is told, and shows what comes of it."""

    def __init__(self, line: socket.socket, board: Board, plan: dict[str, Any]) -> None:
        self._line = line
        self._sending = threading.Lock()
        self._board = board
        replay = Replay.to_read(Path(plan["replay_file"]), Layout(**plan["layout"]))
        self._learner = Recipe.from_plain(plan["recipe"]).make(replay)
        self._learner.set_state(board.read_state())
        self._thread = TrainingThread(
            name=plan["name"],
            learner=self._learner,
            replay=replay,
            min_replay=plan["min_replay"],
            max_replay_ratio=plan["max_replay_ratio"],
            controls=Controls(training=False),  # until we are told
            on_death=self._die,
            on_progress=self._show_progress,
            niceness=plan["niceness"],
            least_rest_s=plan["least_rest_s"],
        )
        self._hear: dict[str, Callable[[Any], object]] = {
            "controls": lambda plain: self._thread.set_controls(Controls(**plain)),
            "clients": self._thread.set_clients,
            "share": self._thread.set_share,
            "wake": self._thread.frames_arrived,
            "post": self._post,
            "target": lambda number: self._post(number, refresh_target=True),
        }

    def run(self, lines: Iterator[list[Any]]) -> int:
        """Do what the lines say, until they say stop or the server is gone."""
        gc.collect()
        gc.freeze()
        self._thread.start()
        for what, value in lines:
            if what == "stop":
                return self._stop()
            self._hear[what](value)
        os._exit(1)  # at once: nobody is left to train for

    def _stop(self) -> int:
        self._thread.stop(threading.TIMEOUT_MAX)
        self._board.post(self._learner)
        self._show_progress()
        return 0

    def _post(self, number: int, *, refresh_target: bool = False) -> None:
        """Show the newest state between two samples, and say so; if asked with a new target."""

        def post() -> None:
            if refresh_target:
                self._learner.refresh_target()
            self._board.post(self._learner)

        def posted(future: Future[None]) -> None:
            error = future.exception()
            if error is not None:
                self._die(error)
            self._say("posted", number)

        self._thread.call(post).add_done_callback(posted)

    def _show_progress(self) -> None:
        thread = self._thread
        self._board.post_progress(thread.state, thread.report, thread.wake_at)

    def _die(self, error: BaseException) -> None:
        """End the whole process; the server decides what follows."""
        traceback.print_exception(error)
        self._say("died", f"{type(error).__name__}: {error}")
        sys.stderr.flush()
        os._exit(1)

    def _say(self, what: str, value: Any) -> None:
        with self._sending:
            self._line.sendall(json.dumps([what, value]).encode() + b"\n")


def main(arguments: list[str]) -> int:
    """Learn until the server says stop or is gone; give the process's exit code."""
    torch.set_num_threads(1)
    line = socket.socket(fileno=int(arguments[0]))
    board = Board(int(arguments[1]))
    with line, line.makefile("rb") as bytes_lines:
        lines = map(json.loads, bytes_lines)
        _, plan = next(lines, (None, None))
        return Child(line, board, plan).run(lines) if plan else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
