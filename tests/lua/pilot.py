"""A server that plays by a rule: it sees what a policy would see, and answers each frame itself."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import numpy.typing as npt

from server.net import wire
from server.net.wire import Frame, Hello, Source, Welcome
from server.spaces import Spaces

PATIENCE_S = 60.0  # for an emulator to come, and for each of its frames

Rule = Callable[[Frame], tuple[list[int], list[float]]]  # discrete and continuous controls


class Pilot(AbstractContextManager["Pilot"]):
    """Listens on loopback for one emulator."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(PATIENCE_S)
        self.port: int = self._listener.getsockname()[1]
        self._line: socket.socket | None = None
        self._splitter = wire.Splitter(1 << 20)
        self._payloads: list[bytes] = []
        self._spaces: Spaces | None = None

    def play(self, decisions: int, rule: Rule) -> list[Frame]:
        """Answer so many frames by the rule; give them. It can be called again, to go on."""
        if self._line is None:
            self._welcome()
        return [self._answer(rule) for _ in range(decisions)]

    def __exit__(self, *problem: object) -> None:
        for end in (self._line, self._listener):
            if end is not None:
                end.close()

    def _welcome(self) -> None:
        self._line, _ = self._listener.accept()
        self._line.settimeout(PATIENCE_S)
        hello = wire.read_control(self._receive())
        assert isinstance(hello, Hello)
        self._spaces = hello.spaces
        self._send(wire.encode(Welcome("pilot", PATIENCE_S, 1 << 20, {}, False)))

    def _answer(self, rule: Rule) -> Frame:
        assert self._spaces is not None
        frame = wire.FrameReader(self._spaces)(self._receive())
        self._send(wire.encode_action(frame.sequence, *rule(frame), Source.POLICY))
        return frame

    def _receive(self) -> Any:
        assert self._line is not None
        while not self._payloads:
            data = self._line.recv(65536)
            assert data, "the emulator closed the connection"
            self._payloads += self._splitter.feed(data)
        return wire.unpack(self._payloads.pop(0))

    def _send(self, data: bytes) -> None:
        assert self._line is not None
        self._line.sendall(data)


def values(frame: Frame) -> npt.NDArray[np.float32]:
    """Give a frame's features."""
    return np.frombuffer(frame.observation, "<f4")
