"""The example bytes of docs/protocol.md, in both directions."""

from __future__ import annotations

import pytest
from golden import ACTIONS, CONTROLS, FRAMES, SPACES, examples, plain

from server.net import wire


def test_every_message_has_an_example() -> None:
    assert set(examples()) == set(CONTROLS) | set(FRAMES) | set(ACTIONS)


@pytest.mark.parametrize("name", sorted(examples()))
def test_the_json_says_what_the_bytes_say(name: str) -> None:
    value, data = examples()[name]
    assert int.from_bytes(data[:4], "little") == len(data) - 4
    assert plain(wire.unpack(data[4:])) == value


@pytest.mark.parametrize("name", sorted(CONTROLS))
def test_control_messages_in_both_directions(name: str) -> None:
    _, data = examples()[name]
    assert wire.encode(CONTROLS[name]) == data
    assert wire.read_control(wire.unpack(data[4:])) == CONTROLS[name]


@pytest.mark.parametrize("name", sorted(FRAMES))
def test_frames_in_both_directions(name: str) -> None:
    _, data = examples()[name]
    assert wire.encode_frame(FRAMES[name]) == data
    assert wire.FrameReader(SPACES)(wire.unpack(data[4:])) == FRAMES[name]


@pytest.mark.parametrize("name", sorted(ACTIONS))
def test_actions_in_both_directions(name: str) -> None:
    _, data = examples()[name]
    assert wire.encode_action(*ACTIONS[name]) == data
    assert wire.read_action(wire.unpack(data[4:])) == ACTIONS[name]
