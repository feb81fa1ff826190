"""Our own NES game in real FCEUX and in real MAME, against a real server."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from live import Server

from server import emulators
from server.emulators import LaunchError, Seat
from server.learn.replay import Layout, Replay
from server.net.wire import START, TERMINAL

PLACES = f"{os.environ.get('PATH', '')}:/usr/games"
FCEUX = pytest.param(
    "fceux",
    marks=pytest.mark.skipif(not shutil.which("fceux", path=PLACES), reason="FCEUX is missing"),
)
MAME = pytest.param(
    "mame",
    marks=pytest.mark.skipif(not shutil.which("mame", path=PLACES), reason="MAME is missing"),
)
pytestmark = [
    pytest.mark.skipif(not shutil.which("cl65"), reason="cc65 is not installed"),
    pytest.mark.timeout(180),
]
STEP = 3 * 4 / 108  # how far the basket moves in one decision, as the network sees it
Start = Callable[..., subprocess.Popen[str]]
Play = Callable[[str], tuple[Replay, str]]


@pytest.fixture(params=[FCEUX, MAME])
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Start emulators as the fleet does; they end with the tests."""
    running: list[subprocess.Popen[str]] = []

    def start(kind: str, port: int, frames: int, **settings: str) -> subprocess.Popen[str]:
        home = tmp_path_factory.mktemp(kind)
        seat = Seat(kind, f"127.0.0.1:{port}", 1, home, once=False)
        command = emulators.command(kind, "catch", seat)
        command.prepare()
        told = {"FRAMES": str(frames), "WAIT": "", **settings}
        changes = {f"COINOP_{name.upper()}": value for name, value in told.items()}
        running.append(
            subprocess.Popen(
                command.arguments,
                cwd=command.directory,
                env={**os.environ, **command.environment, **changes},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                restore_signals=False,
            )
        )
        return running[-1]

    yield start
    for process in running:
        if process.poll() is None:
            process.kill()
        process.communicate()


def stored(runs: Path) -> Replay:
    path = runs / "default" / "agents" / "catch" / "replay.bin"
    return Replay.to_read(path, Layout(20000, "float32", 7, 1, 0))


@pytest.fixture(scope="module")
def play(emulator: Start, tmp_path_factory: pytest.TempPathFactory) -> Play:
    """Play 4,000 frames at random, once per emulator; give what was stored and what it said."""

    @functools.cache
    def play(kind: str) -> tuple[Replay, str]:
        runs = tmp_path_factory.mktemp("runs")
        server = Server(runs, "--epsilon-end", "1", "--no-training")
        try:
            game = emulator(kind, server.port, 4000)
            text, _ = game.communicate(timeout=120)
            assert game.returncode == 0, text
            server.wait_for(f"{kind} at .* left: done")
            assert server.stop() == 0
        finally:
            server.kill()
        replay = stored(runs)
        replay.check_valid()
        return replay, text

    return play


def test_random_play_is_seen_and_rewarded(kind: str, play: Play) -> None:
    replay, text = play(kind)
    assert "coinop: playing catch over LuaSocket" in text
    decisions = int(text.split(" decisions")[0].split()[-1])
    episodes = int(text.split(" episodes")[0].split()[-1])
    assert decisions > 800
    assert episodes >= 2
    size = replay.head
    assert size == decisions
    flags = replay.column("flags")[:size]
    assert (flags & TERMINAL > 0).sum() == episodes
    # Every episode starts from the same state: the basket in the middle, no apple yet.
    seen = replay.column("observation")[:size]
    starts = seen[flags & START > 0]
    assert len(starts) in (episodes, episodes + 1)
    assert np.all(starts == [0, 0, 0, 0, 0, -1, 0])
    # The basket goes where it is told, unless there is a wall.
    moved = np.diff(seen[:, 0])
    choice = replay.column("choice")[: size - 1, 0]
    whole = (flags[:-1] | flags[1:]) & TERMINAL == 0  # an end does not wait for four frames
    free = whole & (np.abs(seen[:-1, 0]) < 1 - STEP)
    assert free.sum() > 300
    expected = np.array([0, -STEP, STEP])[choice]
    assert moved[free] == pytest.approx(expected[free], abs=1e-5)
    # Five apples on the ground end a game; apples come from all over the place.
    rewards = replay.column("reward")[:size]
    assert (rewards < 0).sum() >= 5 * episodes
    assert (rewards > 0).sum() >= 1
    falling = seen[:, 6] == 1
    apples = np.unique(np.round((seen[falling, 0] + seen[falling, 1]) * 108))
    assert len(apples) > 20


@pytest.mark.skipif(
    not all(shutil.which(name, path=PLACES) for name in ("fceux", "mame")),
    reason="FCEUX or MAME is missing",
)
def test_both_emulators_play_the_same_game(play: Play) -> None:
    """The same seed and the same actions give the same frames, bit for bit."""
    (fceux, _), (mame, _) = play("fceux"), play("mame")
    for name in ("observation", "choice", "reward", "flags"):
        assert np.array_equal(fceux.column(name)[:800], mame.column(name)[:800]), name


@pytest.mark.parametrize("kind", [FCEUX])
def test_a_server_that_comes_back_is_found_again(
    kind: str, emulator: Start, tmp_path: Path
) -> None:
    first = Server(tmp_path / "runs", "--epsilon-end", "1")
    port = first.port
    game = emulator(kind, port, 1_000_000)
    first.wait_for(f"{kind} at .* joined agent catch")
    first.wait_for(r"frames +[1-9][\d,]* .*replay")
    first.kill()
    second = Server(tmp_path / "runs", "--epsilon-end", "1", "--port", str(port))
    try:
        second.wait_for(f"{kind} at .* joined agent catch")
        frames = stored(tmp_path / "runs").head
        deadline = time.monotonic() + 60
        while stored(tmp_path / "runs").head < frames + 50:
            assert time.monotonic() < deadline, second.text
            assert game.poll() is None
            time.sleep(0.1)
        game.terminate()
        assert second.stop() == 0
        stored(tmp_path / "runs").check_valid()
    finally:
        second.kill()


@pytest.mark.parametrize("kind", [FCEUX])
def test_a_refusal_ends_it_with_the_reason(kind: str, emulator: Start, tmp_path: Path) -> None:
    server = Server(tmp_path / "runs", COINOP_TOKEN="secret")
    game = emulator(kind, server.port, 3000, token="wrong")
    text, _ = game.communicate(timeout=60)
    assert game.returncode == 2, text
    assert "the server refuses us: wrong or missing token" in text
    emulator(kind, server.port, 600, token="secret")
    server.wait_for("joined agent catch")
    server.kill()


@pytest.mark.parametrize("kind", [FCEUX])
def test_luasocket_must_be_installed(
    kind: str, emulator: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LUA_CPATH", "/nowhere/?.so")
    game = emulator(kind, 9, 200)
    text, _ = game.communicate(timeout=60)
    assert game.returncode == 2, text
    assert "coinop: FCEUX needs LuaSocket for Lua 5.1; on Debian: apt-get install" in text


@pytest.mark.parametrize("kind", [FCEUX])
@pytest.mark.parametrize(
    ("settings", "code", "words"),
    [
        ({"game": "no_such_game"}, 2, "coinop: cannot load the game: "),
        ({"game": "pong2600"}, 1, "coinop: error: "),
        ({"once": "1"}, 1, "coinop: playing catch over LuaSocket"),
        ({"seed": "lucky"}, 2, "coinop: COINOP_SEED = 'lucky' must be a number"),
        ({}, 0, "coinop: played 200 frames, "),
    ],
)
def test_how_it_ends_tells_why(
    kind: str, emulator: Start, settings: dict[str, str], code: int, words: str
) -> None:
    """Nobody listens at port 9: alone, a client plays on."""
    game = emulator(kind, 9, 200, **settings)
    text, _ = game.communicate(timeout=60)
    assert game.returncode == code, text
    assert words in text


def test_the_fleet_launches_it_and_it_ends_with_its_server(kind: str, tmp_path: Path) -> None:
    server = Server(tmp_path / "runs", "--launch", f"{kind}:catch=2")
    try:
        for number in (1, 2):
            server.wait_for(f"{kind}-catch-{number} at .* joined agent catch")
        tasks = Path(f"/proc/{server.process.pid}/task").glob("*/children")
        children = [int(child) for task in tasks for child in task.read_text().split()]
        assert len(children) == 2
        server.kill()
        deadline = time.monotonic() + 30
        while any(Path(f"/proc/{child}").exists() for child in children):
            assert time.monotonic() < deadline, f"{kind} lives on without its server"
            time.sleep(0.1)
    finally:
        server.kill()


@pytest.mark.parametrize("kind", [FCEUX])
def test_a_check_of_fceux_writes_nothing_and_a_start_its_settings(
    kind: str, tmp_path: Path
) -> None:
    emulators.check(kind, "catch")
    assert not (emulators.ROOT / ".fceux").exists()
    command = emulators.command(kind, "catch", Seat("one", "127.0.0.1:9", 7, tmp_path))
    assert list(tmp_path.iterdir()) == []
    command.prepare()
    assert (tmp_path / ".fceux" / "fceux.cfg").read_text() == "SDL.VideoDriver = 1\n"
    assert command.environment["HOME"] == str(tmp_path)
    with pytest.raises(LaunchError, match="no game 'sonic' for FCEUX; there are: catch"):
        emulators.check(kind, "sonic")


def test_an_fceux_that_is_not_installed_is_named_with_the_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(emulators, "_PLACES", str(tmp_path))
    with pytest.raises(LaunchError, match="apt-get install fceux lua-socket"):
        emulators.check("fceux", "catch")
