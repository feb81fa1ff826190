"""Live settings: what they take, how keys move them, how they refuse."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server import nursery
from server.controls import Controls
from server.dials import DialError, find, table

DIALS = table(nursery.bounds())


def test_every_live_setting_is_a_field_of_the_controls() -> None:
    assert list(DIALS) == [dial.name for dial in DIALS.values()]
    assert sorted(DIALS) == sorted(field.name for field in dataclasses.fields(Controls))


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("epsilon", "0.05", 0.05),
        ("epsilon", " 1 ", 1.0),
        ("training", "off", False),
        ("training", "True", True),
        ("n_step", "5", 5),
        ("max_replay_ratio", "1k", 1000.0),
        ("learning_rate", "2.5e-4", 2.5e-4),
        ("client.start_level", "9", 9),
        ("client.mode", "hard", "hard"),
    ],
)
def test_values_are_read_as_people_type_them(name: str, text: str, value: object) -> None:
    found = find(DIALS, name).parse(text)
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("epsilon", "1.5", "epsilon = 1.5 is out of range: 0 to 1 share"),
        ("epsilon", "-0.1", "out of range"),
        ("epsilon", "nan", "out of range"),
        ("epsilon", "much", "must be a number, 0 to 1 share, or natural"),
        ("n_step", "65", "n_step = 65 is out of range: 1 to 64 frames"),
        ("n_step", "2.5", "must be a whole number"),
        ("training", "2", "must be on or off"),
    ],
)
def test_other_values_are_refused_with_what_is_allowed(name: str, text: str, words: str) -> None:
    with pytest.raises(DialError, match=words.replace(".", r"\.")):
        find(DIALS, name).parse(text)


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(DialError, match="did you mean epsilon"):
        find(DIALS, "epsillon")
    with pytest.raises(DialError, match="known: training, greedy"):
        find(DIALS, "client.")


def test_steps() -> None:
    assert DIALS["epsilon"].stepped(0.5, 1) == pytest.approx(0.55)
    assert DIALS["epsilon"].stepped(0.02, -1) == 0.0
    assert DIALS["n_step"].stepped(64, 1) == 64
    assert DIALS["learning_rate"].stepped(5e-4, -1) == 2.5e-4
    assert DIALS["heartbeat_s"].stepped(10.0, 1) == 20.0


def test_no_limit_lies_above_the_largest_limit() -> None:
    limit = DIALS["max_replay_ratio"]
    assert limit.stepped(0, -1) == 64.0
    assert limit.stepped(64.0, 1) == 0.0
    assert limit.stepped(0, 1) == 0.0
    assert limit.stepped(64.0, -1) == 32.0
    assert limit.shown(0.0) == "none"


@given(st.sampled_from([d for d in DIALS.values() if d.step or d.factor]), st.data())
def test_a_step_never_leaves_the_bounds(dial: object, data: st.DataObject) -> None:
    value = data.draw(st.floats(dial.low, dial.high))  # type: ignore[attr-defined]
    for direction in (-1, 1):
        moved = dial.stepped(dial.kind(value), direction)  # type: ignore[attr-defined]
        assert dial.check(moved) == moved  # type: ignore[attr-defined]
