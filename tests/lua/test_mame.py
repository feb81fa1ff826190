"""Real MAME against a real server."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from live import Server, until
from mame import Start, needs_mame

from server.emulators import PROGRAMS
from server.learn.replay import Layout, Replay

pytestmark = [needs_mame, pytest.mark.timeout(180)]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    running = Server(tmp_path / "runs", "--epsilon-end", "1")
    yield running
    running.kill()


def stored(tmp_path: Path) -> Replay:
    path = tmp_path / "runs" / "default" / "agents" / "pong2600" / "replay.bin"
    return Replay.to_read(path, Layout(20000, "float32", 10, 1, 1))


@pytest.mark.parametrize("transport", ["luasocket", "file"])
def test_lockstep_frames_and_a_clean_exit(
    server: Server, mame: Start, tmp_path: Path, transport: str
) -> None:
    game = mame(server.port, 3000, transport=transport)
    text, _ = game.communicate(timeout=120)
    assert game.returncode == 0, text
    assert {"luasocket": "over LuaSocket", "file": "over emu.file"}[transport] in text
    decisions = int(text.split(" decisions")[0].split()[-1])
    assert decisions > 600
    server.wait_for("mame at .* left: done")
    assert server.stop() == 0
    replay = stored(tmp_path)
    assert replay.head == decisions
    replay.check_valid()
    # Random turns move the paddle: how far it went in RAM follows them, but for the walls.
    place, went = replay.column("observation")[: replay.head, [0, 6]].T
    turned = replay.column("continuous")[: replay.head, 0]
    assert np.std(place) > 0.2
    later = slice(100, replay.head - 1)
    assert np.corrcoef(turned[later], went[101 : replay.head])[0, 1] > 0.7
    # The opponent scores against random play, and that arrives as rewards.
    assert replay.column("reward")[: replay.head].sum() < 0


def test_a_decision_every_frame_if_asked_for(server: Server, mame: Start) -> None:
    game = mame(server.port, 1000, frame_skip="1")
    text, _ = game.communicate(timeout=120)
    assert game.returncode == 0, text
    # All but the 120 frames of the boot and at most 30 idle ones.
    assert int(text.split(" decisions")[0].split()[-1]) >= 849


@pytest.mark.parametrize("transport", ["luasocket", "file"])
def test_a_server_that_comes_back_is_found_again(
    transport: str, mame: Start, tmp_path: Path
) -> None:
    first = Server(tmp_path / "runs", "--epsilon-end", "1")
    port = first.port
    game = mame(port, 60_000, transport=transport)
    first.wait_for("mame at .* joined agent pong2600")
    first.wait_for(r"frames +[1-9][\d,]* .*replay")
    first.kill()
    second = Server(tmp_path / "runs", "--epsilon-end", "1", "--port", str(port))
    try:
        second.wait_for("mame at .* joined agent pong2600")
        frames = stored(tmp_path).head
        until(lambda: stored(tmp_path).head >= frames + 50)
        assert game.poll() is None
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
    assert game.returncode == 2
    assert "the server refuses us: wrong or missing token" in text
    mame(server.port, 600, token="secret")
    server.wait_for("joined agent pong2600")
    server.kill()


def test_a_game_that_is_not_there_is_named(mame: Start) -> None:
    game = mame(9, 100, game="no_such_game")
    text, _ = game.communicate(timeout=60)
    assert game.returncode == 2
    assert "coinop: cannot load the game: " in text
    assert "no_such_game" in text


def test_a_run_keeps_the_version_of_its_emulator(tmp_path: Path) -> None:
    server = Server(tmp_path / "runs", "--launch", "mame:pong2600")
    try:
        assert server.port
        assert server.stop() == 0
    finally:
        server.kill()
    kept = json.loads((tmp_path / "runs" / "default" / "settings.json").read_text())
    assert kept["versions"]["mame"] == PROGRAMS["mame"].version() != "?"
    assert "fceux" not in kept["versions"]
