"""The learner in an actor, as the server that steers sees it: it falls, another is hired."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any

import pytest
from game import LAYOUT, played, recipe, until

from server.controls import Controls
from server.learn.checkpoint import CheckpointError
from server.learn.learner import Report
from server.train.actor import Hand, Plan, Progress, TrainingActor
from server.train.trainer import LearnerError, State, TrainerState, done


class Actor:
    """An actor that answers until it falls."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.fallen = self.dismissed = False

    def ask(self, method: str, *arguments: Any) -> Future[Any]:
        self.asked.append(method)
        if self.fallen:
            future: Future[Any] = Future()
            future.set_exception(RuntimeError("the actor is gone"))
            return future
        progress = Progress(TrainerState.TRAINING, Report(steps=7), 5, 5, 100, 0, 0)
        return done({"progress": progress, "get_state": {"counters": {}}, "stop": True}.get(method))

    def dismiss(self) -> None:
        self.dismissed = True


class Stage:
    """A home of a learner, actors for it, and somebody who hires them."""

    def __init__(self) -> None:
        self.hired: list[Actor] = []
        self.gate = threading.Event()  # closed: hiring takes long
        self.gate.set()
        self.problems: list[Exception] = []  # why nobody can be hired, each time
        self.damaged: list[Exception] = []  # why no checkpoint can be read
        self.falls: list[str] = []
        self.deaths: list[BaseException] = []
        self.home = TrainingActor(
            plan=Plan("game", recipe(), LAYOUT, 100, 0.0, 1.0),
            replay=played(0),
            controls=Controls(),
            find=lambda plan: None,
            hire=self.hire,
            newest_state=self.newest_state,
            flush=lambda: None,
            on_death=self.deaths.append,
            on_fall=self.falls.append,
        )
        self.home.start()

    def hire(self, plan: Plan, state: State) -> Hand:
        assert self.gate.wait(20)
        if self.problems:
            raise self.problems.pop()
        self.hired.append(Actor())
        return self.hired[-1]

    def newest_state(self) -> State | None:
        if self.damaged:
            raise self.damaged.pop()
        return None

    def fall(self) -> None:
        """Have the newest one fall, and notice it."""
        self.hired[-1].fallen = True
        self.home.tend()
        self.home.tend()

    def tend(self) -> bool:
        self.home.tend()
        return self.home.state is TrainerState.TRAINING


@pytest.fixture
def stage() -> Stage:
    stage = Stage()
    until(stage.tend)
    return stage


def test_nobody_waits_while_the_next_one_is_hired_and_it_hears_what_was_asked_meanwhile(
    stage: Stage,
) -> None:
    stage.gate.clear()
    stage.fall()  # this would wait for the gate
    assert stage.hired[0].dismissed
    assert stage.home.state is TrainerState.STARTING
    asked = stage.home.learner_state()
    stage.home.set_clients(True)
    stage.home.tend()
    assert not asked.done()
    stage.gate.set()
    until(stage.tend)
    assert asked.result(5) == {"counters": {}}
    assert stage.hired[1].asked[0] == "follow"
    assert "1 of at most 3 times" in stage.falls[0]
    assert stage.home.stop(5.0)
    assert stage.hired[1].asked[-1] == "stop"


def test_one_that_cannot_be_hired_counts_as_fallen_and_another_is_tried(stage: Stage) -> None:
    stage.problems.append(ValueError("the name is taken"))
    stage.damaged.append(CheckpointError("damaged"))
    stage.fall()
    until(stage.tend)
    assert len(stage.hired) == 2
    assert [fall.partition(" fell: ")[2].partition(";")[0] for fall in stage.falls] == [
        "the actor is gone",
        "damaged",
        "the name is taken",
    ]
    assert "3 of at most 3 times" in stage.falls[-1]
    assert not stage.deaths


def test_where_none_can_be_hired_the_end_says_why(stage: Stage) -> None:
    stage.damaged += [CheckpointError("damaged")] * 9
    stage.fall()
    asked = stage.home.learner_state()
    until(lambda: bool(stage.tend() or stage.deaths))
    assert "the learner of agent game fell: damaged; 4 times" in str(stage.deaths[0])
    assert stage.home.state is TrainerState.DEAD
    for answer in (asked, stage.home.learner_state()):
        with pytest.raises(LearnerError):
            answer.result(5)


def test_one_that_is_being_hired_at_the_end_is_ended_as_well(stage: Stage) -> None:
    stage.gate.clear()
    stage.fall()
    threading.Timer(0.05, stage.gate.set).start()
    assert stage.home.stop(5.0)
    assert stage.hired[1].asked == ["stop"]
