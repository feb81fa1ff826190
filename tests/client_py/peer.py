"""A server that follows a script: one function per connection it accepts."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from server.net import proof, wire
from server.spaces import Actions, Discrete, Observation, Spaces

SPACES = Spaces(Observation("uint8", (4,)), Actions((Discrete("stick", 3),), ()), ("score",))
HELLO = wire.Hello("tester", "1", "toy", "toy", SPACES)
WAIT_S = 10.0  # bounds every wait of a test


class GoneError(Exception):
    """The client closed the connection."""


class Line:
    """One accepted connection, seen from the server."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.socket.settimeout(WAIT_S)
        self._splitter = wire.Splitter(1 << 20)
        self._payloads: list[bytes] = []
        self.spaces = SPACES

    def receive(self) -> Any:
        """Give the client's next message."""
        while not self._payloads:
            data = self.socket.recv(65536)
            if not data:
                raise GoneError
            self._payloads += self._splitter.feed(data)
        value = wire.unpack(self._payloads.pop(0))
        if isinstance(value, list):
            return wire.FrameReader(self.spaces)(value)
        return wire.read_control(value)

    def greet(
        self, session: str = "s1", resumed: bool = False, token: str = "", **settings: Any
    ) -> wire.Hello:
        """Take the Hello, have the token proven if there is one, and welcome the client."""
        hello = self.receive()
        assert isinstance(hello, wire.Hello)
        self.spaces = hello.spaces
        shown = self.challenge(hello, token) if token else b""
        self.send(wire.encode(wire.Welcome(session, 10.0, 1 << 20, settings, resumed, shown)))
        return hello

    def challenge(self, hello: wire.Hello, token: str) -> bytes:
        """Have the client prove that it knows the token; give our own proof."""
        nonce, said = b"n" * 32, wire.encode(hello)[wire.HEADER_BYTES :]
        self.send(wire.encode(wire.Challenge(nonce)))
        assert self.receive() == wire.Proof(proof.by_client(token, nonce, said))
        return proof.by_server(token, nonce, said)

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.socket.sendall(data)

    def answer(self, sequence: int, *discrete: int) -> None:
        """Send the Action of one frame."""
        self.send(action(sequence, *discrete))

    def play(self, frames: int | None = None) -> list[Any]:
        """Answer frames with the first choice of each control; give all that was received."""
        seen: list[Any] = []
        controls = self.spaces.actions
        middles = [(c.low + c.high) / 2 for c in controls.continuous]
        while frames is None or len(seen) < frames:
            message = self.receive()
            seen.append(message)
            if isinstance(message, wire.Bye):
                break
            if isinstance(message, wire.Preview):
                continue
            zeros = [0] * len(controls.discrete)
            self.send(wire.encode_action(message.sequence, zeros, middles, 0))
        return seen


Script = Callable[[Line], None]


class Peer:
    """Listens on loopback and follows one script per connection."""

    def __init__(self, *scripts: Script) -> None:
        self._scripts = scripts
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(WAIT_S)
        self.port: int = self._listener.getsockname()[1]
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Peer:
        self._thread.start()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self._failure is not None:
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(WAIT_S)
        self._listener.close()
        assert not self._thread.is_alive(), "the script did not end"
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            for script in self._scripts:
                connection, _ = self._listener.accept()
                with connection:
                    script(Line(connection))
        except BaseException as failure:  # shown by the test, not by the thread
            self._failure = failure
            self._refuse_all()

    def _refuse_all(self) -> None:
        """Turn away a client that would otherwise try for ever."""
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                with connection:
                    connection.sendall(wire.encode(wire.Reject("the script failed")))


def action(sequence: int, *discrete: int) -> bytes:
    """Give the bytes of a policy's Action."""
    return wire.encode_action(sequence, list(discrete), [], 0)


def frame(sequence: int) -> wire.Frame:
    """Give a plain frame of the test's spaces."""
    return wire.Frame(sequence, 0, [0.0], b"\1\2\3\4")
