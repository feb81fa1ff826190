"""One client's life on the server: who it is, what it has done, and how to answer it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from server.net.wire import Hello, Preview, Source

NO_SEQUENCE = -2  # no frame's number follows it
_REPEATS = 3  # of a frame on one connection: TCP loses nothing, so one is all that it takes
_REPLY_BYTES = 128  # of a reply by lane.c, at most
_CLOSED = ctypes.c_int32(-1)  # the outlet of a session without a connection


class Session(ctypes.Structure):
    """A client that was welcomed; it outlives a lost connection for a while.

    What changes with every frame lies in memory as struct session of lane.c has it.
    """

    last_sequence: int
    last_index: int  # where the replay holds its newest frame; -1 links to nothing
    frames: int
    guided_before: int  # frames, when the episode began, that were not the agent's own
    sources: Any  # frames by who chose the action
    episode_return: float
    arrived_s: float  # when its newest frame came
    latency_s: float  # from then to the reply
    seen_s: float  # when its newest frame was answered
    _outlet: int
    _reply_bytes: int  # 0 where Python has written the newest reply
    _reply: Any

    _fields_ = (
        ("last_sequence", ctypes.c_int64),
        ("last_index", ctypes.c_int64),
        ("frames", ctypes.c_int64),
        ("guided_before", ctypes.c_int64),
        ("sources", ctypes.c_int64 * len(Source)),
        ("episode_return", ctypes.c_double),
        ("arrived_s", ctypes.c_double),
        ("latency_s", ctypes.c_double),
        ("seen_s", ctypes.c_double),
        ("_outlet", ctypes.c_void_p),
        ("_reply_bytes", ctypes.c_int32),
        ("_reply", ctypes.c_uint8 * _REPLY_BYTES),
    )

    def __init__(self, *, session_id: str, hello: Hello) -> None:
        super().__init__(last_index=-1, last_sequence=NO_SEQUENCE)
        self.place = ctypes.addressof(self)
        self.id = session_id
        self.hello = hello
        self.turn = -1  # the batcher's turn in which its newest frame was added
        self._last_reply = b""
        self.repeats_left = 0
        self.guided = 0  # frames of the last finished episode that were not the agent's own
        self.episodes = 0
        self.last_return: float | None = None
        self.info: dict[str, Any] = {}
        self.preview: Preview | None = None  # the newest picture of its screen
        self.settings: dict[str, Any] | None = None  # to be pushed with the next Action
        self.lost_s: float | None = None  # when its connection was lost, None while connected
        self.address = ""
        self.write: Callable[[bytes], None] = _nowhere
        self.close: Callable[[str], None] = _no_close
        self.read: Callable[[bytes], None] = _nowhere
        self._lead_out(_CLOSED)

    def attach(
        self,
        address: str,
        write: Callable[[bytes], None],
        close: Callable[[str], None],
        read: Callable[[bytes], None] | None = None,
        outlet: ctypes.c_int32 = _CLOSED,
    ) -> None:
        """Bind the session to a connection.

        ``read`` takes back what is no usual frame, ``outlet`` is where lane.c may write to.
        """
        self.address, self.write, self.close = address, write, close
        self.read = read or _nowhere
        self._lead_out(outlet)
        self.lost_s = None
        self.repeats_left = _REPEATS

    def detach(self, now_s: float) -> None:
        """Note that the connection is gone; what is still to be said goes nowhere."""
        self.write, self.close, self.read = _nowhere, _no_close, _nowhere
        self._lead_out(_CLOSED)
        self.lost_s = now_s

    def _lead_out(self, outlet: ctypes.c_int32) -> None:
        self._held = outlet  # its memory is read by lane.c
        self._outlet = ctypes.addressof(outlet)

    @property
    def last_reply(self) -> bytes:
        """The newest reply, for a frame that is sent again."""
        if not self._reply_bytes:
            return self._last_reply
        return ctypes.string_at(self.place + _REPLY_AT, self._reply_bytes)

    @last_reply.setter
    def last_reply(self, reply: bytes) -> None:
        self._last_reply, self._reply_bytes = reply, 0

    def not_its_own(self) -> int:
        """Give the frames that an expert, a human or the script has played."""
        return sum(self.sources[Source.EXPERT :])

    def show(self, preview: Preview) -> None:
        """Keep the newest picture of the client's screen."""
        self.preview = preview


_REPLY_AT: int = Session._reply.offset


def _nowhere(data: bytes) -> None:
    """Take what can no longer be sent."""


def _no_close(reason: str) -> None:
    """Close nothing: there is no connection."""
