"""One client's life on the server: who it is, where it sits, and how to answer it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from server.net.wire import Hello


class Session:
    """A client that was welcomed; it outlives a lost connection for a while."""

    __slots__ = (
        "address",
        "close",
        "hello",
        "id",
        "info",
        "last_return",
        "lost_s",
        "seat",
        "settings",
        "turn",
        "write",
    )

    def __init__(self, *, session_id: str, hello: Hello, seat: int) -> None:
        self.id = session_id
        self.hello = hello
        self.seat = seat  # its row in the arrays of its agent's batcher
        self.turn = -1  # the batcher's turn in which its newest frame was added
        self.info: dict[str, Any] = {}
        self.settings: dict[str, Any] | None = None  # to be pushed with the next Action
        self.last_return: float | None = None
        self.lost_s: float | None = None  # when its connection was lost, None while connected
        self.address = ""
        self.write: Callable[[bytes], None] = _nowhere
        self.close: Callable[[str], None] = _no_close

    def attach(
        self, address: str, write: Callable[[bytes], None], close: Callable[[str], None]
    ) -> None:
        """Bind the session to a connection."""
        self.address, self.write, self.close = address, write, close
        self.lost_s = None

    def detach(self, now_s: float) -> None:
        """Note that the connection is gone; what is still to be said goes nowhere."""
        self.write, self.close = _nowhere, _no_close
        self.lost_s = now_s


def _nowhere(data: bytes) -> None:
    """Take what can no longer be sent."""


def _no_close(reason: str) -> None:
    """Close nothing: there is no connection."""
