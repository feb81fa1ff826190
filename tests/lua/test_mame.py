"""Real MAME against a real server."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import ale_py
import numpy as np
import pytest
from live import ROOT, Server

from server.learn.replay import Layout, Replay

MAME = shutil.which("mame", path=f"{os.environ.get('PATH', '')}:/usr/games")
pytestmark = [
    pytest.mark.skipif(MAME is None, reason="MAME is not installed"),
    pytest.mark.timeout(180),
]
ROM = Path(ale_py.__file__).parent / "roms" / "pong.bin"
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def mame(tmp_path: Path) -> Iterator[Start]:
    """Start MAMEs that end with the test."""
    running: list[subprocess.Popen[str]] = []

    def start(port: int, frames: int, **settings: str) -> subprocess.Popen[str]:
        home = tmp_path / f"mame{len(running)}"
        home.mkdir()
        directories = [
            part
            for name in ("snapshot", "state", "cfg", "nvram")
            for part in (f"-{name}_directory", str(home))
        ]
        environment = {
            "HOME": str(home),
            "SDL_VIDEODRIVER": "dummy",
            "SDL_AUDIODRIVER": "dummy",
            "COINOP_GAME": "pong2600",
            "COINOP_SERVER": f"127.0.0.1:{port}",
            "COINOP_FRAMES": str(frames),
            **{f"COINOP_{name.upper()}": value for name, value in settings.items()},
        }
        options = ["-joyport1", "pad", "-cart", str(ROM), "-video", "none", "-sound", "none"]
        options += ["-nothrottle", "-skip_gameinfo", "-autoboot_delay", "0"]
        options += ["-autoboot_script", str(ROOT / "client_lua" / "mame.lua"), *directories]
        running.append(
            subprocess.Popen(
                [str(MAME), "a2600", *options],
                cwd=home,
                env={**os.environ, **environment},
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


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    running = Server(tmp_path / "runs", "--epsilon-end", "1")
    yield running
    running.kill()


def stored(tmp_path: Path) -> Replay:
    path = tmp_path / "runs" / "default" / "agents" / "pong2600" / "replay.bin"
    return Replay.in_file(path, Layout(20000, "float32", 10, 1, 1))


@pytest.mark.parametrize("transport", ["luasocket", "file"])
def test_lockstep_frames_and_a_clean_exit(
    server: Server, mame: Start, tmp_path: Path, transport: str
) -> None:
    game = mame(server.port, 3000, transport=transport)
    text, _ = game.communicate(timeout=120)
    assert game.returncode == 0, text
    if transport == "file":
        assert "over emu.file" in text
    decisions = int(text.split(" decisions")[0].split()[-1])
    assert decisions > 600
    server.wait_for("mame at .* left: done")
    assert server.stop() == 0
    replay = stored(tmp_path)
    assert replay.head == decisions
    replay.check_valid()
    # Random paddle commands move the paddle: its place in RAM follows them.
    paddle = replay.column("observation")[: replay.head, 0]
    commanded = replay.column("continuous")[: replay.head, 0]
    assert np.std(paddle) > 0.2
    later = slice(100, replay.head - 1)
    moved = np.corrcoef(commanded[later], paddle[101 : replay.head])[0, 1]
    assert abs(moved) > 0.3
    # The opponent scores against random play, and that arrives as rewards.
    assert replay.column("reward")[: replay.head].sum() < 0


def test_a_server_that_comes_back_is_found_again(mame: Start, tmp_path: Path) -> None:
    first = Server(tmp_path / "runs", "--epsilon-end", "1")
    port = first.port
    game = mame(port, 30_000)
    first.wait_for("mame at .* joined agent pong2600")
    first.wait_for(r"frames +[1-9][\d,]* .*replay")
    first.kill()
    second = Server(tmp_path / "runs", "--epsilon-end", "1", "--port", str(port))
    try:
        second.wait_for("mame at .* joined agent pong2600")
        frames = stored(tmp_path).head
        second.wait_for(r"clients 1 .*frames")
        assert game.poll() is None
        deadline = 400
        while stored(tmp_path).head < frames + 50 and deadline:
            deadline -= 1
            second.wait_for("clients 1")
        game.terminate()
        assert second.stop() == 0
        stored(tmp_path).check_valid()
    finally:
        second.kill()


def test_the_fleet_launches_mame_and_starts_a_killed_one_again(tmp_path: Path) -> None:
    server = Server(tmp_path / "runs", "--launch", "mame:pong2600=2")
    try:
        server.wait_for("mame-pong2600-1 at .* joined agent pong2600")
        server.wait_for("mame-pong2600-2 at .* joined agent pong2600")
        number = server.process.pid
        tasks = Path(f"/proc/{number}/task").glob("*/children")
        children = [int(child) for task in tasks for child in task.read_text().split()]
        assert len(children) == 2
        os.kill(children[0], signal.SIGKILL)
        server.wait_for(r"emulator mame-pong2600-\d ended with code -9: .*again in 1 s")
        server.wait_for(r"emulator mame-pong2600-\d started again")
        server.wait_for(r"(?s)started again.*mame-pong2600-\d at .* joined agent pong2600")
        assert server.stop() == 0
        assert not any(Path(f"/proc/{child}").exists() for child in children)
    finally:
        server.kill()


def test_launched_emulators_do_not_outlive_a_killed_server(tmp_path: Path) -> None:
    server = Server(tmp_path / "runs", "--launch", "mame:pong2600=1")
    server.wait_for("mame-pong2600-1 at .* joined agent pong2600")
    number = server.process.pid
    tasks = Path(f"/proc/{number}/task").glob("*/children")
    (child,) = [child for task in tasks for child in task.read_text().split()]
    server.kill()
    deadline = time.monotonic() + 30
    while Path(f"/proc/{child}").exists():
        assert time.monotonic() < deadline, "MAME lives on without its server"
        time.sleep(0.1)


def test_a_refusal_ends_mame_with_the_reason(tmp_path: Path, mame: Start) -> None:
    server = Server(tmp_path / "runs", COINOP_TOKEN="secret")
    game = mame(server.port, 3000, token="wrong")
    text, _ = game.communicate(timeout=60)
    server.kill()
    assert game.returncode == 2
    assert "the server refuses us: wrong or missing token" in text


def test_a_game_that_is_not_there_is_named(mame: Start) -> None:
    game = mame(9, 100, game="no_such_game")
    text, _ = game.communicate(timeout=60)
    assert game.returncode == 2
    assert "coinop: cannot load the game: " in text
    assert "no_such_game" in text
