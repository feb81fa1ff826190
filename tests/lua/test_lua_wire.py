"""wire.lua against Python's wire, on every Lua."""

from __future__ import annotations

import math
import struct
from typing import Any

import msgpack
import pytest
from golden import CONTROLS, FRAMES, examples
from hypothesis import given
from hypothesis import strategies as st
from lua import VERSIONS, Lua

from server.net import wire
from server.net.wire import Choice, Frame, Source

LUAS = {version: Lua(version) for version in VERSIONS}
WIRES = {version: LUAS[version].load("wire.lua") for version in VERSIONS}


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def lua_frame(version: str, frame: Frame) -> bytes:
    fields: dict[str, Any] = {
        "sequence": frame.sequence,
        "flags": frame.flags,
        "rewards": list(frame.rewards),
    }
    if frame.executed is not None:
        fields["executed"] = {
            "source": int(frame.executed.source),
            "discrete": frame.executed.choice.discrete,
            "continuous": frame.executed.choice.continuous,
        }
    if frame.expert is not None:
        fields["expert"] = {
            "discrete": frame.expert.discrete,
            "continuous": frame.expert.continuous,
        }
    if frame.info is not None:
        fields["info"] = [[name, value] for name, value in frame.info.items()]
    table = LUAS[version].table(fields)
    table[b"observation"] = frame.observation
    data: bytes = WIRES[version][b"frame"](table)
    return data


HELLOS = {
    "hello": {
        "client": "mame",
        "client_version": "0.251",
        "game": "pong2600",
        "nonce": bytes(range(32, 64)).decode("ascii"),
    },
    "hello_evaluate": {"client": "ale", "client_version": "1", "game": "pong", "evaluate": True},
}


@pytest.mark.parametrize("name", HELLOS)
def test_a_hello_has_the_documents_bytes(version: str, name: str) -> None:
    hello = {
        **HELLOS[name],
        "agent": "pong",
        "observation": {"dtype": "uint8", "shape": [4]},
        "actions": {
            "discrete": [{"name": "stick", "choices": 3}],
            "continuous": [{"name": "paddle", "low": 0, "high": 255}],
            "joint": False,
        },
        "rewards": ["score", "bonus"],
    }
    assert WIRES[version][b"hello"](LUAS[version].table(hello)) == examples()[name][1]


@pytest.mark.parametrize("name", FRAMES)
def test_frames_have_the_documents_bytes(version: str, name: str) -> None:
    assert lua_frame(version, FRAMES[name]) == examples()[name][1]


@pytest.mark.parametrize(
    "frame",
    [
        Frame(1, 2, [1e300, -1e-310], bytes(300), None, None, {"name": "é", "share": 0.5}),
        Frame(2**53 - 1, 7, [float("inf"), float("-inf")], bytes(70_000), None, Choice([], [])),
    ],
)
def test_frames_have_pythons_bytes(version: str, frame: Frame) -> None:
    assert lua_frame(version, frame) == wire.encode_frame(frame)


@pytest.mark.parametrize("rewards", [[0.0], [-1.5, 2.0]])
@pytest.mark.parametrize("size", [1, 255, 256])
@pytest.mark.parametrize("sequence", [0, 127, 255, 256, 65_535, 65_536, 2**32 - 1, 2**32])
def test_usual_frames_have_pythons_bytes_at_every_edge(
    version: str, sequence: int, size: int, rewards: list[float]
) -> None:
    frame = Frame(sequence, 4, rewards, bytes(range(256))[:size])
    assert lua_frame(version, frame) == wire.encode_frame(frame)


def test_small_messages_have_the_documents_bytes(version: str) -> None:
    lua = WIRES[version]
    assert lua[b"signal"](b"ping") == examples()["ping"][1]
    assert lua[b"signal"](b"pong") == examples()["pong"][1]
    reason = CONTROLS["bye"].reason  # type: ignore[union-attr]
    assert lua[b"farewell"](b"bye", reason.encode()) == examples()["bye"][1]
    for reason in ("short", "x" * 100, "y" * 1000):
        assert lua[b"farewell"](b"bye", reason.encode()) == wire.encode(wire.Bye(reason))


@pytest.mark.parametrize(
    "preview",
    [
        CONTROLS["preview"],
        wire.Preview(1, 1, b"\0\x80\xff"),
        wire.Preview(160, 120, bytes(range(256)) * 225),
        wire.Preview(320, 256, bytes(320 * 256 * 3)),
    ],
    ids=["document", "smallest", "ours", "largest"],
)
def test_previews_have_pythons_bytes(version: str, preview: wire.Preview) -> None:
    ours = WIRES[version][b"preview"](preview.width, preview.height, preview.pixels)
    assert ours == wire.encode(preview)


@given(st.sampled_from(VERSIONS), st.floats())
def test_any_reward_has_pythons_bytes(version: str, reward: float) -> None:
    ours = lua_frame(version, Frame(0, 0, [reward], b""))
    theirs = wire.encode_frame(Frame(0, 0, [reward], b""))
    if math.isnan(reward):  # there are many NaNs, one is as good as another
        assert math.isnan(msgpack.unpackb(ours[4:])[2][0])
    else:
        assert ours == theirs


@given(st.sampled_from(VERSIONS), st.lists(st.floats(width=32, allow_nan=False), max_size=8))
def test_observations_are_float32(version: str, values: list[float]) -> None:
    table = LUAS[version].table(values)
    assert WIRES[version][b"floats"](table) == struct.pack(f"<{len(values)}f", *values)


@given(st.sampled_from(VERSIONS), st.floats(-1e30, 1e30))
def test_doubles_are_rounded_to_float32_as_ieee_says(version: str, value: float) -> None:
    got = WIRES[version][b"floats"](LUAS[version].table([value]))
    assert got == struct.pack("<f", value)


VALUES = st.recursive(
    st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False)
    | st.binary(max_size=300),
    lambda inner: st.lists(inner, min_size=1, max_size=20),
    max_leaves=40,
)


@given(st.sampled_from(VERSIONS), VALUES)
def test_what_python_packs_lua_reads(version: str, value: Any) -> None:
    read = WIRES[version][b"decode"](msgpack.packb(value))
    assert LUAS[version].plain(read) == value


@given(st.sampled_from(VERSIONS), st.binary(max_size=60))
def test_garbage_is_a_value_or_a_reason(version: str, data: bytes) -> None:
    got = WIRES[version][b"decode"](data)
    if isinstance(got, tuple):
        assert got[0] is None
        assert got[1]


def test_an_action_and_a_welcome_are_read(version: str) -> None:
    decode, plain = WIRES[version][b"decode"], LUAS[version].plain
    action = wire.encode_action(300, [0], [0.5], Source.EXPLORATION, {"start_level": 9})
    assert plain(decode(action[4:])) == [300, [0], [0.5], 1, {b"start_level": 9}]
    assert WIRES[version][b"length"](action[:4]) == len(action) - 4
    welcome = plain(decode(wire.encode(wire.Welcome("abc", 20.0, 1000, {"level": 3}))[4:]))
    assert welcome[b"type"] == b"welcome"
    assert welcome[b"session"] == b"abc"
    assert welcome[b"settings"] == {b"level": 3}


def test_an_info_that_cannot_travel_is_named(version: str) -> None:
    lua = LUAS[version]
    bad = lua.table({"sequence": 0, "flags": 0, "rewards": [], "info": [["screen", {"a": 1}]]})
    bad[b"observation"] = b""
    with pytest.raises(Exception, match="info 'screen' must be a number"):
        WIRES[version][b"frame"](bad)
