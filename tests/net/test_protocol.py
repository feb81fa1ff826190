"""One connection's rules: any chunking, any garbage, both directions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.net import proof, wire
from server.net.protocol import Event, Protocol, State
from server.net.wire import Bye, Frame, Hello, Ping, Pong, Welcome, WireError
from server.spaces import Actions, Discrete, Observation, Spaces

LIMIT = 2048
SPACES = Spaces(Observation("uint8", (4,)), Actions((Discrete("stick", 3),), ()), ("score",))
HELLO = Hello("test", "1", "pong", "pong", SPACES)


def listen(protocol: Protocol, data: bytes) -> list[Event]:
    """Feed bytes, as a connection does, and welcome whoever says Hello."""
    frame = protocol.lone_frame(data)
    if frame is not None:
        return [frame]
    events: list[Event] = []
    for event in protocol.receive(data):
        events.append(event)
        if isinstance(event, Hello):
            protocol.welcome(Welcome("s", 20.0, LIMIT), event.spaces)
    return events


def greeted() -> Protocol:
    protocol = Protocol(max_message_bytes=LIMIT)
    listen(protocol, wire.encode(HELLO))
    assert protocol.state is State.PLAYING
    return protocol


def conversation(frames: int) -> bytes:
    parts = [wire.encode(HELLO)]
    parts += [
        wire.encode_frame(Frame(number, 0, [0.5], bytes([number % 256] * 4)))
        for number in range(frames)
    ]
    return b"".join([*parts, wire.encode(Ping()), wire.encode(Bye("done"))])


@given(st.integers(0, 12), st.lists(st.integers(1, 60), max_size=40))
def test_any_chunking_gives_the_same_messages(frames: int, cuts: list[int]) -> None:
    data = conversation(frames)
    whole = listen(Protocol(max_message_bytes=LIMIT), data)
    assert [type(event) for event in whole] == [Hello, *[Frame] * frames, Ping, Bye]
    protocol, pieces, at = Protocol(max_message_bytes=LIMIT), [], 0
    for cut in [*cuts, len(data)]:
        pieces += listen(protocol, data[at : at + cut])
        at += cut
    assert pieces == whole
    assert protocol.state is State.CLOSED


def test_a_lone_frame_is_what_the_general_way_reads() -> None:
    frame = wire.encode_frame(Frame(7, 0, [0.5], b"abcd"))
    assert greeted().lone_frame(frame) == next(greeted().receive(frame))
    for other in (frame[:-1], frame + frame, wire.encode(Ping()), b"", b"\0\0\0\0"):
        assert greeted().lone_frame(other) is None
    assert Protocol(max_message_bytes=LIMIT).lone_frame(frame) is None
    halfway = greeted()
    assert list(halfway.receive(frame[:3])) == []
    assert halfway.lone_frame(frame) is None


def test_byte_by_byte_is_the_same_too() -> None:
    data = conversation(3)
    protocol = Protocol(max_message_bytes=LIMIT)
    events = [event for byte in data for event in listen(protocol, bytes([byte]))]
    assert events == listen(Protocol(max_message_bytes=LIMIT), data)


@given(st.binary(max_size=300), st.lists(st.integers(1, 40), max_size=12), st.booleans())
def test_garbage_ends_in_one_named_error_and_bounded_memory(
    garbage: bytes, cuts: list[int], after_hello: bool
) -> None:
    protocol = greeted() if after_hello else Protocol(max_message_bytes=LIMIT)
    events, at = [], 0
    for cut in [*cuts, len(garbage)]:
        events += listen(protocol, garbage[at : at + cut])
        at += cut
        assert protocol.buffered_bytes <= LIMIT + 4
    faults = [event for event in events if isinstance(event, WireError)]
    assert len(faults) <= 1
    if faults:
        assert events[-1] is faults[0]
        assert protocol.state is State.CLOSED
        assert listen(protocol, wire.encode(Ping())) == []


@given(st.integers(0, 400), st.integers(0, 255))
def test_a_flipped_byte_never_raises(place: int, value: int) -> None:
    data = bytearray(conversation(4))
    data[place % len(data)] = value
    listen(Protocol(max_message_bytes=LIMIT), bytes(data))


def test_an_oversize_length_is_refused_before_its_bytes_arrive() -> None:
    protocol = Protocol(max_message_bytes=LIMIT)
    (fault,) = listen(protocol, (LIMIT + 1).to_bytes(4, "little"))
    assert isinstance(fault, wire.OversizeError)
    assert str(fault) == "a message of 2049 bytes is over the limit of 2048"
    assert protocol.buffered_bytes <= 4


def test_a_stranger_may_not_make_us_hold_much() -> None:
    protocol = Protocol(max_message_bytes=1 << 20)
    (fault,) = listen(protocol, (wire.MAX_OPENING_BYTES + 1).to_bytes(4, "little"))
    assert str(fault) == "a message of 65537 bytes is over the limit of 65536"
    welcome = Protocol(max_message_bytes=1 << 20)
    listen(welcome, wire.encode(HELLO))
    assert listen(welcome, (1 << 20).to_bytes(4, "little") + bytes(1000)) == []


def test_messages_before_an_oversize_one_still_count() -> None:
    protocol = greeted()
    frame = wire.encode_frame(Frame(0, 0, [0.0], bytes(4)))
    events = listen(protocol, frame + b"\xff\xff\xff\xff" + frame)
    assert [type(event) for event in events] == [Frame, wire.OversizeError]


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (wire.encode_frame(Frame(0, 0, [0.0], bytes(4))), "a Frame before the Welcome"),
        (wire.encode(Ping()), "Ping is not allowed while opening"),
        (wire.encode(Bye("x")), "Bye is not allowed while opening"),
        (wire.encode(wire.Reject("x")), "Reject is not allowed while opening"),
        (b"\x01\x00\x00\x00\x07", "a map or an array"),
        (b"\x00\x00\x00\x00", "not a msgpack value"),
        (b"\x02\x00\x00\x00\xc1\xc1", "not a msgpack value"),
        (b"\x02\x00\x00\x00\x07\x07", "not a msgpack value"),
        (b"\x05\x00\x00\x00\xdd\xff\xff\xff\xff", "not a msgpack value"),
    ],
)
def test_what_may_not_come_first(message: bytes, words: str) -> None:
    (fault,) = listen(Protocol(max_message_bytes=LIMIT), message)
    assert isinstance(fault, WireError)
    assert words in str(fault)


def test_a_second_hello_is_refused() -> None:
    (fault,) = listen(greeted(), wire.encode(HELLO))
    assert isinstance(fault, WireError)
    assert str(fault) == "Hello is not allowed while playing"


def test_with_a_token_the_welcome_waits_for_a_proof() -> None:
    said = wire.encode(HELLO)
    protocol = Protocol(max_message_bytes=LIMIT, token="sesame")
    assert list(protocol.receive(said)) == [HELLO]
    assert protocol.challenge(b"n" * 32) == wire.encode(wire.Challenge(b"n" * 32))
    with pytest.raises(RuntimeError, match="welcome in state CHALLENGED"):
        protocol.welcome(Welcome("s", 20.0, LIMIT), SPACES)
    shown = wire.Proof(proof.by_client("sesame", b"n" * 32, said[4:]))
    assert list(protocol.receive(wire.encode(shown))) == [shown]
    assert protocol.is_proven(shown)
    told = wire.read_control(wire.unpack(protocol.welcome(Welcome("s", 20.0, LIMIT), SPACES)[4:]))
    assert isinstance(told, Welcome)
    assert told.proof == proof.by_server("sesame", b"n" * 32, said[4:])
    assert protocol.state is State.PLAYING


@given(st.integers(0, 255), st.text(max_size=80), st.binary(min_size=32, max_size=32))
def test_no_other_token_nonce_or_hello_gives_the_proof(
    place: int, token: str, nonce: bytes
) -> None:
    said = wire.encode(HELLO)[4:]
    protocol = Protocol(max_message_bytes=LIMIT, token="sesame")
    list(protocol.receive(wire.encode(HELLO)))
    protocol.challenge(b"n" * 32)
    changed = bytearray(said)
    changed[place % len(said)] ^= 1
    for wrong in (
        proof.by_client("sesame", b"n" * 32, bytes(changed)),
        proof.by_server("sesame", b"n" * 32, said),
        *([] if token == "sesame" else [proof.by_client(token, b"n" * 32, said)]),
        *([] if nonce == b"n" * 32 else [proof.by_client("sesame", nonce, said)]),
    ):
        assert not protocol.is_proven(wire.Proof(wrong))


@pytest.mark.parametrize("first", [wire.Proof(bytes(32)), wire.Challenge(bytes(32))])
def test_nobody_proves_what_was_not_asked(first: wire.Control) -> None:
    (fault,) = listen(Protocol(max_message_bytes=LIMIT), wire.encode(first))
    assert isinstance(fault, WireError)
    assert "is not allowed while opening" in str(fault)


def test_frames_before_the_proof_are_refused() -> None:
    protocol = Protocol(max_message_bytes=LIMIT, token="sesame")
    list(protocol.receive(wire.encode(HELLO)))
    protocol.challenge(b"n" * 32)
    (fault,) = list(protocol.receive(wire.encode_frame(Frame(0, 0, [0.0], bytes(4)))))
    assert isinstance(fault, WireError)
    assert "a Frame before the Welcome" in str(fault)


def test_both_directions_of_a_whole_life() -> None:
    protocol = greeted()
    assert listen(protocol, wire.encode(Ping())) == [Ping()]
    assert listen(protocol, wire.encode(Pong())) == [Pong()]
    farewell = protocol.close(Bye("the server is shutting down"))
    assert wire.read_control(wire.unpack(farewell[4:])) == Bye("the server is shutting down")
    assert listen(protocol, wire.encode(Ping())) == []


def test_a_welcome_needs_a_hello() -> None:
    with pytest.raises(RuntimeError, match="welcome in state OPENING"):
        Protocol(max_message_bytes=LIMIT).welcome(Welcome("s", 20.0, LIMIT), SPACES)
