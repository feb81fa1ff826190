"""The fast lane in C: what lane.c needs to know of an agent, and its calls.

It receives, answers and stores frames as they nearly always are. ``Batcher`` does the same for all
others, and where there is no compiler.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from server import native
from server.learn import dice
from server.learn.policy import Mix, Policy
from server.learn.replay import Replay
from server.net.wire import FrameReader, bytes_mark
from server.session import Session
from server.spaces import Spaces

MOST_ROWS = dice.ROWS  # of a turn, as in lane.c
_CHUNK = 65536  # bytes received at once, as in lane.c
# What lane.c says of what a client sent: all done; something is left; there is none; there never
# will be. What is more than these is bytes.
TAKEN, LEFT, _NOTHING, _GONE = 0, -1, -2, -3
_MOST_HEADS = 15
_MOST_CONTROLS = 7


class Left(NamedTuple):
    """A row that lane.c leaves to be seen to."""

    row: int
    sent: int  # bytes of its reply, where that was not all of it; -1 where it was
    ended: int  # whether its episode did


class _Lane(ctypes.Structure):
    """struct lane of lane.c."""

    _fields_ = (
        ("capacity", ctypes.c_int64),
        ("rewards", ctypes.c_int32),
        ("observation_bytes", ctypes.c_int32),
        ("mark_bytes", ctypes.c_int32),
        ("mark", ctypes.c_uint8 * 8),
        ("discrete", ctypes.c_int32),
        ("joint", ctypes.c_int32),
        ("heads", ctypes.c_int32),
        ("controls", ctypes.c_int32),
        *(
            (name, ctypes.c_void_p)
            for name in (
                "choices",
                "middles",
                "ranges",
                "observation",
                "choice",
                "continuous",
                "reward",
                "flags",
                "source",
                "version",
                "next",
                "prev",
                "head",
                "head_again",
                "sessions",
                "luck",
                "explored_choice",
                "explored_place",
                "noise",
                "next_dice",
                "latency_s",
                "left",
                "inbox",
                "ends",
            )
        ),
        ("rows", ctypes.c_int32),
    )


class Lane:
    """The frames of one turn, until they are answered."""

    def __init__(
        self, library: ctypes.PyDLL, spaces: Spaces, policy: Policy, replay: Replay
    ) -> None:
        self._put, self._receive = library.put, library.receive
        self._answer, self._serve = library.answer, library.serve
        self._policy = policy
        self._replay = replay  # whose memory is written to
        actions = spaces.actions
        heads = len(actions.heads)
        self._choices = (ctypes.c_int32 * len(actions.discrete))(
            *(control.choices for control in actions.discrete)
        )
        self._middles = array("d", policy.middles)
        self._ranges = array("d", [end for c in actions.continuous for end in (c.low, c.high)])
        self._places = (ctypes.c_void_p * MOST_ROWS)()
        self._latency_s = array("d", bytes(8 * MOST_ROWS))
        self._left = array("i", bytes(4 * len(Left._fields) * MOST_ROWS))
        mark = bytes_mark(spaces.observation.size_bytes)
        longest = max(FrameReader(spaces).usual_sizes.values())
        # Empty: the memory of rows that never wait is never touched.
        self._inbox = np.empty(MOST_ROWS * longest + _CHUNK, np.uint8)
        self._ends = (ctypes.c_int64 * MOST_ROWS)()
        self._held = _Lane(
            capacity=replay.layout.capacity,
            rewards=len(spaces.rewards),
            observation_bytes=spaces.observation.size_bytes,
            mark_bytes=len(mark),
            mark=(ctypes.c_uint8 * 8)(*mark),
            discrete=len(self._choices),
            joint=len(self._choices) > heads,
            heads=heads,
            controls=len(actions.continuous),
            choices=ctypes.addressof(self._choices),
            middles=self._middles.buffer_info()[0],
            ranges=self._ranges.buffer_info()[0],
            sessions=ctypes.addressof(self._places),
            latency_s=self._latency_s.buffer_info()[0],
            left=self._left.buffer_info()[0],
            inbox=self._inbox.ctypes.data,
            ends=ctypes.addressof(self._ends),
            **policy.dice.addresses(),
            **replay.addresses(),
        )
        self._lane = ctypes.c_void_p(ctypes.addressof(self._held))
        self._sessions: list[Session] = []  # whose messages wait, in order

    @classmethod
    def of(cls, spaces: Spaces, policy: Policy, replay: Replay, frame_stack: int) -> Lane | None:
        """Give the lane of an agent, or None where its frames need Python."""
        library = native.library()
        actions, sizes = spaces.actions, FrameReader(spaces).usual_sizes
        if (
            library is None
            or not policy.in_c
            or frame_stack > 1
            or len(actions.discrete) > _MOST_HEADS
            or len(actions.continuous) > _MOST_CONTROLS
            or (actions.continuous and not policy.middles)
            or not sizes
            or max(sizes.values()) > _CHUNK
        ):
            return None
        return cls(library, spaces, policy, replay)

    def put(self, session: Session, message: bytes) -> bool:
        """Let a message wait, its header included, if it has the length of a usual frame."""
        if not self._put(self._lane, session.place, message, len(message)):
            return False
        self._sessions.append(session)
        return True

    def receive(self, session: Session, descriptor: int) -> int:
        """Let what a client has sent wait: TAKEN, or else ``received`` tells."""
        code: int = self._receive(self._lane, session.place, descriptor)
        if code == TAKEN:
            self._sessions.append(session)
        return code

    def received(self, code: int) -> bytes | None:
        """Give what came and was not taken; b"" where nothing will come any more, None if none."""
        if code == _NOTHING:
            return None
        start = self._ends[len(self._sessions) - 1] if self._sessions else 0
        return b"" if code == _GONE else self._inbox[start : start + code].tobytes()

    def serve(self, session: Session, descriptor: int, mix: Mix, version: int) -> int:
        """Answer what a client has sent while nothing waits; there must be a network.

        TAKEN, or LEFT with something ``left``, or else ``received`` tells.
        """
        mlp = self._policy.mlp
        assert mlp is not None
        self._policy.dice.ready(1)
        code: int = self._serve(
            self._lane,
            mlp.ready_for(1),
            session.place,
            descriptor,
            version,
            mix.epsilon,
            mix.noise,
        )
        return code

    def answer(self, mix: Mix, version: int) -> Sequence[Left] | None:
        """Answer the messages that wait: what is left to do, or None if nothing was done."""
        rows, mlp = len(self._sessions), self._policy.mlp
        if mlp is None:
            return None
        self._policy.dice.ready(rows)
        left = self._answer(self._lane, mlp.ready_for(rows), version, mix.epsilon, mix.noise)
        if left < 0:
            return None
        self._sessions = []
        return self.left(left) if left else ()

    @property
    def waiting(self) -> list[Session]:
        """Whose messages wait, in order."""
        return self._sessions

    def withdraw(self) -> list[bytes]:
        """Give the messages that wait, which then do no longer."""
        rows = len(self._sessions)
        starts, ends = [0, *self._ends[: rows - 1]], self._ends[:rows]
        self._sessions, self._held.rows = [], 0
        return [self._inbox[a:b].tobytes() for a, b in zip(starts, ends, strict=True)]

    def latencies_s(self, rows: int) -> array[float]:
        """Give how long each of the rows just answered has waited."""
        return self._latency_s[:rows]

    def left(self, count: int) -> list[Left]:
        """Give what the last answers have left to be seen to."""
        width = len(Left._fields)
        return [Left(*self._left[at : at + width]) for at in range(0, count * width, width)]
