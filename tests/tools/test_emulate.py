"""Emulators without a server of their own: real processes against a real server."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from live import PATIENCE_S, ROOT, Server

MAME = shutil.which("mame", path=f"{os.environ.get('PATH', '')}:/usr/games")
pytestmark = pytest.mark.timeout(180)


class Emulate:
    """``python main.py emulate`` in a process of its own, its output read as it comes."""

    def __init__(self, room: Path, *arguments: str, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "main.py", "emulate", *arguments],
            cwd=ROOT,
            env={**os.environ, "TMPDIR": str(room), **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.text = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.text += line

    def wait_for(self, words: str) -> None:
        until(lambda: words in self.text, lambda: f"{words!r} not in:\n{self.text}")

    @property
    def children(self) -> list[int]:
        tasks = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        return [int(child) for task in tasks for child in task.read_text().split()]

    def stop(self, number: int = signal.SIGINT) -> int:
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        code = self.process.wait(PATIENCE_S)
        self._reader.join(5)
        return code

    def kill(self) -> None:
        """End it and its emulators, whatever a test left of them."""
        for number in [*self.children, self.process.pid] if self.process.poll() is None else []:
            os.kill(number, signal.SIGKILL)
        self.process.wait()
        self._reader.join(5)
        if self.process.stdout is not None:
            self.process.stdout.close()


def until(condition: Callable[[], bool], why: Callable[[], str] = lambda: "") -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, why()
        time.sleep(0.05)


def gone(numbers: list[int]) -> bool:
    return not any(Path(f"/proc/{number}").exists() for number in numbers)


@pytest.fixture
def emulate(tmp_path: Path) -> Iterator[Callable[..., Emulate]]:
    running: list[Emulate] = []

    def start(*arguments: str, **environment: str) -> Emulate:
        running.append(Emulate(tmp_path, *arguments, **environment))
        return running[-1]

    yield start
    for one in running:
        one.kill()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    running: list[Server] = []

    def start(*options: str, **environment: str) -> Server:
        running.append(Server(tmp_path / "runs", "--no-training", *options, **environment))
        return running[-1]

    yield start
    for server in running:
        server.kill()


Start = Callable[..., Emulate]
Serve = Callable[..., Server]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_all_of_them(
    serve: Serve, emulate: Start, tmp_path: Path, number: signal.Signals
) -> None:
    server = serve()
    playing = emulate("gym:CartPole-v1=2", "--server", f"localhost:{server.port}")
    server.wait_for("gym-CartPole-v1-2 at .* joined agent CartPole-v1")
    children = playing.children
    assert len(children) == 2
    assert playing.stop(number) == 0
    assert gone(children)
    assert playing.text.splitlines() == [
        f"2 emulators play for localhost:{server.port}; Ctrl-C ends them"
    ]
    assert not list(tmp_path.glob("coinop-*"))  # their homes are tidied away
    assert server.stop() == 0


def test_a_server_that_comes_back_finds_the_same_emulators(serve: Serve, emulate: Start) -> None:
    first = serve()
    port = str(first.port)
    playing = emulate("ale:pong=2", "--server", f"127.0.0.1:{port}")
    first.wait_for("ale-pong-2 at .* joined agent pong")
    children = playing.children
    first.kill()
    second = serve("--port", port)
    assert second.port == int(port)
    second.wait_for("ale-pong-1 at .* joined agent pong")
    second.wait_for("ale-pong-2 at .* joined agent pong")
    second.wait_for(r"clients 2  frames +[1-9]")
    assert playing.children == children
    assert playing.stop() == 0
    assert gone(children)


def test_emulators_wait_for_a_server_that_is_not_there_yet(serve: Serve, emulate: Start) -> None:
    before = serve()
    port = str(before.port)
    assert before.stop() == 0
    playing = emulate("gym:CartPole-v1", "--server", f"127.0.0.1:{port}")
    playing.wait_for(f"no server at 127.0.0.1:{port} (Connection refused); the emulators wait")
    server = serve("--port", port)
    assert server.port == int(port)
    server.wait_for("gym-CartPole-v1-1 at .* joined agent CartPole-v1")
    assert playing.stop() == 0


def test_a_fallen_one_is_started_again(serve: Serve, emulate: Start) -> None:
    server = serve()
    playing = emulate("gym:CartPole-v1", "--server", f"127.0.0.1:{server.port}")
    server.wait_for("gym-CartPole-v1-1 at .* joined")
    os.kill(playing.children[0], signal.SIGKILL)
    playing.wait_for("gym-CartPole-v1-1 ended with code -9: ")
    playing.wait_for("gym-CartPole-v1-1 started again")
    server.wait_for(r"(?s)gym-CartPole-v1-1 at .* joined.*gym-CartPole-v1-1 at .* joined")
    assert playing.stop() == 0


def test_the_token_is_shown_and_a_wrong_one_ends_it(
    serve: Serve, emulate: Start, tmp_path: Path
) -> None:
    server = serve(COINOP_TOKEN="sesame")
    address = f"127.0.0.1:{server.port}"
    wrong = emulate("gym:CartPole-v1", "--server", address, COINOP_TOKEN="open")
    assert wrong.wait() == 1
    assert "wrong or missing token" in wrong.text
    assert "not started again" in wrong.text
    logs = Path(wrong.text.split("their logs are in ")[1].strip())
    assert "wrong or missing token" in next(logs.glob("*/output.log")).read_text()
    token = tmp_path / "token"
    token.write_text("sesame\n")
    right = emulate("gym:CartPole-v1", "--server", address, "--token-file", str(token))
    server.wait_for("gym-CartPole-v1-1 at .* joined agent CartPole-v1")
    assert right.stop() == 0


@pytest.mark.skipif(not MAME, reason="MAME is not installed")
def test_mame_plays_for_a_server_by_name_and_survives_it(serve: Serve, emulate: Start) -> None:
    first = serve()
    port = str(first.port)
    playing = emulate("mame:pong2600=2", "--server", f"localhost:{port}")
    first.wait_for("mame-pong2600-2 at .* joined agent pong2600")
    children = playing.children
    first.kill()
    second = serve("--port", port)
    assert second.port == int(port)
    second.wait_for("mame-pong2600-1 at .* joined agent pong2600")
    second.wait_for("mame-pong2600-2 at .* joined agent pong2600")
    assert playing.children == children
    began = time.monotonic()
    assert playing.stop() == 0
    assert time.monotonic() - began < 3  # MAME ends when it is asked to, not when it is killed
    assert gone(children)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["pong"], "cannot launch 'pong': it must be emulator:game=count, such as ale:pong=2"),
        (["sega:sonic"], "unknown emulator 'sega'; known: ale, gym, mame"),
        (["ale:pong", "--server", "9797"], "the server '9797' must be HOST:PORT"),
        (["ale:pong", "--server", "n" * 64 + ":1"], "no server nnn"),
        (["ale:pong", "--token-file", "/nowhere/token"], "cannot read token_file = /nowhere/token"),
    ],
)
def test_wrong_options_end_with_one_clear_line(
    emulate: Start, tmp_path: Path, arguments: list[str], words: str
) -> None:
    playing = emulate(*arguments)
    assert playing.wait() == 2
    assert words in playing.text
    assert len(playing.text.splitlines()) == 1
    assert not list(tmp_path.glob("coinop-*"))


def test_lua_emulators_are_told_to_use_a_tunnel(emulate: Start, tmp_path: Path) -> None:
    authority = tmp_path / "cert.pem"
    authority.write_text("")
    playing = emulate("fceux:catch", "--tls-ca", str(authority))
    assert playing.wait() == 2
    assert "know no TLS; give them a tunnel" in playing.text or "not installed" in playing.text
