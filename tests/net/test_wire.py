"""Messages and their bytes: what is refused, and with which words."""

from __future__ import annotations

from random import Random
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.net import wire
from server.net.wire import Choice, Executed, Frame, Source
from server.spaces import Actions, Continuous, Discrete, Observation, Spaces

SPACES = Spaces(
    Observation("float32", (2,)),
    Actions((Discrete("stick", 3), Discrete("fire", 2)), (Continuous("paddle", -1.0, 1.0),)),
    ("score",),
)
GOOD: list[Any] = [5, 0, [1.0], bytes(8)]


def changed(place: int, value: Any) -> list[Any]:
    return [*GOOD[:place], value, *GOOD[place + 1 :]]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([], "4 to 7 fields, not 0"),
        ([1, 0, [1.0]], "4 to 7 fields, not 3"),
        ([*GOOD, None, None, None, None], "4 to 7 fields, not 8"),
        (changed(0, -1), "sequence"),
        (changed(0, True), "sequence"),
        (changed(0, 2**53), "sequence"),
        (changed(0, 1.0), "sequence"),
        (changed(1, 8), "flags must be 0 to 7, not 8"),
        (changed(1, None), "flags"),
        (changed(2, []), "1 rewards"),
        (changed(2, [1.0, 2.0]), "1 rewards"),
        (changed(2, 1.0), "1 rewards"),
        (changed(2, ["1"]), "a reward must be a number"),
        (changed(3, bytes(7)), "2 float32 has 8 bytes, not 7 bytes"),
        (changed(3, "12345678"), "8 bytes"),
        (changed(3, [0.0, 0.0]), "8 bytes"),
        ([*GOOD, [9, [0, 0], [0.0]]], "unknown action source 9"),
        ([*GOOD, [3, [0, 0]]], r"\[source, discrete, continuous\]"),
        ([*GOOD, [3, [3, 0], [0.0]]], "stick must be 0 to 2, not 3"),
        ([*GOOD, [3, [0, 0], [1.5]]], "paddle must be -1 to 1, not 1.5"),
        ([*GOOD, [3, [0, 0], [float("nan")]]], "paddle must be"),
        ([*GOOD, [3, [0], [0.0]]], "2 discrete and 1 continuous"),
        ([*GOOD, None, [[0, 0]]], "the expert's proposal"),
        ([*GOOD, None, 7], "the expert's proposal"),
        ([*GOOD, None, None, [1]], "info must be a map"),
        ([*GOOD, None, None, {"a": [1]}], "number or a short text"),
        ([*GOOD, None, None, {"a": "x" * 257}], "number or a short text"),
    ],
)
def test_a_wrong_frame_is_refused_by_name(value: list[Any], words: str) -> None:
    with pytest.raises(wire.InvalidError, match=words):
        wire.FrameReader(SPACES)(value)


def test_a_reason_stays_short_however_long_the_value_is() -> None:
    with pytest.raises(wire.InvalidError) as caught:
        wire.FrameReader(SPACES)(changed(2, list(range(100_000))))
    assert len(str(caught.value)) < 200


@given(
    st.integers(0, wire.MAX_SEQUENCE),
    st.integers(0, 7),
    st.floats(width=32),
    st.binary(min_size=8, max_size=8),
    st.none() | st.builds(Executed, st.sampled_from(Source), st.just(Choice([2, 1], [0.5]))),
    st.none() | st.just(Choice([0, 1], [-1.0])),
    st.none() | st.dictionaries(st.text(max_size=8), st.integers(-9, 9), max_size=4),
)
def test_a_frame_survives_the_wire(
    sequence: int,
    flags: int,
    reward: float,
    observation: bytes,
    executed: Executed | None,
    expert: Choice | None,
    info: dict[str, Any] | None,
) -> None:
    frame = Frame(sequence, flags, [reward], observation, executed, expert, info)
    read = wire.FrameReader(SPACES)(wire.unpack(wire.encode_frame(frame)[4:]))
    assert repr(read) == repr(frame)  # repr, so that NaN equals itself


HELLO = msgpack.unpackb(wire.encode(wire.Hello("mame", "1", "pong", "pong", SPACES))[4:])


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("version", 1, "speaks protocol version 2, the client speaks 1"),
        ("version", None, "version"),
        ("client", "mame", r"\[name, version\]"),
        ("game", "../etc", "game = '../etc' must be 1 to 64 letters"),
        ("game", None, "game"),
        ("agent", "a/b", "agent"),
        ("observation", None, "observation must be a map"),
        ("observation", {"dtype": "float64", "shape": [2]}, "'float32' or 'uint8'"),
        ("observation", {"dtype": ["uint8"], "shape": [2]}, "'float32' or 'uint8'"),
        ("observation", {"dtype": "uint8", "shape": []}, "1 to 3 sizes"),
        ("observation", {"dtype": "uint8", "shape": [0]}, "1 to 1048576 values"),
        ("observation", {"dtype": "uint8", "shape": [2**40]}, "1 to 1048576 values"),
        ("observation", {"dtype": "float32", "shape": [8, 8]}, "must be 'uint8'"),
        ("actions", {}, "at least one"),
        ("actions", {"discrete": [["stick", 0]]}, "1 to 4096 choices"),
        ("actions", {"discrete": [["stick", True]]}, "1 to 4096 choices"),
        ("actions", {"discrete": [["stick"]]}, r"\[name, choices\]"),
        ("actions", {"continuous": [["x", 1.0, 1.0]]}, "finite low < high"),
        ("actions", {"continuous": [["x", 0.0, float("inf")]]}, "finite low < high"),
        ("actions", {"discrete": [["a", 100], ["b", 100]], "joint": True}, "joint"),
        ("actions", {"discrete": [["a", 2]] * 65}, "at most 64"),
        ("rewards", [], "1 to 32"),
        ("rewards", ["", "x"], "reward name"),
        ("nonce", "x" * 32, "nonce must be a bin of 32 bytes or none"),
        ("nonce", bytes(31), "nonce must be a bin of 32 bytes or none"),
        ("resume", "x" * 2000, "resume must be a text"),
    ],
)
def test_a_wrong_hello_is_refused_by_name(key: str, value: Any, words: str) -> None:
    with pytest.raises(wire.InvalidError, match=words):
        wire.read_control({**HELLO, key: value})


def test_the_agent_is_the_game_unless_named() -> None:
    hello = wire.read_control({**HELLO, "agent": ""})
    assert isinstance(hello, wire.Hello)
    assert hello.agent == "pong"


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("width", 0, "a preview's width must be 1 to 320 pixels, not 0"),
        ("width", 321, "a preview's width must be 1 to 320 pixels, not 321"),
        ("width", 2.0, "a preview's width must be 1 to 320 pixels, not 2.0"),
        ("width", True, "width must be 1 to 320 pixels, not True"),
        ("width", 2**64 - 1, "width must be 1 to 320 pixels"),
        ("height", 257, "a preview's height must be 1 to 256 pixels, not 257"),
        ("height", -1, "height must be 1 to 256 pixels, not -1"),
        ("height", None, "height must be 1 to 256 pixels, not None"),
        ("height", "2", "height must be 1 to 256 pixels, not '2'"),
        ("height", 3, "a preview of 2x3 RGB pixels has 18 bytes, not 12 bytes"),
        ("pixels", bytes(11), "a preview of 2x2 RGB pixels has 12 bytes, not 11 bytes"),
        ("pixels", "x" * 12, "12 bytes, not 'xxxxxxxxxxxx'"),
        ("pixels", [0] * 12, "12 bytes, not"),
        ("pixels", None, "12 bytes, not None"),
    ],
)
def test_a_wrong_preview_is_refused_by_name(key: str, value: Any, words: str) -> None:
    good = {"type": "preview", "width": 2, "height": 2, "pixels": bytes(12)}
    assert wire.read_control(good) == wire.Preview(2, 2, bytes(12))
    with pytest.raises(wire.InvalidError, match=words):
        wire.read_control({**good, key: value})
    del good[key]
    with pytest.raises(wire.InvalidError, match="preview"):
        wire.read_control(good)


@given(st.integers(1, wire.MAX_PREVIEW[0]), st.integers(1, wire.MAX_PREVIEW[1]), st.integers(0))
def test_a_preview_of_any_allowed_size_survives_the_wire(
    width: int, height: int, seed: int
) -> None:
    preview = wire.Preview(width, height, Random(seed).randbytes(3 * width * height))
    data = wire.encode(preview)
    assert wire.read_control(wire.unpack(data[4:])) == preview
    assert len(data) < 1 << 18


@given(
    st.one_of(st.integers(0, 300), st.integers(65_000, 66_000), st.integers(2**32 - 3, 2**32 + 3)),
    st.integers(0, 7),
    st.integers(0, 17),
    st.sampled_from([0, 1, 2, 31, 32, 70, 16_383, 16_384]),
    st.floats(allow_nan=False),
)
def test_the_usual_form_of_a_frame_means_what_its_bytes_say(
    sequence: int, flags: int, rewards: int, values: int, reward: float
) -> None:
    names = tuple(f"part{number}" for number in range(rewards))
    reader = wire.FrameReader(
        Spaces(Observation("float32", (max(1, values),)), SPACES.actions, names)
    )
    frame = Frame(sequence, flags, [reward] * rewards, Random(values).randbytes(4 * max(1, values)))
    data = wire.encode_frame(frame)
    usual = 256 <= sequence < 2**32 and rewards < 16
    assert reader.usual(data) == (frame if usual else None)
    assert reader(wire.unpack(data[4:])) == frame


@given(st.integers(0, 38), st.binary(min_size=1, max_size=3))
def test_a_damaged_frame_is_never_read_as_a_usual_one_that_means_something_else(
    place: int, damage: bytes
) -> None:
    reader = wire.FrameReader(SPACES)
    data = wire.encode_frame(Frame(70_000, 0, [1.0], bytes(range(8))))
    broken = data[:place] + damage + data[place + len(damage) :]
    frame = reader.usual(broken)
    if frame is not None:  # the damage changed a value, not the form
        same = reader(wire.unpack(broken[4:]))
        assert wire.encode_frame(same) == wire.encode_frame(frame)  # bytes: NaN is not itself
    assert reader.usual(data[:-1]) is None
    assert reader.usual(data + data) is None


ANYTHING = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 330), st.floats(), st.binary(max_size=40)
)


@given(ANYTHING, ANYTHING, ANYTHING)
def test_any_values_are_a_preview_that_holds_together_or_a_named_error(
    width: Any, height: Any, pixels: Any
) -> None:
    try:
        preview = wire.read_control(
            {"type": "preview", "width": width, "height": height, "pixels": pixels}
        )
    except wire.InvalidError as error:
        assert "preview" in str(error)
    else:
        assert isinstance(preview, wire.Preview)
        assert len(preview.pixels) == 3 * preview.width * preview.height > 0


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-9, 9)
        | st.text(max_size=9)
        | st.binary(max_size=9)
        | st.floats(),
        lambda inner: (
            st.lists(inner, max_size=8) | st.dictionaries(st.text(max_size=9), inner, max_size=5)
        ),
    )
)
def test_any_msgpack_value_is_a_message_or_a_named_error(value: Any) -> None:
    try:
        if isinstance(value, list):
            wire.FrameReader(SPACES)(value)
        elif isinstance(value, dict):
            wire.read_control(value)
    except wire.InvalidError as error:
        assert str(error)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_value_or_a_named_error(data: bytes) -> None:
    try:
        wire.unpack(data)
    except wire.MalformedError as error:
        assert str(error)
