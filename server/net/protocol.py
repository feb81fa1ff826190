"""The server's side of one connection, without sockets: bytes in, events out, bytes to send.

The rules:
- A connection opens with one Hello. The server answers with a Welcome or a Reject; if it has a
  token, with a Challenge first, which the client answers with a Proof.
- After the Welcome the client sends Frames, each answered by one Action, and Ping, Pong, Preview,
  Bye.
- Anything else is a fault: the last event is a WireError, an Error is sent, nothing more is read.

    OPENING ──Hello──▶ GREETED ──welcome()──▶ PLAYING ──Bye, a fault──▶ CLOSED
                        │    ▲
             challenge()▼    │Proof
                       CHALLENGED
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from enum import Enum, auto

from server.net import proof, wire
from server.net.wire import (
    Bye,
    Challenge,
    Frame,
    Hello,
    InvalidError,
    Ping,
    Pong,
    Preview,
    Proof,
    Welcome,
    WireError,
)
from server.spaces import Spaces

Event = Hello | Proof | Frame | Ping | Pong | Preview | Bye | WireError


class State(Enum):
    """How far a connection has come."""

    OPENING = auto()
    GREETED = auto()
    CHALLENGED = auto()
    PLAYING = auto()
    CLOSED = auto()


# What a client may say in each state, and the state that follows.
_ALLOWED: dict[tuple[State, type], State] = {
    (State.OPENING, Hello): State.GREETED,
    (State.CHALLENGED, Proof): State.GREETED,
    (State.PLAYING, Ping): State.PLAYING,
    (State.PLAYING, Pong): State.PLAYING,
    (State.PLAYING, Preview): State.PLAYING,
    (State.PLAYING, Bye): State.CLOSED,
}


class Protocol:
    """One connection's state: feed it bytes, and it says what they mean."""

    __slots__ = (
        "_hello",
        "_max_message_bytes",
        "_nonce",
        "_read_frame",
        "_splitter",
        "_token",
        "_usual_sizes",
        "state",
    )

    def __init__(self, *, max_message_bytes: int, token: str = "") -> None:
        self.state = State.OPENING
        self._token = token
        self._nonce = b""
        self._hello = b""  # its payload, which proofs cover
        self._max_message_bytes = max_message_bytes
        self._splitter = wire.Splitter(min(max_message_bytes, wire.MAX_OPENING_BYTES))
        self._read_frame: wire.FrameReader | None = None
        self._usual_sizes: dict[bytes, int] = {}  # by the first bytes

    def may_be_usual(self, data: bytes) -> bool:
        """Say whether these bytes begin and end as just one Frame of the usual form does.

        What is between is not looked at: whoever takes them does, and ``lone_frame`` may.
        """
        return (
            self._usual_sizes.get(data[: wire.PREFIX_BYTES]) == len(data)
            and self.state is State.PLAYING
            and not self._splitter.buffered_bytes
        )

    def lone_frame(self, data: bytes) -> Frame | None:
        """Give the Frame if these bytes are just one: nearly always, and several times cheaper.

        None for anything else: it is left to ``receive``, which also says what is wrong with it.
        """
        reader, splitter = self._read_frame, self._splitter
        if reader is None or self.state is not State.PLAYING or splitter.buffered_bytes:
            return None
        frame = reader.usual(data)
        if frame is not None:
            return frame
        payload = splitter.lone(data)
        if payload is None:
            return None
        try:
            value = wire.unpack(payload)
            return reader(value) if type(value) is list else None
        except WireError:
            return None

    def receive(self, data: bytes) -> Iterator[Event]:
        """Yield what these bytes say. It never raises: a fault is the last event.

        Lazy on purpose: the welcome that follows a Hello takes effect before the next message
        of the same chunk is read, so the chunks of a stream do not change its meaning.
        """
        try:
            for payload in self._splitter.feed(data):
                if self.state is State.CLOSED:
                    return
                if self.state is State.OPENING:
                    self._hello = payload
                yield self._event(wire.unpack(payload))
            fault: WireError | None = self._splitter.fault
        except WireError as error:
            fault = error
        if fault is not None and self.state is not State.CLOSED:
            self.state = State.CLOSED
            yield fault

    def challenge(self, nonce: bytes) -> bytes:
        """Ask the client to show that it knows the token: the bytes of a Challenge."""
        if self.state is not State.GREETED:
            raise RuntimeError(f"challenge in state {self.state.name}")
        self.state = State.CHALLENGED
        self._nonce = nonce
        return wire.encode(Challenge(nonce))

    def is_proven(self, answer: Proof) -> bool:
        """Say whether the client has shown that it knows the token."""
        expected = proof.by_client(self._token, self._nonce, self._hello)
        return proof.equal(answer.proof, expected)

    def welcome(self, welcome: Welcome, spaces: Spaces) -> bytes:
        """Let the client play: the bytes of a Welcome, with our own proof if there is a token."""
        if self.state is not State.GREETED:
            raise RuntimeError(f"welcome in state {self.state.name}")
        self.state = State.PLAYING
        self._read_frame = wire.FrameReader(spaces)
        self._usual_sizes = self._read_frame.usual_sizes
        self._splitter.max_bytes = self._max_message_bytes
        if self._token:
            shown = proof.by_server(self._token, self._nonce, self._hello)
            welcome = replace(welcome, proof=shown)
        return wire.encode(welcome)

    def close(self, farewell: wire.Reject | Bye | wire.Error) -> bytes:
        """End the connection: the bytes of the last message."""
        self.state = State.CLOSED
        self._splitter.clear()
        return wire.encode(farewell)

    @property
    def buffered_bytes(self) -> int:
        """Number of bytes held of a message that is not complete yet."""
        return self._splitter.buffered_bytes

    def _event(self, value: object) -> Event:
        if type(value) is list:
            if self._read_frame is None:
                raise InvalidError("a Frame before the Welcome: say Hello first")
            return self._read_frame(value)
        if type(value) is not dict:
            raise InvalidError("a message is a map or an array")
        message = wire.read_control(value)
        following = _ALLOWED.get((self.state, type(message)))
        if following is None or not isinstance(
            message, Hello | Proof | Ping | Pong | Preview | Bye
        ):
            kind = type(message).__name__
            raise InvalidError(f"{kind} is not allowed while {self.state.name.lower()}")
        self.state = following
        return message
