"""The learner in a process of its own: it trains, obeys, falls, comes back, and leaves nothing."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from game import play, played, recipe, until

from server.controls import Controls
from server.train import process as process_module
from server.train.process import Falls, TrainingProcess
from server.train.trainer import LearnerError, TrainerState


class Stage:
    """A trainer with all that it needs, and a hand to feed it."""

    def __init__(self, directory: Path, *, ratio: float = 0.0) -> None:
        file = directory / "replay.bin"
        self.replay = played(300, file)
        self.recipe = recipe()
        self.deaths: list[BaseException] = []
        self.falls: list[str] = []
        self.trainer = TrainingProcess(
            name="test",
            recipe=self.recipe,
            replay=self.replay,
            replay_file=file,
            directory=directory,
            min_replay=200,
            max_replay_ratio=ratio,
            controls=Controls(),
            on_death=self.deaths.append,
            on_fall=self.falls.append,
        )

    def feed(self, frames: int) -> None:
        play(self.replay, frames)
        self.trainer.frames_arrived(self.replay.head)

    def trains_on(self) -> None:
        steps = self.trainer.report.steps
        until(lambda: self.trainer.report.steps > steps)

    @property
    def pid(self) -> int:
        process = self.trainer._process
        assert process is not None
        return process.pid


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Callable[..., Stage]]:
    made: list[Stage] = []

    def make(**settings: Any) -> Stage:
        made.append(Stage(tmp_path, **settings))
        return made[-1]

    yield make
    for one in made:
        one.trainer.stop(20)
        if one.trainer._process is not None:
            assert one.trainer._process.poll() is not None  # reaped: no zombie is left


def test_it_trains_and_what_it_learned_comes_back(stage: Callable[..., Stage]) -> None:
    one = stage()
    twin = one.recipe.make(one.replay)
    before = one.trainer.weights().result(0)  # at once: it does not run yet
    assert np.array_equal(before.flat, twin.weights().flat)
    assert one.trainer.state is TrainerState.STARTING
    one.trainer.start()
    one.trains_on()
    assert one.trainer.state is TrainerState.TRAINING
    weights = one.trainer.weights().result(30)
    assert weights.version > before.version and weights.step > 0
    assert abs(weights.time_s - time.monotonic()) < 30
    assert not np.array_equal(weights.flat, before.flat)
    assert one.trainer.stop(30)
    assert one.trainer.state is TrainerState.STOPPED
    # What it left is whole: a learner here goes on from it.
    state = one.trainer.learner_state().result(0)
    assert state["counters"]["steps"] == one.trainer.report.steps
    assert int(state["tensors"]["optimizer.step"]) == one.trainer.report.steps
    twin.set_state(state)
    assert np.array_equal(twin.weights().flat, one.trainer.weights().result(0).flat)
    assert twin.train()
    spent = one.trainer.report.spent
    assert min(spent.sample_s, spent.forward_s, spent.backward_s, spent.optimise_s) > 0
    assert spent.sync_s > 0
    assert one.deaths == [] and one.falls == []


def test_ctrl_c_does_not_reach_it_and_it_shares_the_cores_with_the_server(
    stage: Callable[..., Stage],
) -> None:
    one = stage()
    one.trainer.start()
    one.trains_on()
    assert os.getpgid(one.pid) != os.getpgrp()
    assert os.getsid(one.pid) == os.getsid(0)  # by session Linux shares its cores out first


def test_it_goes_on_from_what_was_kept(stage: Callable[..., Stage], tmp_path: Path) -> None:
    one = stage()
    learner = one.recipe.make(one.replay)
    learner.train()
    one.trainer.restore(learner.get_state())
    one.trainer.set_controls(Controls(training=False))
    one.trainer.start()
    until(lambda: one.trainer.state is TrainerState.PAUSED)
    assert one.trainer.report.steps == 4
    assert np.array_equal(one.trainer.weights().result(30).flat, learner.weights().flat)
    state = one.trainer.learner_state().result(30)
    for name, tensor in learner.get_state()["tensors"].items():
        assert tensor.equal(state["tensors"][name]), name


def test_the_target_can_be_refreshed_from_outside(stage: Callable[..., Stage]) -> None:
    one = stage()
    one.trainer.start()
    one.trains_on()
    one.trainer.set_controls(Controls(training=False))
    until(lambda: one.trainer.state is TrainerState.PAUSED)
    tensors = one.trainer.learner_state().result(30)["tensors"]
    names = [name.removeprefix("online.") for name in tensors if name.startswith("online.")]
    assert not all(tensors[f"online.{name}"].equal(tensors[f"target.{name}"]) for name in names)
    one.trainer.refresh_target().result(30)
    tensors = one.trainer.learner_state().result(30)["tensors"]
    assert all(tensors[f"online.{name}"].equal(tensors[f"target.{name}"]) for name in names)


def test_a_target_is_refreshed_though_its_learner_falls_meanwhile(
    stage: Callable[..., Stage],
) -> None:
    one = stage()
    one.trainer.start()
    one.trains_on()
    one.trainer.set_controls(Controls(training=False))
    until(lambda: one.trainer.state is TrainerState.PAUSED)
    one.trainer.weights().result(30)  # from here it will go on
    os.kill(one.pid, signal.SIGSTOP)
    asked = one.trainer.refresh_target()  # which this process never hears
    os.kill(one.pid, signal.SIGKILL)
    asked.result(60)
    tensors = one.trainer.learner_state().result(30)["tensors"]
    names = [name.removeprefix("online.") for name in tensors if name.startswith("online.")]
    assert all(tensors[f"online.{name}"].equal(tensors[f"target.{name}"]) for name in names)
    one.trainer.stop(30)
    with pytest.raises(LearnerError, match="the learner of agent test is not there any more"):
        one.trainer.refresh_target().result(0)


def test_it_obeys_and_sleeps(stage: Callable[..., Stage]) -> None:
    one = stage(ratio=8.0)  # a sample of 32 transitions for 4 frames
    one.trainer.start()
    until(lambda: one.trainer.state is TrainerState.LIMITED)
    assert one.trainer.report.transitions == 32
    for number in range(2, 40):  # if a wake-up were lost, the next sample would stay away
        one.feed(4)
        until(lambda number=number: one.trainer.report.transitions == 32 * number)  # type: ignore[misc]
    until(lambda: one.trainer.state is TrainerState.LIMITED)
    before = cpu_ticks(one.pid)
    time.sleep(0.3)
    assert cpu_ticks(one.pid) - before <= 1  # it sleeps, it does not poll
    one.trainer.set_clients(False)
    until(lambda: one.trainer.state is TrainerState.ALONE)
    one.trainer.set_controls(Controls(training=False))
    until(lambda: one.trainer.state is TrainerState.PAUSED)


def test_a_killed_learner_comes_back_from_its_newest_state(stage: Callable[..., Stage]) -> None:
    one = stage()
    one.trainer.start()
    one.trains_on()
    kept = one.trainer.weights().result(30)  # a heartbeat: from here it will go on
    one.trains_on()
    first = one.pid
    os.kill(first, signal.SIGKILL)
    asked = one.trainer.weights()  # answered, by whichever process
    assert asked.result(60).step >= kept.step
    until(lambda: len(one.falls) == 1)
    assert "the learner of agent test fell: ended by signal 9" in one.falls[0]
    assert f"started again from step {kept.step:,}" in one.falls[0]
    assert "1 of at most 3 times in 10 minutes" in one.falls[0]
    until(lambda: one.pid != first and one.trainer.state is TrainerState.TRAINING)
    one.trains_on()
    assert not Path(f"/proc/{first}").exists()
    assert one.trainer.stop(30)
    assert one.trainer.report.steps > kept.step
    assert one.deaths == []


def test_a_learner_that_keeps_falling_stays_down(
    stage: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = stage()
    monkeypatch.setattr(sys, "executable", "/bin/false")  # a process that falls at once
    one.trainer.start()
    until(lambda: bool(one.deaths))
    assert len(one.falls) == 3
    (death,) = one.deaths
    assert isinstance(death, LearnerError)
    assert "ended with code 1" in str(death) and "4 times in 10 minutes" in str(death)
    assert one.trainer.state is TrainerState.DEAD
    # What was there is not lost.
    assert one.trainer.learner_state().result(5)["counters"]["steps"] == 0


def test_falls_long_ago_do_not_count() -> None:
    falls = Falls(600.0)
    assert [falls.count(now) for now in (0, 250, 500, 600, 601, 1300)] == [1, 2, 3, 4, 4, 1]


def test_a_learner_that_raises_is_quoted(stage: Callable[..., Stage], tmp_path: Path) -> None:
    one = stage()
    one.trainer._plan["recipe"]["rules"]["batch_size"] = -1
    one.trainer.start()
    until(lambda: bool(one.falls))
    assert "fell: ValueError: " in one.falls[0]
    assert str(tmp_path / process_module.LOG) in one.falls[0]
    assert "Traceback" in (tmp_path / process_module.LOG).read_text()  # where, for a person


def test_stop_while_it_starts(stage: Callable[..., Stage]) -> None:
    one = stage()
    one.trainer.start()
    assert one.trainer.stop(60)
    assert one.trainer.learner_state().result(0)["counters"]["steps"] >= 0
    assert one.deaths == [] and one.falls == []


def test_a_learner_that_hangs_is_killed_at_the_end(stage: Callable[..., Stage]) -> None:
    one = stage()
    one.trainer.start()
    one.trains_on()
    kept = one.trainer.weights().result(30)
    os.kill(one.pid, signal.SIGSTOP)
    assert one.trainer.stop(0.2)  # it has ended, one way or the other
    assert one.trainer._process is not None and one.trainer._process.poll() == -signal.SIGKILL
    assert one.trainer.learner_state().result(5)["counters"]["steps"] == kept.step
    (told,) = one.falls
    assert "fell: it did not end within 0.2 s and was killed" in told
    assert told.endswith("while it was ending; what it kept last is saved")


def cpu_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
