"""Real MAMEs that end with their test."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from server import emulators
from server.emulators import LaunchError, Seat

Start = Callable[..., subprocess.Popen[str]]


def _is_there() -> bool:
    try:
        emulators.PROGRAMS["mame"].path()
    except LaunchError:
        return False
    return True


needs_mame = pytest.mark.skipif(not _is_there(), reason="MAME is not installed")


@pytest.fixture
def mame(tmp_path: Path) -> Iterator[Start]:
    """Give a function that starts one: the server's port, how many frames, and COINOP settings."""
    running: list[subprocess.Popen[str]] = []

    def start(
        port: int, frames: int = 0, plays: str = "pong2600", **settings: str
    ) -> subprocess.Popen[str]:
        home = tmp_path / f"mame{len(running)}"
        home.mkdir()
        command = emulators.command("mame", plays, Seat("mame", f"127.0.0.1:{port}", 1, home))
        told = {"once": "", "wait": "", "frames": str(frames), **settings}
        environment = {f"COINOP_{name.upper()}": value for name, value in told.items()}
        running.append(
            subprocess.Popen(
                command.arguments,
                cwd=home,
                env={**os.environ, **command.environment, **environment},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                restore_signals=False,  # SIGPIPE stays ignored: MAME's own sockets need that
            )
        )
        return running[-1]

    yield start
    for process in running:
        if process.poll() is None:
            process.kill()
        process.communicate()
