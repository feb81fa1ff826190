"""The messages of the Coinop protocol and their bytes; docs/protocol.md is the normative text.

A message is an unsigned 32-bit little-endian length and one msgpack value of that many bytes.
A map is a control message and names itself in ``type``. An array is the hot message of its
direction: a Frame from the client, an Action from the server. Everything here is pure.

    WireError
    ├── OversizeError      a length over the limit
    ├── MalformedError     bytes that are not one msgpack value
    └── InvalidError       a msgpack value that is not a message of ours
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from reprlib import repr as short  # a stranger's value may be huge
from typing import Any, NamedTuple

import msgpack

from server import spaces as spaces_module
from server.net.proof import NONCE_BYTES, PROOF_BYTES
from server.spaces import SpaceError, Spaces, check_name

VERSION = 2
HEADER_BYTES = 4
MAX_TEXT = 1024
MAX_OPENING_BYTES = 1 << 16  # of a message before the Welcome: what strangers may make us hold
MAX_INFO = 32
MAX_SEQUENCE = 2**53 - 1  # what a Lua or JavaScript number holds exactly
MAX_PREVIEW = (320, 256)  # widest and highest picture, in pixels

TERMINAL = 1  # this observation ends the episode: nothing follows from it
TRUNCATED = 2  # the episode ends here, but its value goes on
START = 4  # first frame of an episode, linked to nothing before it
ENDED = TERMINAL | TRUNCATED
_ALL_FLAGS = TERMINAL | TRUNCATED | START

PREFIX_BYTES = HEADER_BYTES + 2  # length, array of four fields, type of the sequence number
_MOST_USUAL_REWARDS = 15  # what the short form of an array holds


class WireError(ValueError):
    """Bytes or values that break the protocol; the message says how."""


class OversizeError(WireError):
    """A message longer than the limit, refused before anything is allocated."""


class MalformedError(WireError):
    """Bytes that are not exactly one msgpack value."""


class InvalidError(WireError):
    """A msgpack value that is not a message of this protocol."""


class Source(IntEnum):
    """Who chose an action."""

    POLICY = 0
    EXPLORATION = 1
    EXPERT = 2
    HUMAN = 3
    SCRIPT = 4


class Choice(NamedTuple):
    """One value for every control: what an expert proposes or a game executed."""

    discrete: list[int]
    continuous: list[float]


class Executed(NamedTuple):
    """The action a game really carried out, and who chose it."""

    source: Source
    choice: Choice


class Frame(NamedTuple):
    """One decision of one game: what it shows and what it earned since the frame before."""

    sequence: int
    flags: int
    rewards: list[float]
    observation: bytes
    executed: Executed | None = None
    expert: Choice | None = None
    info: dict[str, Any] | None = None


_new_frame = tuple.__new__


class Action(NamedTuple):
    """The answer to one frame."""

    sequence: int
    discrete: list[int]
    continuous: list[float]
    source: Source
    settings: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Hello:
    """What a client says of itself before anything else."""

    client: str
    client_version: str
    game: str
    agent: str
    spaces: Spaces
    nonce: bytes = b""  # what the server's proof must cover; empty where no token is known
    resume: str = ""
    evaluate: bool = False  # answer greedily, and store nothing
    version: int = VERSION


@dataclass(frozen=True, slots=True)
class Welcome:
    """The server's yes: who the client is from now on, and what it may do."""

    session: str
    heartbeat_s: float
    max_message_bytes: int
    settings: dict[str, Any] = field(default_factory=dict)
    resumed: bool = False
    proof: bytes = b""  # that the server knows the token; empty if it has none


@dataclass(frozen=True, slots=True)
class Challenge:
    """A server with a token asks whether the client knows it too."""

    nonce: bytes


@dataclass(frozen=True, slots=True)
class Proof:
    """The client's answer to a Challenge."""

    proof: bytes


@dataclass(frozen=True, slots=True)
class Reject:
    """The server's no, with a reason that a person can act on."""

    reason: str


@dataclass(frozen=True, slots=True)
class Ping:
    """Asks the other side whether it is there."""


@dataclass(frozen=True, slots=True)
class Pong:
    """Answers a Ping."""


@dataclass(frozen=True, slots=True)
class Bye:
    """Says that the connection ends in good order."""

    reason: str


@dataclass(frozen=True, slots=True)
class Error:
    """Says what was wrong before the connection is closed."""

    reason: str


@dataclass(frozen=True, slots=True)
class Preview:
    """A small picture of a client's screen, for people: rows of RGB, from top to bottom."""

    width: int
    height: int
    pixels: bytes


Control = Hello | Challenge | Proof | Welcome | Reject | Ping | Pong | Bye | Error | Preview


class Splitter:
    """Cuts a stream of bytes into message payloads, whatever the chunks."""

    __slots__ = ("_buffer", "fault", "max_bytes")

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes  # of a message; longer ones are refused before they are read
        self._buffer = bytearray()
        self.fault: OversizeError | None = None  # nothing can be read after it

    def lone(self, data: bytes) -> bytes | None:
        """Give the payload if these bytes are one whole message, as lockstep sends them."""
        length = len(data) - HEADER_BYTES
        if (
            int.from_bytes(data[:HEADER_BYTES], "little") == length <= self.max_bytes
            and not self._buffer
            and self.fault is None
        ):
            return data[HEADER_BYTES:]
        return None

    def feed(self, data: bytes) -> Sequence[bytes]:
        """Give every payload that these bytes complete."""
        alone = self.lone(data)
        if alone is not None:
            return (alone,)
        self._buffer += data
        payloads = []
        start = 0
        while len(self._buffer) - start >= HEADER_BYTES and self.fault is None:
            body = start + HEADER_BYTES
            length = int.from_bytes(self._buffer[start:body], "little")
            if length > self.max_bytes:
                self.fault = OversizeError(
                    f"a message of {length} bytes is over the limit of {self.max_bytes}"
                )
            if len(self._buffer) - body < length:
                break
            start = body + length
            payloads.append(bytes(self._buffer[body:start]))
        del self._buffer[:start]
        return payloads

    def clear(self) -> None:
        """Forget the part of a message that has come."""
        self._buffer.clear()

    @property
    def buffered_bytes(self) -> int:
        """Number of bytes kept of a message that is not complete yet."""
        return len(self._buffer)


# --- to bytes ---------------------------------------------------------------------------------

_pack = msgpack.Packer(autoreset=True).pack


def encode_frame(frame: Frame) -> bytes:
    """Give the bytes of a Frame; fields at the end that are not set are left out."""
    value: list[Any] = [
        frame.sequence,
        frame.flags,
        [float(reward) for reward in frame.rewards],
        frame.observation,
    ]
    rest = [
        None
        if frame.executed is None
        else [int(frame.executed.source), *_plain_choice(frame.executed.choice)],
        None if frame.expert is None else _plain_choice(frame.expert),
        frame.info,
    ]
    while rest and rest[-1] is None:
        rest.pop()
    return _framed(value + rest)


def encode_action(
    sequence: int,
    discrete: list[int],
    continuous: list[float],
    source: int,
    settings: dict[str, Any] | None = None,
) -> bytes:
    """Give the bytes of an Action."""
    if settings is None:
        return _framed([sequence, discrete, continuous, source])
    return _framed([sequence, discrete, continuous, source, settings])


def encode(message: Control) -> bytes:
    """Give the bytes of a control message."""
    if isinstance(message, Hello):
        return _framed(
            {
                "type": "hello",
                "version": message.version,
                "client": [message.client, message.client_version],
                "game": message.game,
                "agent": message.agent,
                **message.spaces.to_plain(),
                "nonce": message.nonce,
                "resume": message.resume,
                # Said only by those who want it: the usual Hello stays as it was.
                **({"evaluate": True} if message.evaluate else {}),
            }
        )
    if isinstance(message, Welcome):
        return _framed(
            {
                "type": "welcome",
                "version": VERSION,
                "session": message.session,
                "heartbeat_s": float(message.heartbeat_s),
                "max_message_bytes": message.max_message_bytes,
                "settings": message.settings,
                "resumed": message.resumed,
                "proof": message.proof,
            }
        )
    kind = type(message).__name__.lower()
    if isinstance(message, Challenge):
        return _framed({"type": kind, "nonce": message.nonce})
    if isinstance(message, Proof):
        return _framed({"type": kind, "proof": message.proof})
    if isinstance(message, Preview):
        return _framed(
            {
                "type": kind,
                "width": message.width,
                "height": message.height,
                "pixels": message.pixels,
            }
        )
    if isinstance(message, Ping | Pong):
        return _framed({"type": kind})
    return _framed({"type": kind, "reason": message.reason})


def _framed(value: Any) -> bytes:
    payload: bytes = _pack(value)
    return len(payload).to_bytes(HEADER_BYTES, "little") + payload


def _plain_choice(choice: Choice) -> list[Any]:
    return [list(choice.discrete), [float(value) for value in choice.continuous]]


# --- from bytes -------------------------------------------------------------------------------


def unpack(payload: bytes) -> Any:
    """Give the one msgpack value of a payload; its size bounds what is allocated."""
    try:
        return msgpack.unpackb(payload)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        reason = str(error) or type(error).__name__
        raise MalformedError(f"not a msgpack value: {reason}") from error


class FrameReader:
    """Reads the Frames of one client, checking each against the spaces it announced."""

    __slots__ = ("_marks", "_observation_bytes", "_rewards", "_spaces", "_usual", "usual_sizes")

    def __init__(self, spaces: Spaces) -> None:
        self._spaces = spaces
        self._rewards = len(spaces.rewards)
        self._observation_bytes = spaces.observation.size_bytes
        self._marks = _usual_marks(self._rewards, self._observation_bytes)
        self._usual = _usual_forms(self._marks, self._observation_bytes)
        # Of a whole message, header included, that may have the usual form: by its first bytes.
        self.usual_sizes = {prefix: form.size for prefix, form in self._usual.items()}

    def usual(self, data: bytes) -> Frame | None:
        """Give the Frame of a whole message, header included, if it has the usual form.

        Nearly every Frame has: four fields, a sequence number of 2 or 4 bytes, rewards of 8. All
        its fields then stand at known places, and one call cuts them out. None for anything else.
        """
        form = self._usual.get(data[:PREFIX_BYTES])
        if form is None or form.size != len(data):
            return None
        fields = form.unpack(data)
        if fields[1] > _ALL_FLAGS or fields[2::2] != self._marks:
            return None
        # Not Frame(...): its defaults would cost a call more.
        return _new_frame(
            Frame, (fields[0], fields[1], list(fields[3:-1:2]), fields[-1], None, None, None)
        )

    def __call__(self, value: list[Any]) -> Frame:
        """Read a Frame's array."""
        try:
            sequence, flags, rewards, observation = value[:4]
        except ValueError:
            raise InvalidError(f"a Frame has 4 to 7 fields, not {len(value)}") from None
        if type(sequence) is not int or not 0 <= sequence <= MAX_SEQUENCE:
            raise InvalidError(
                f"a Frame's sequence number must be 0 or more, not {short(sequence)}"
            )
        if type(flags) is not int or not 0 <= flags <= _ALL_FLAGS:
            raise InvalidError(f"a Frame's flags must be 0 to {_ALL_FLAGS}, not {short(flags)}")
        if type(rewards) is not list or len(rewards) != self._rewards:
            raise InvalidError(
                f"a Frame of this client has {self._rewards} rewards, not {short(rewards)}"
            )
        for reward in rewards:
            if type(reward) is not float and type(reward) is not int:
                raise InvalidError(f"a reward must be a number, not {short(reward)}")
        if type(observation) is not bytes or len(observation) != self._observation_bytes:
            got = f"{len(observation)} bytes" if type(observation) is bytes else short(observation)
            raise InvalidError(
                f"an observation of {self._spaces.observation.describe()} has "
                f"{self._observation_bytes} bytes, not {got}"
            )
        if len(value) == 4:
            return Frame(sequence, flags, rewards, observation)
        return Frame(sequence, flags, rewards, observation, *self._rest(value[4:]))

    def _rest(
        self, rest: list[Any]
    ) -> tuple[Executed | None, Choice | None, dict[str, Any] | None]:
        if len(rest) > 3:
            raise InvalidError(f"a Frame has 4 to 7 fields, not {4 + len(rest)}")
        executed, expert, info = [*rest, None, None][:3]
        spaces = self._spaces
        return (
            None if executed is None else _executed(executed, spaces),
            None if expert is None else _choice("the expert's proposal", expert, spaces),
            None if info is None else _flat_map("info", info),
        )


def _usual_marks(rewards: int, observation_bytes: int) -> tuple[bytes, ...]:
    """Give the type bytes that stand before each reward and before the observation."""
    if rewards > _MOST_USUAL_REWARDS:
        return ()
    marks = [b"\xcb"] * rewards + [bytes_mark(observation_bytes)]
    marks[0] = bytes([0x90 | rewards]) + marks[0]
    return tuple(marks)


def bytes_mark(count: int) -> bytes:
    """Give the type bytes that stand before so many bytes."""
    if count < 1 << 8:
        return b"\xc4" + count.to_bytes(1, "big")
    if count < 1 << 16:
        return b"\xc5" + count.to_bytes(2, "big")
    return b"\xc6" + count.to_bytes(4, "big")


def _usual_forms(marks: tuple[bytes, ...], observation_bytes: int) -> dict[bytes, struct.Struct]:
    """Give the places of a usual Frame's fields, by the first bytes of its message."""
    if not marks:
        return {}
    forms = {}
    for kind, width in (b"\xcd", "H"), (b"\xce", "I"):
        places = "d".join(f"{len(mark)}s" for mark in marks)
        form = struct.Struct(f">{PREFIX_BYTES}x{width}B{places}{observation_bytes}s")
        length = (form.size - HEADER_BYTES).to_bytes(HEADER_BYTES, "little")
        forms[length + b"\x94" + kind] = form
    return forms


def read_action(value: list[Any]) -> Action:
    """Read an Action's array: the client's side."""
    if not 4 <= len(value) <= 5:
        raise InvalidError(f"an Action has 4 or 5 fields, not {len(value)}")
    try:
        source = Source(value[3])
    except ValueError:
        raise InvalidError(f"unknown action source {short(value[3])}") from None
    return Action(value[0], value[1], value[2], source, value[4] if len(value) == 5 else None)


def read_control(value: dict[Any, Any]) -> Control:
    """Read a control message's map."""
    kind = value.get("type")
    reader = _CONTROLS.get(kind) if isinstance(kind, str) else None
    if reader is None:
        raise InvalidError(f"unknown message type {short(kind)}")
    try:
        return reader(value)
    except SpaceError as error:
        raise InvalidError(str(error)) from error


def _hello(value: dict[Any, Any]) -> Hello:
    version = value.get("version")
    if version != VERSION or isinstance(version, bool):
        # Anything else in a Hello may mean something different in another version.
        raise InvalidError(
            f"this server speaks protocol version {VERSION}, the client speaks {short(version)}; "
            "use the client that came with the server"
        )
    client = value.get("client")
    if not isinstance(client, list) or len(client) != 2:
        raise InvalidError(f"client must be [name, version], not {short(client)}")
    game = check_name("game", value.get("game"))
    agent = value.get("agent") or game
    return Hello(
        client=check_name("client name", client[0]),
        client_version=_text("client version", client[1]),
        game=game,
        agent=check_name("agent", agent),
        spaces=spaces_module.from_plain(value),
        nonce=_secret("nonce", value.get("nonce", b""), NONCE_BYTES, optional=True),
        resume=_text("resume", value.get("resume", "")),
        evaluate=_flag("evaluate", value.get("evaluate", False)),
    )


def _welcome(value: dict[Any, Any]) -> Welcome:
    heartbeat_s, limit = value.get("heartbeat_s"), value.get("max_message_bytes")
    if type(heartbeat_s) is not float or type(limit) is not int:
        raise InvalidError("a Welcome needs heartbeat_s and max_message_bytes")
    return Welcome(
        _text("session", value.get("session")),
        heartbeat_s,
        limit,
        _flat_map("settings", value.get("settings", {})),
        value.get("resumed") is True,
        _secret("proof", value.get("proof", b""), PROOF_BYTES, optional=True),
    )


def _preview(value: dict[Any, Any]) -> Preview:
    width = _side("width", value.get("width"), MAX_PREVIEW[0])
    height = _side("height", value.get("height"), MAX_PREVIEW[1])
    pixels, size = value.get("pixels"), 3 * width * height
    if type(pixels) is not bytes or len(pixels) != size:
        got = f"{len(pixels)} bytes" if type(pixels) is bytes else short(pixels)
        raise InvalidError(f"a preview of {width}x{height} RGB pixels has {size} bytes, not {got}")
    return Preview(width, height, pixels)


def _side(what: str, value: Any, most: int) -> int:
    if type(value) is not int or not 1 <= value <= most:
        raise InvalidError(f"a preview's {what} must be 1 to {most} pixels, not {short(value)}")
    return value


_CONTROLS: dict[str, Callable[[dict[Any, Any]], Control]] = {
    "hello": _hello,
    "challenge": lambda value: Challenge(_secret("nonce", value.get("nonce"), NONCE_BYTES)),
    "proof": lambda value: Proof(_secret("proof", value.get("proof"), PROOF_BYTES)),
    "welcome": _welcome,
    "reject": lambda value: Reject(_text("reason", value.get("reason"))),
    "ping": lambda value: Ping(),
    "pong": lambda value: Pong(),
    "bye": lambda value: Bye(_text("reason", value.get("reason"))),
    "error": lambda value: Error(_text("reason", value.get("reason"))),
    "preview": _preview,
}


def _executed(value: Any, spaces: Spaces) -> Executed:
    if type(value) is not list or len(value) != 3:
        raise InvalidError(
            f"an executed action is [source, discrete, continuous], not {short(value)}"
        )
    try:
        source = Source(value[0])
    except ValueError:
        raise InvalidError(f"unknown action source {short(value[0])}") from None
    return Executed(source, _choice("the executed action", value[1:], spaces))


def _choice(what: str, value: Any, spaces: Spaces) -> Choice:
    if type(value) is not list or len(value) != 2 or not all(type(part) is list for part in value):
        raise InvalidError(f"{what} must be [discrete, continuous], not {short(value)}")
    discrete, continuous = value
    controls = spaces.actions
    if len(discrete) != len(controls.discrete) or len(continuous) != len(controls.continuous):
        raise InvalidError(
            f"{what} must have {len(controls.discrete)} discrete and "
            f"{len(controls.continuous)} continuous values, not {short(value)}"
        )
    for number, choices in zip(discrete, controls.discrete, strict=True):
        if type(number) is not int or not 0 <= number < choices.choices:
            raise InvalidError(
                f"{what}: {choices.name} must be 0 to {choices.choices - 1}, not {short(number)}"
            )
    for number, span in zip(continuous, controls.continuous, strict=True):
        # The comparison is false for NaN, which is refused with the rest.
        if type(number) not in (float, int) or not span.low <= number <= span.high:
            raise InvalidError(
                f"{what}: {span.name} must be {span.low:g} to {span.high:g}, not {short(number)}"
            )
    return Choice(discrete, [float(number) for number in continuous])


def _flat_map(what: str, value: Any) -> dict[str, Any]:
    """Check a small map of names to numbers, texts and booleans."""
    if type(value) is not dict or len(value) > MAX_INFO:
        raise InvalidError(f"{what} must be a map of at most {MAX_INFO} entries")
    for key, item in value.items():
        _text(f"a name in {what}", key)
        if not isinstance(item, int | float | str) or (isinstance(item, str) and len(item) > 256):
            raise InvalidError(f"{what}[{short(key)}] must be a number or a short text")
    return value


def _flag(what: str, value: Any) -> bool:
    if type(value) is not bool:
        raise InvalidError(f"{what} must be true or false, not {short(value)}")
    return value


def _secret(what: str, value: Any, size: int, *, optional: bool = False) -> bytes:
    if type(value) is not bytes or not (len(value) == size or (optional and not value)):
        # The value is not shown: it may be what a person typed in a wrong place.
        raise InvalidError(f"{what} must be a bin of {size} bytes{' or none' * optional}")
    return value


def _text(what: str, value: Any) -> str:
    if not isinstance(value, str) or len(value) > MAX_TEXT:
        raise InvalidError(f"{what} must be a text of at most {MAX_TEXT} characters")
    return value
