"""Several learners that step together: the same weights everywhere, those of the joint batch."""

from __future__ import annotations

import contextlib
import functools
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import torch
from game import play, played, recipe, until

from server.controls import Controls
from server.learn import group as group_module
from server.learn.group import Group, Place, go_to, open_place
from server.learn.learner import Learner
from server.learn.recipe import Recipe
from server.learn.replay import Replay
from server.train.member import Member
from server.train.thread import TrainingThread
from server.train.trainer import TrainerState

HOST = "127.0.0.1"


def _enough(replay: Replay) -> bool:
    return replay.size >= 100


def opened() -> tuple[Any, Place]:
    """Listen for others, on loopback only."""
    door = socket.create_server((HOST, 0))
    place = Place(HOST, door.getsockname()[1])
    return open_place(place, door.detach()), place


class Band:
    """Members in threads of this process; all but the first follow."""

    def __init__(self, asked: Recipe, size: int, frames: list[int]) -> None:
        store, place = opened()
        self.learners: list[Learner] = []
        self.members: list[Member] = []
        for rank in range(size):
            find: Callable[[], Any] = (lambda: store) if rank == 0 else (lambda: go_to(place))
            group = Group(rank, size, HOST, find)
            replay = played(frames[rank])
            learner = asked.for_rank(rank).make(replay, group.clock)
            if self.learners:
                learner.set_state(self.learners[0].get_state())
            self.learners.append(learner)
            self.members.append(Member(learner, group, functools.partial(_enough, replay)))
        self._threads = [
            threading.Thread(target=self._follow, args=(member,), daemon=True)
            for member in self.members[1:]
        ]
        for thread in self._threads:
            thread.start()

    def _follow(self, member: Member) -> None:
        with contextlib.suppress(KeyError):  # of the end
            member.follow()

    def train(self, samples: int = 1) -> None:
        for _ in range(samples):
            assert self.members[0].train(lambda: None)

    def rest(self) -> None:
        """Wait until all of them are done with what they were told."""
        self.members[0]._all("rest")

    def are_the_same(self) -> None:
        """Compare all that training changes, bit for bit."""
        self.rest()
        first, *others = self.learners
        for other in others:
            assert first._flat.equal(other._flat)
            assert first._target_flat.equal(other._target_flat)
            for name, moment in first._moments.items():
                assert moment.equal(other._moments[name]), name
            assert first.report.steps == other.report.steps
            assert first.rules == other.rules

    def end(self) -> None:
        self.members[0]._group.tell({"deed": "no such deed"})
        for thread in self._threads:
            thread.join(20)
            assert not thread.is_alive()


@pytest.fixture
def bands() -> Iterator[Callable[..., Band]]:
    made: list[Band] = []

    def make(asked: Recipe, size: int, frames: list[int] | None = None) -> Band:
        made.append(Band(asked, size, frames or [300 + 50 * rank for rank in range(size)]))
        return made[-1]

    yield make
    for band in made:
        band.end()


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("priorities", [False, True])
@pytest.mark.parametrize("noisy", [False, True])
def test_all_weights_and_moments_stay_the_same_bit_for_bit(
    bands: Callable[..., Band], size: int, priorities: bool, noisy: bool
) -> None:
    band = bands(recipe(priorities=priorities, noisy=noisy, target_max_age_s=1e-6), size)
    start = band.learners[0]._flat.clone()
    band.train(12)
    band.are_the_same()
    assert not start.equal(band.learners[0]._flat)
    report = band.members[0].report
    assert report.steps == 48
    assert report.transitions == 48 * 8 * size  # of all of them
    assert report.spent.wait_s > 0


def test_a_step_together_is_one_learners_step_on_the_joint_batch(
    bands: Callable[..., Band],
) -> None:
    asked = recipe(steps_per_sample=1)
    band = bands(asked, 2)
    alone = replace(asked, rules=replace(asked.rules, gradient_accumulation=2)).make(played(300))
    alone.set_state(band.learners[0].get_state())
    taken: list[Any] = [None, None]
    for rank, learner in enumerate(band.learners):

        def gather(rank: int = rank, real: Any = learner.gather) -> Any:
            taken[rank] = real()
            return taken[rank]

        learner.gather = gather  # type: ignore[method-assign]
    for _ in range(20):
        band.train()
        (first,), (second,) = taken
        gradient = alone.step(first + second)
        assert gradient.loss == pytest.approx(band.learners[0].report.loss, rel=1e-5)
        assert alone._flat.allclose(band.learners[0]._flat, rtol=1e-5, atol=1e-6)
    assert alone.report.transitions == band.learners[0].report.transitions


def test_what_the_first_is_told_holds_for_all(bands: Callable[..., Band]) -> None:
    band = bands(recipe(target_update="hard"), 2)
    leader, follower = band.learners
    band.members[0].steer(Controls(steps_per_sample=7, n_step=2, learning_rate=0.25))
    band.train()
    assert leader.report.steps == 7
    band.are_the_same()
    assert follower.rules.n_step == 2 and follower.learning_rate == 0.25
    band.train()
    assert not follower._target_flat.equal(follower._flat)
    band.members[0].refresh_target()
    band.rest()
    assert follower._target_flat.equal(follower._flat)


def test_too_few_frames_of_one_hold_all(bands: Callable[..., Band]) -> None:
    band = bands(recipe(), 2, [300, 50])
    assert not band.members[0].train(lambda: None)
    assert [learner.report.steps for learner in band.learners] == [0, 0]


def test_a_bad_gradient_of_one_is_skipped_by_all_and_all_go_back_together(
    bands: Callable[..., Band],
) -> None:
    band = bands(recipe(max_bad_steps=4), 2)
    band.train(3)
    band.members[0].get_state()  # what is good from here on
    good = band.learners[0]._flat.clone()
    band.train(2)
    follower = band.learners[1]
    real = follower.compute

    def spoilt(parts: Any) -> Any:
        gradient = real(parts)
        gradient.flat[3] = torch.nan
        return gradient

    follower.compute = spoilt  # type: ignore[method-assign]
    band.train()
    band.rest()
    assert [learner.report.skipped for learner in band.learners] == [4, 4]
    assert [learner.report.restored for learner in band.learners] == [1, 1]
    assert good.equal(band.learners[0]._flat)
    follower.compute = real  # type: ignore[method-assign]
    band.train(2)
    band.are_the_same()


def test_where_processors_round_otherwise_a_checkpoint_makes_all_the_same_again(
    bands: Callable[..., Band],
) -> None:
    band = bands(recipe(), 2)
    band.train(3)
    band.learners[1]._flat.add_(1e-4)
    band.learners[1]._moments["exp_avg"].add_(1e-4)
    band.members[0].get_state()
    band.train(3)
    band.are_the_same()


def test_its_thread_takes_the_first_for_a_lone_learner(
    bands: Callable[..., Band], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.train.member.LONGEST_SILENCE_S", 0.02)
    band = bands(recipe(), 2, [300, 90])
    deaths: list[BaseException] = []
    thread = TrainingThread(
        name="test",
        learner=band.members[0],
        replay=band.learners[0]._sampler._replay,
        min_replay=100,
        max_replay_ratio=0.0,
        controls=Controls(training=False),
        on_death=deaths.append,
        on_progress=band.members[0].breathe,
        longest_rest_s=0.02,
        learners=2,
    )
    thread.start()
    until(lambda: thread.state is TrainerState.PAUSED)
    heard = band.members[1]._group.clock
    before = heard()
    until(lambda: heard() > before + 0.1)  # it is told that the first lives, all along
    thread.set_controls(Controls())
    until(lambda: thread.state is TrainerState.COLLECTING)  # the other has too few
    play(band.learners[1]._sampler._replay, 20)
    until(lambda: thread.report.steps > 20)
    state = thread.learner_state().result(20)
    assert int(state["tensors"]["optimizer.step"]) == state["counters"]["steps"]
    assert thread.stop(20)
    assert deaths == []
    band.are_the_same()


_FOLLOWER = """
import sys; sys.path[:0] = [".", "tests/train"]
from game import played, recipe
from server.learn.group import Group, Place, go_to
from server.train.member import Member
group = Group(1, 2, "127.0.0.1", lambda: go_to(Place("127.0.0.1", int(sys.argv[1]))))
learner = recipe().for_rank(1).make(played(300), group.clock)
learner._flat.zero_()
Member(learner, group, lambda: True).follow()
"""


def test_a_killed_member_is_noticed_at_once_and_a_silent_one_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for number in (signal.SIGKILL, signal.SIGSTOP):
        monkeypatch.setattr(group_module, "_ANSWER_S", timedelta(seconds=60))
        if number == signal.SIGSTOP:
            monkeypatch.setattr(group_module, "_ANSWER_S", timedelta(seconds=2))
        store, place = opened()
        other = subprocess.Popen([sys.executable, "-c", _FOLLOWER, str(place.port)])
        try:
            group = Group(0, 2, HOST, lambda store=store: store)
            member = Member(recipe().make(played(300), group.clock), group, lambda: True)
            member.get_state()  # makes both the same
            assert member.train(lambda: None)
            other.send_signal(number)
            began = time.monotonic()
            with pytest.raises(RuntimeError):
                for _ in range(1000):
                    member.train(lambda: None)
            assert time.monotonic() - began < 20
        finally:
            other.kill()
            other.wait()
