"""A real server process and raw clients, for tests over real sockets."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from server.net import proof, wire
from server.spaces import Actions, Discrete, Observation, Spaces

ROOT = Path(__file__).parents[2]
SPACES = Spaces(Observation("float32", (4,)), Actions((Discrete("stick", 3),), ()), ("score",))
PATIENCE_S = 30.0


def until(holds: Callable[[], bool]) -> None:
    """Wait for something, not for ever."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.02)


class Server:
    """``python main.py`` in a process of its own, its output read as it comes."""

    def __init__(
        self,
        runs: Path,
        *options: str,
        script: str = "",
        directory: Path = ROOT,
        **environment: str,
    ) -> None:
        main = str(ROOT / "main.py")
        command = [sys.executable, *(["-c", script] if script else [main])]
        command += ["--runs-dir", str(runs), "--port", "0", "--status-interval-s", "0.5"]
        self.process = subprocess.Popen(
            [*command, "--hidden-sizes", "32,32", "--replay-capacity", "20000", *options],
            cwd=directory,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Wait until the output holds a pattern."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            found = re.search(pattern, self.text)
            if found:
                return found
            alive = self.process.poll() is None
            assert time.monotonic() < deadline and (alive or self._reader.is_alive()), (
                f"{pattern!r} not in:\n{self.text}"
            )
            time.sleep(0.02)

    @property
    def port(self) -> int:
        return int(self.wait_for(r"listening on [\d.]+:(\d+)")[1])

    @property
    def steps(self) -> int:
        """The steps of training that it last told of."""
        found = re.findall(r"steps +([\d,]+)", self.text)
        return int(found[-1].replace(",", "")) if found else 0

    def children(self) -> list[int]:
        """The processes that it started and that live."""
        tasks = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        return [int(child) for task in tasks for child in task.read_text().split()]

    def stop(self, number: int = signal.SIGINT) -> int:
        """Send a signal and give the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """Wait for the end and give the exit code."""
        try:
            self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"the server did not end:\n{self.text}") from None
        self._reader.join(5)
        code: int = self.process.returncode
        return code

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join(5)
        if self.process.stdout is not None:
            self.process.stdout.close()


FIRST = 1000  # the number of a client's first frame: long enough for the usual form, which C reads


class Client:
    """A client that can do everything wrong."""

    opened: ClassVar[list[Client]] = []

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        Client.opened.append(self)
        self._splitter = wire.Splitter(1 << 24)
        self._payloads: list[bytes] = []
        self.sequence = FIRST

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self) -> Any:
        """Give the next message: an Action or a control message; None at the end."""
        while not self._payloads:
            try:
                data = self.socket.recv(65536)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self._payloads += self._splitter.feed(data)
        value = wire.unpack(self._payloads.pop(0))
        return wire.read_action(value) if isinstance(value, list) else wire.read_control(value)

    def hello(self, spaces: Spaces = SPACES, *, token: str = "", **changes: Any) -> Any:
        """Say Hello, prove the token if asked, and give the server's answer."""
        told = {"client": "test", "client_version": "1", "game": "game", "agent": "game"}
        data = wire.encode(wire.Hello(spaces=spaces, **{**told, **changes}))
        self.send(data)
        answer = self.receive()
        if isinstance(answer, wire.Challenge):
            shown = proof.by_client(token, answer.nonce, data[wire.HEADER_BYTES :])
            self.send(wire.encode(wire.Proof(shown)))
            answer = self.receive()
        return answer

    def frame(self, observation: bytes | None = None, flags: int = 0, reward: float = 0.0) -> None:
        if observation is None:
            observation = np.full(4, self.sequence % 7, np.float32).tobytes()
        self.send(wire.encode_frame(wire.Frame(self.sequence, flags, [reward], observation)))
        self.sequence += 1

    def play(self, frames: int) -> None:
        """Play some frames in lockstep; each must be answered."""
        for _ in range(frames):
            number = self.sequence
            self.frame()
            while isinstance(answer := self.receive(), wire.Ping):
                self.send(wire.encode(wire.Pong()))
            assert isinstance(answer, wire.Action), answer
            assert answer.sequence == number

    def close(self) -> None:
        self.socket.close()


class Steady(threading.Thread):
    """A good client that plays on in the background, whatever others do."""

    def __init__(self, port: int, **hello: Any) -> None:
        super().__init__(daemon=True)
        self._client = Client(port)
        assert isinstance(self._client.hello(**hello), wire.Welcome)
        self._done = threading.Event()
        self.problem: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            while not self._done.wait(0.005):
                self._client.play(1)
        except BaseException as error:
            self.problem = error

    def plays_on(self, frames: int = 20) -> None:
        """Wait until it has played some more frames."""
        goal, deadline = self._client.sequence + frames, time.monotonic() + PATIENCE_S
        while self._client.sequence < goal:
            assert self.problem is None, self.problem
            assert time.monotonic() < deadline, "the good client is not served any more"
            time.sleep(0.005)

    def finish(self) -> None:
        """Leave in good order; it must have been answered all along."""
        self._done.set()
        self.join(PATIENCE_S)
        assert self.problem is None, self.problem
        self._client.send(wire.encode(wire.Bye("done")))
        self._client.close()
