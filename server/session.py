"""One client's life on the server: who it is, what it has done, and how to answer it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from server.net.wire import Hello, Preview, Source

NO_SEQUENCE = -2  # no frame's number follows it
_REPEATS = 3  # of a frame on one connection: TCP loses nothing, so one is all that it takes


class Session:
    """A client that was welcomed; it outlives a lost connection for a while."""

    __slots__ = (
        "address",
        "close",
        "episode_return",
        "episodes",
        "frames",
        "guided",
        "guided_before",
        "hello",
        "id",
        "info",
        "last_index",
        "last_reply",
        "last_return",
        "last_sequence",
        "latency_s",
        "lost_s",
        "preview",
        "repeats_left",
        "seen_s",
        "settings",
        "sources",
        "turn",
        "write",
    )

    def __init__(self, *, session_id: str, hello: Hello) -> None:
        self.id = session_id
        self.hello = hello
        self.turn = -1  # the batcher's turn in which its newest frame was added
        self.last_index = -1  # where the replay holds its newest frame; -1 links to nothing
        self.last_sequence = NO_SEQUENCE
        self.last_reply = b""  # for a frame that is sent again
        self.repeats_left = 0
        self.frames = 0
        self.sources = [0] * len(Source)  # frames by who chose the action
        self.guided_before = 0  # of them, when the episode began, not the agent's own
        self.guided = 0  # frames of the last finished episode that were not the agent's own
        self.episodes = 0
        self.episode_return = 0.0
        self.last_return: float | None = None
        self.info: dict[str, Any] = {}
        self.preview: Preview | None = None  # the newest picture of its screen
        self.settings: dict[str, Any] | None = None  # to be pushed with the next Action
        self.latency_s = 0.0  # from its newest frame's arrival to the reply
        self.seen_s = 0.0  # when its newest frame was answered
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
        self.repeats_left = _REPEATS

    def detach(self, now_s: float) -> None:
        """Note that the connection is gone; what is still to be said goes nowhere."""
        self.write, self.close = _nowhere, _no_close
        self.lost_s = now_s

    def not_its_own(self) -> int:
        """Give the frames that an expert, a human or the script has played."""
        return sum(self.sources[Source.EXPERT :])

    def show(self, preview: Preview) -> None:
        """Keep the newest picture of the client's screen."""
        self.preview = preview


def _nowhere(data: bytes) -> None:
    """Take what can no longer be sent."""


def _no_close(reason: str) -> None:
    """Close nothing: there is no connection."""
