"""The training thread: when it trains, when it rests, and how it dies."""

from __future__ import annotations

import itertools
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

from server.controls import Controls
from server.learn.learner import Report
from server.learn.replay import Frames, Layout, Replay
from server.train.thread import TrainingThread
from server.train.trainer import TrainerState

BATCH = 10


class CountingLearner:
    """Counts instead of learning; everything else of the thread is real."""

    def __init__(self) -> None:
        self.report = Report()
        self.broken: Exception | None = None
        self.empty = False
        self.step_s = 0.0005  # as a real step does, let others run
        self.stamps: list[tuple[float, float]] = []  # when each step began and ended
        self.calls = 0
        self.threads: set[int] = set()
        self.steered: list[Controls] = []

    def steer(self, controls: Controls) -> None:
        self.steered.append(controls)

    def train(self, between_steps: Callable[[], None]) -> bool:
        self.calls += 1
        self.threads.add(threading.get_ident())
        if self.broken is not None:
            raise self.broken
        if self.empty:
            return False
        self.step()
        if self.step_s > 0.01:  # a sample of two steps
            between_steps()
            self.step()
        return True

    def step(self) -> None:
        began_s = time.monotonic()
        time.sleep(self.step_s)
        self.stamps.append((began_s, time.monotonic()))
        report = self.report
        self.report = replace(
            report, steps=report.steps + 1, transitions=report.transitions + BATCH
        )


class Stage:
    """A trainer with all that it needs, and a hand to feed it."""

    def __init__(
        self,
        *,
        min_replay: int = 20,
        ratio: float = 0.0,
        training: bool = True,
        niceness: int = 0,
        least_rest_s: float = 0.0,
    ) -> None:
        self.learner = CountingLearner()
        self.replay = Replay.in_memory(Layout(4096, "uint8", 1, 1, 0))
        self.deaths: list[BaseException] = []
        self.trainer = TrainingThread(
            name="test",
            learner=self.learner,  # type: ignore[arg-type]
            replay=self.replay,
            min_replay=min_replay,
            max_replay_ratio=ratio,
            controls=Controls(training=training),
            on_death=self.deaths.append,
            niceness=niceness,
            least_rest_s=least_rest_s,
        )
        self.trainer.start()

    def feed(self, count: int) -> None:
        for _ in range(count):
            nothing = np.zeros((1, 1), np.uint8)
            self.replay.append(
                Frames(nothing, nothing, nothing[:, :0], [0.0], [0], nothing[0], 0, [-1])
            )
            self.trainer.frames_arrived(self.replay.head)


@pytest.fixture
def stages() -> Iterator[Callable[..., Stage]]:
    made: list[Stage] = []

    def make(**settings: object) -> Stage:
        made.append(Stage(**settings))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for stage in made:
        assert stage.trainer.stop(5.0)


def until(holds: Callable[[], bool]) -> None:
    """Wait for something that must come to pass."""
    deadline = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.002)


def rests(stage: Stage) -> bool:
    """Say whether the thread does nothing at all: it sleeps, it does not poll."""
    calls = stage.learner.calls
    time.sleep(0.05)
    return stage.learner.calls == calls


def test_it_waits_for_enough_frames_and_then_trains(stages: Callable[..., Stage]) -> None:
    stage = stages(min_replay=20)
    stage.feed(19)
    assert rests(stage)
    assert stage.learner.calls == 0
    assert stage.trainer.state is TrainerState.COLLECTING
    stage.feed(1)
    until(lambda: stage.learner.report.steps > 3)
    assert stage.trainer.state is TrainerState.TRAINING


def test_it_gives_way_until_it_is_told_otherwise(stages: Callable[..., Stage]) -> None:
    stage = stages(min_replay=2)
    stage.feed(2)
    until(lambda: stage.learner.calls > 3)
    stage.trainer.set_share(0.0)
    until(lambda: stage.trainer.state is TrainerState.YIELDING)
    assert rests(stage)
    assert stage.trainer.call(lambda: 7).result(10) == 7  # it still hears requests
    stage.trainer.set_share(0.5)
    calls = stage.learner.calls
    until(lambda: stage.learner.calls > calls + 3)


def test_slow_steps_use_no_more_than_their_share(stages: Callable[..., Stage]) -> None:
    stage = stages(min_replay=2)
    stage.learner.step_s = 0.25
    stage.trainer.set_share(0.25)
    stage.feed(2)
    until(lambda: len(stage.learner.stamps) == 4)  # within samples and between them
    for (began_s, ended_s), (next_s, _) in itertools.pairwise(stage.learner.stamps):
        assert next_s - ended_s >= 3 * (ended_s - began_s) - 0.001


def test_short_rests_add_up(stages: Callable[..., Stage]) -> None:
    """Each step of 5 ms owes 5 ms: ten of them are taken at once."""
    stage = stages(min_replay=2, least_rest_s=0.05)
    stage.learner.step_s = 0.005
    stage.trainer.set_share(0.5)
    stage.feed(2)
    until(lambda: len(stage.learner.stamps) > 60)
    stamps = stage.learner.stamps[:60]
    gaps = [later - ended for (_, ended), (later, _) in itertools.pairwise(stamps)]
    assert statistics.median(gaps) < 0.04  # most steps follow at once
    worked_s = sum(ended - began for began, ended in stamps)
    assert sum(gaps) > 0.5 * worked_s


def test_a_rest_is_owed_across_short_waits_for_frames(stages: Callable[..., Stage]) -> None:
    """Whoever waits for frames for a moment has not rested for all that it did."""
    stage = stages(min_replay=2, ratio=1.0, least_rest_s=0.05)
    stage.learner.step_s = 0.005
    stage.trainer.set_share(0.2)
    stage.feed(2)

    def fed() -> bool:
        if stage.trainer.state is TrainerState.LIMITED:
            stage.feed(BATCH)  # what the next sample needs
        return len(stage.learner.stamps) >= 40

    until(fed)
    stamps = stage.learner.stamps[:40]
    worked_s = sum(ended - began for began, ended in stamps)
    assert stamps[-1][1] - stamps[0][0] > 2.5 * worked_s


@pytest.mark.parametrize("share", [0.001, 0.0])
def test_a_long_pause_ends_when_there_is_a_reason(
    stages: Callable[..., Stage], share: float
) -> None:
    """Five minutes, or for ever: longer than anybody here waits."""
    stage = stages(min_replay=2)
    stage.learner.step_s = 0.3
    stage.feed(2)
    until(lambda: stage.learner.calls == 1)
    stage.trainer.set_share(share)
    until(lambda: stage.learner.report.steps == 1)
    assert stage.trainer.call(lambda: stage.learner.report.steps).result(10) == 1
    stage.trainer.set_share(0.5)
    until(lambda: stage.learner.report.steps == 3)
    stage.trainer.set_share(share)
    stage.trainer.set_controls(Controls(training=False))
    until(lambda: stage.trainer.state is TrainerState.PAUSED)
    stage.trainer.set_controls(Controls(training=True))
    stage.trainer.set_share(0.001)  # and a stop, at the end of the test


@pytest.mark.skipif(sys.platform != "linux", reason="niceness is the whole process's there")
def test_a_nice_trainer_leaves_other_threads_as_they_are(stages: Callable[..., Stage]) -> None:
    stage = stages(niceness=3)
    ours = os.getpriority(os.PRIO_PROCESS, 0)
    its = stage.trainer.call(lambda: os.getpriority(os.PRIO_PROCESS, 0)).result(10)
    assert its == min(19, ours + 3)
    assert os.getpriority(os.PRIO_PROCESS, 0) == ours


def test_one_thread_and_not_ours(stages: Callable[..., Stage]) -> None:
    stage = stages(min_replay=2)
    stage.feed(2)
    until(lambda: stage.learner.calls > 10)
    assert len(stage.learner.threads) == 1
    assert threading.get_ident() not in stage.learner.threads


def test_the_switch(stages: Callable[..., Stage]) -> None:
    stage = stages(min_replay=2, training=False)
    stage.feed(50)
    assert rests(stage)
    assert stage.trainer.state is TrainerState.PAUSED
    stage.trainer.set_controls(Controls(training=True))
    until(lambda: stage.learner.report.steps > 3)
    stage.trainer.set_controls(Controls(training=False))
    until(lambda: rests(stage))
    assert stage.trainer.state is TrainerState.PAUSED


def test_the_replay_ratio_bounds_it_exactly(stages: Callable[..., Stage]) -> None:
    stage = stages(min_replay=20, ratio=2.0)
    stage.feed(20)
    # A sample of 10 transitions is allowed as long as all before it are paid for by frames.
    until(lambda: stage.learner.report.transitions == BATCH and rests(stage))
    assert stage.trainer.state is TrainerState.LIMITED
    stage.feed(50)
    until(lambda: stage.learner.report.transitions >= 100 and rests(stage))
    assert stage.learner.report.transitions == 2 * 50 + BATCH


def test_the_newest_live_settings_reach_the_learner(stages: Callable[..., Stage]) -> None:
    stage = stages(min_replay=2, training=False)
    until(lambda: stage.learner.steered == [Controls(training=False)])
    chosen = Controls(n_step=5, learning_rate=0.1)
    stage.trainer.set_controls(chosen)
    until(lambda: stage.learner.steered[-1] is chosen)


def test_a_new_limit_counts_from_now_on(stages: Callable[..., Stage]) -> None:
    stage = stages(min_replay=20)
    stage.feed(100)
    until(lambda: stage.learner.report.transitions > 5000)
    stage.trainer.set_controls(Controls(max_replay_ratio=2.0))
    until(lambda: stage.trainer.state is TrainerState.LIMITED and rests(stage))
    before = stage.learner.report.transitions
    stage.feed(50)
    until(lambda: stage.learner.report.transitions >= before + 2 * 50 and rests(stage))
    assert stage.learner.report.transitions == before + 2 * 50
    stage.trainer.set_controls(Controls(max_replay_ratio=0.0))
    until(lambda: stage.learner.report.transitions > before + 2000)


def test_an_emptied_replay_is_waited_for_again(stages: Callable[..., Stage]) -> None:
    stage = stages(min_replay=20)
    stage.feed(20)
    until(lambda: stage.learner.report.steps > 3)
    stage.replay.flush()
    until(lambda: rests(stage))
    assert stage.trainer.state is TrainerState.COLLECTING
    steps = stage.learner.report.steps
    stage.feed(20)
    until(lambda: stage.learner.report.steps > steps)


def test_it_rests_while_nobody_plays(stages: Callable[..., Stage]) -> None:
    stage = stages(min_replay=2)
    stage.feed(10)
    until(lambda: stage.learner.report.steps > 3)
    stage.trainer.set_clients(False)
    until(lambda: rests(stage))
    assert stage.trainer.state is TrainerState.ALONE
    stage.trainer.set_clients(True)
    steps = stage.learner.report.steps
    until(lambda: stage.learner.report.steps > steps)


def test_a_replay_without_transitions_is_not_polled(stages: Callable[..., Stage]) -> None:
    stage = stages(min_replay=2)
    stage.learner.empty = True
    stage.feed(10)
    until(lambda: stage.learner.calls >= 1 and rests(stage))
    assert stage.trainer.state is TrainerState.COLLECTING
    stage.learner.empty = False
    stage.feed(200)
    until(lambda: stage.learner.report.steps > 3)


@pytest.mark.parametrize("training", [True, False])
def test_calls_are_carried_out_by_the_owner(stages: Callable[..., Stage], training: bool) -> None:
    stage = stages(min_replay=2, training=training)
    stage.feed(5)
    owner = stage.trainer.call(threading.get_ident).result(5)
    assert owner != threading.get_ident()
    with pytest.raises(KeyError, match="missing"):
        stage.trainer.call(lambda: {}["missing"]).result(5)


def test_a_caller_that_gave_up_does_not_kill_the_trainer(stages: Callable[..., Stage]) -> None:
    stage = stages(min_replay=2)
    blocked, go = threading.Event(), threading.Event()
    stage.trainer.call(lambda: (blocked.set(), go.wait(5)))
    assert blocked.wait(5)
    given_up = stage.trainer.call(lambda: "too late")
    assert given_up.cancel()
    go.set()
    assert stage.trainer.call(lambda: "alive").result(5) == "alive"
    assert stage.deaths == []


def test_a_death_is_reported_and_calls_still_work(stages: Callable[..., Stage]) -> None:
    stage = stages(min_replay=2)
    stage.learner.broken = ArithmeticError("broken for the test")
    stage.feed(5)
    until(lambda: bool(stage.deaths))
    assert stage.deaths == [stage.learner.broken]
    assert stage.trainer.error is stage.learner.broken
    assert stage.trainer.state is TrainerState.DEAD
    until(lambda: not stage.trainer._thread.is_alive())
    assert stage.trainer.call(lambda: "state").result(5) == "state"


def test_no_request_falls_between_the_thread_and_its_end(stages: Callable[..., Stage]) -> None:
    for _ in range(50):
        stage = stages(min_replay=2)
        answers = []
        asker = threading.Thread(
            target=lambda stage=stage, answers=answers: answers.extend(  # type: ignore[misc]
                stage.trainer.call(lambda: 1).result(5) for _ in range(20)
            )
        )
        asker.start()
        stage.trainer.stop(5.0)
        asker.join(10)
        assert len(answers) == 20


def test_many_wake_ups_and_none_is_lost(stages: Callable[..., Stage]) -> None:
    """Every frame pays for one sample: if a wake-up were lost, the last would stay away."""
    stage = stages(min_replay=2, ratio=float(BATCH))
    stage.feed(2)
    until(lambda: stage.learner.report.steps == 1)
    for number in range(300):
        stage.feed(1)
        until(lambda number=number: stage.learner.report.steps == number + 2)  # type: ignore[misc]
