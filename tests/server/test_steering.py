"""Steering and its journal: chosen, ramped, undone, refused, and back after a restart."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from server import nursery
from server.controls import Command, Controls, Verb
from server.dials import DialError, Value, table
from server.journal import Change, Journal, read
from server.steering import Steering

NATURALS: dict[str, Value] = {
    "training": True,
    "greedy": False,
    "expert": False,
    "exploring": True,
    "verbose": False,
    "epsilon": 0.5,
    "expert_ratio": 0.2,
    "learning_rate": 4e-4,
    "heartbeat_s": 10.0,
    "steps_per_sample": 4,
    "max_replay_ratio": 0.0,
    "n_step": 3,
}


class Bridge:
    """A steering with all that it tells of."""

    opened: ClassVar[list[Bridge]] = []

    def __init__(self, path: Path) -> None:
        Bridge.opened.append(self)
        self.frames = 1000
        self.published: list[Controls] = []
        self.pushed: dict[str, Value] = {}
        self.changes: list[Change] = []
        self.texts: list[str] = []
        self.problems: list[str] = []
        self.steering = Steering(
            dials=table(nursery.bounds()),
            natural=NATURALS.get,
            frames=lambda: self.frames,
            publish=self.published.append,
            push=self.pushed.__setitem__,
            on_change=self._note,
            on_problem=self.problems.append,
        )
        self.steering.open(Journal.open(path))

    def _note(self, change: Change, text: str) -> None:
        self.changes.append(change)
        self.texts.append(text)

    def __call__(self, verb: str, name: str = "", value: str = "", over: int = 0) -> Controls:
        self.steering.obey(Command(Verb(verb), name, value, over), "test")
        return self.steering.controls


@pytest.fixture(autouse=True)
def close_all() -> Iterator[None]:
    yield
    while Bridge.opened:
        Bridge.opened.pop().steering.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


@pytest.fixture
def bridge(path: Path) -> Bridge:
    return Bridge(path)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_steps_start_from_what_is_in_force(bridge: Bridge) -> None:
    assert bridge("up", "epsilon").epsilon == pytest.approx(0.55)
    assert bridge("down", "epsilon").epsilon == pytest.approx(0.5)
    assert bridge("down", "learning_rate").learning_rate == 2e-4
    assert bridge("up", "n_step").n_step == 4
    assert bridge("down", "max_replay_ratio").max_replay_ratio == 64
    assert bridge.published[-1] == bridge.steering.controls


def test_natural_gives_the_schedule_back(bridge: Bridge) -> None:
    bridge("set", "epsilon", "0.1")
    assert bridge("set", "epsilon", "natural") == Controls()
    assert bridge.steering.value("epsilon") == 0.5


def test_switches(bridge: Bridge) -> None:
    assert bridge("switch", "training").training is False
    assert bridge("switch", "training") == Controls()
    assert bridge("set", "greedy", "on").greedy is True
    assert bridge.texts == ["training on → off", "training off → on", "greedy off → on"]


def test_changes_are_told_and_journaled_with_who_and_when(bridge: Bridge, path: Path) -> None:
    bridge("set", "epsilon", "0.05")
    (line,) = lines(path)
    assert line["time"] > 1.7e9
    del line["time"], line["checksum"]
    assert line == {
        "frame": 1000,
        "name": "epsilon",
        "old": None,
        "new": 0.05,
        "who": "test",
        "kind": "set",
    }
    assert bridge.texts == ["epsilon natural → 0.05"]


def test_what_changes_nothing_is_not_journaled(bridge: Bridge, path: Path) -> None:
    bridge("set", "epsilon", "natural")
    bridge("set", "training", "on")
    bridge("up", "max_replay_ratio")
    assert not path.read_text() and not bridge.published


def test_undo_takes_back_one_change_after_the_other(bridge: Bridge, path: Path) -> None:
    bridge("set", "epsilon", "0.3")
    bridge("set", "epsilon", "0.1")
    bridge("switch", "training")
    assert bridge("undo").training is True
    assert bridge("undo").epsilon == 0.3
    assert bridge("undo") == Controls()
    with pytest.raises(DialError, match="no change to undo"):
        bridge("undo")
    assert [line["kind"] for line in lines(path)] == ["set"] * 3 + ["undo"] * 3


def test_a_restart_brings_everything_back(bridge: Bridge, path: Path) -> None:
    bridge("set", "epsilon", "0.3")
    bridge("set", "n_step", "5")
    bridge("switch", "training")
    bridge("undo")
    bridge.steering.note("replay", 500, 0, "test", "emptied")
    bridge("set", "client.start_level", "9")
    bridge.steering.close()
    again = Bridge(path)
    assert again.steering.controls == bridge.steering.controls == Controls(epsilon=0.3, n_step=5)
    assert again.published == [again.steering.controls]
    assert again.pushed == {"start_level": 9}
    assert again.steering.restored() == "epsilon 0.3, n_step 5, client.start_level 9"
    again("undo")
    assert again("undo") == Controls(epsilon=0.3)


def test_a_ramp_follows_the_frames_and_survives_a_restart(bridge: Bridge, path: Path) -> None:
    bridge("set", "epsilon", "0.1", 1000)
    assert bridge.texts == ["epsilon natural → 0.1 at frame 2,000"]
    bridge.frames = 1500
    bridge.steering.tend()
    assert bridge.published[-1].epsilon == pytest.approx(0.3)
    bridge.steering.close()
    again = Bridge(path)
    again.frames = 1750
    again.steering.tend()
    assert again.steering.controls.epsilon == pytest.approx(0.2)
    again.frames = 9999
    again.steering.tend()
    assert again.steering.controls.epsilon == pytest.approx(0.1)
    assert again("undo") == Controls()


def test_a_ramp_of_whole_numbers_stays_whole(bridge: Bridge) -> None:
    bridge("set", "n_step", "9", 600)
    bridge.frames = 1150
    bridge.steering.tend()
    assert bridge.steering.controls.n_step == 4  # 3 + 6 * 0.25 = 4.5, rounded to even


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("set", "epsilon", "2"), "0 to 1"),
        (("set", "training", "off", 10), "nothing between"),
        (("set", "epsilon", "natural", 10), "at once"),
        (("switch", "epsilon"), "no switch"),
        (("up", "training"), "no steps"),
        (("set", "nothing", "1"), "no live setting"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(
    bridge: Bridge, path: Path, command: tuple[Any, ...], words: str
) -> None:
    with pytest.raises(DialError, match=words):
        bridge(*command)
    assert not path.read_text() and bridge.steering.controls == Controls()


def test_a_damaged_journal_keeps_what_is_whole(bridge: Bridge, path: Path) -> None:
    bridge("set", "epsilon", "0.3")
    bridge.steering.close()
    foreign = {"time": 1, "frame": 1, "old": None, "who": "x", "kind": "set"}
    with path.open("a") as file:
        file.write(json.dumps({**foreign, "name": "epsilon", "new": 7}) + "\n")
        file.write(json.dumps({**foreign, "name": "training", "new": "maybe"}) + "\n")
        file.write(json.dumps({**foreign, "name": "gone", "new": 1}) + "\n")
        file.write('{"time": 1, "na')  # cut off by a crash
    again = Bridge(path)
    assert again.steering.controls == Controls(epsilon=0.3)
    assert len(again.problems) == 4
    again("set", "n_step", "7")
    again.steering.close()
    assert [change.name for change in read(path)[0]][-1] == "n_step"
    assert Bridge(path).steering.controls == Controls(epsilon=0.3, n_step=7)


def test_a_journal_that_cannot_be_written_does_not_take_the_controls_away(bridge: Bridge) -> None:
    bridge.steering.close()
    assert bridge("set", "epsilon", "0.3").epsilon == 0.3
    assert "cannot be written" in bridge.problems[0]


def test_views_say_what_is_in_force_and_why(bridge: Bridge) -> None:
    bridge("set", "epsilon", "0.1", 1000)
    bridge("set", "client.level", "3")
    views = {view.name: view for view in bridge.steering.views()}
    assert views["epsilon"].value == "0.5" and views["epsilon"].chosen == "0.1 at frame 2,000"
    assert views["epsilon"].natural == "0.5" and views["epsilon"].allowed == "0 to 1 share"
    assert views["training"].value == "on" and views["training"].chosen == ""
    assert views["max_replay_ratio"].value == "none"
    assert views["client.level"].value == "3"
