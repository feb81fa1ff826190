"""The courier: all frames arrive once, whatever becomes of the learner and of its answers."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from server.learn.intake import Intake, Shipment
from server.learn.network import Weights
from server.learn.replay import Frames, Layout, Replay
from server.learn.share import RUN
from server.train import courier as courier_module
from server.train.courier import Ack, Courier, LostError
from server.train.trainer import TrainerState

LAYOUT = Layout(capacity=65536, observation="float32", values=2, heads=1, controls=0)


class Far:
    """A learner's end of the line, which may fail before or after it has done what was asked."""

    def __init__(self) -> None:
        self.dice = random.Random(1)
        self.faults = 0.0
        self.fault: type[Exception] = LostError
        self.version = 1
        self.begin("first")

    def begin(self, life: str) -> None:
        """Live again, knowing nothing."""
        self.life, self.ring = life, Replay.in_memory(LAYOUT)
        self.intake = Intake(self.ring)

    def reach(self, rank: int = 0) -> Far:
        self.fail("nobody there")
        return self

    def hear(self, stream: str, head: int) -> Ack:
        self.fail("no question arrived")
        return Ack(self.life, self.intake.resume(stream, head), self.version)

    def take(self, stream: str, life: str, shipment: Shipment) -> Ack:
        self.fail("no shipment arrived")
        if life == self.life:
            self.intake.take(stream, shipment)
        self.fail("no answer came back")
        return Ack(self.life, self.intake.expected(stream), self.version)

    def weights(self) -> Weights:
        self.fail("no weights came")
        return Weights(self.version, 0, 0.0, np.zeros(1, np.float32))

    def fail(self, how: str) -> None:
        if self.dice.random() < self.faults:
            raise self.fault(how)


class Stage:
    """A ring that is written to, a courier, and the other end."""

    def __init__(self) -> None:
        self.replay, self.far = Replay.in_memory(LAYOUT), Far()
        self.played: list[int] = []
        self.told: list[str] = []
        self.begin()

    def begin(self) -> None:
        """Ship what is in the ring from now on."""
        self.courier = Courier(
            name="test",
            stream="ring",
            replay=self.replay,
            weights=Weights(0, 0, 0.0, np.zeros(1, np.float32)),
            reach=self.far.reach,
            on_weights=lambda weights: self.played.append(weights.version),
            tell=self.told.append,
        )
        self.courier.start()

    def play(self, frames: int) -> None:
        for _ in range(frames):
            head = self.replay.head
            shown = np.array([[head, 0]], np.float32)
            nothing = np.zeros((1, 0), np.float32)
            self.replay.append(Frames(shown, [[0]], nothing, [1.0], [0], [0], 1, [head - 1]))

    def arrived(self) -> bool:
        return self.far.ring.head == self.replay.head

    def check(self) -> None:
        ring, head = self.far.ring, self.replay.head
        assert ring.column("observation")[:head, 0].tolist() == list(range(head))
        assert ring.linked(np.arange(head - 1)).all()
        ring.check_valid()


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.setattr(courier_module, "SHIP_S", 0.002)
    monkeypatch.setattr(courier_module, "_IDLE_S", 0.01)
    stage = Stage()
    yield stage
    assert stage.courier.stop(5.0)
    assert not [t.name for t in threading.enumerate() if t.name.startswith("courier-")]


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.002)


def test_every_frame_arrives_once_however_often_the_line_fails(stage: Stage) -> None:
    stage.far.faults = 0.3
    for _ in range(60):
        stage.play(random.Random(2).randrange(50))
        time.sleep(0.004)
    until(stage.arrived)
    stage.check()
    assert stage.far.intake.repeated == 0  # it asks before it sends again
    until(lambda: stage.courier.shipping.backlog == 0)  # the last answer may be lost, too
    assert stage.courier.shipping.lost == 0
    assert stage.courier.shipping.falls > 0
    assert stage.courier.state is TrainerState.ELSEWHERE


def test_a_new_learner_gets_all_that_the_ring_holds_and_its_weights_are_fetched(
    stage: Stage,
) -> None:
    stage.play(500)
    until(stage.arrived)
    until(lambda: stage.played[-1:] == [1])
    stage.far.version = 7
    until(lambda: stage.played[-1] == 7)
    stage.far.begin("second")
    stage.play(100)
    until(stage.arrived)
    stage.check()
    until(lambda: len(stage.played) >= 3)  # the same number, but another learner's


def test_while_the_learner_is_away_frames_wait_and_only_overwritten_ones_are_lost(
    stage: Stage,
) -> None:
    stage.far.faults = 1.0
    stage.play(1000)
    until(lambda: stage.courier.problem == "nobody there")
    assert stage.courier.shipping.backlog == 1000
    stage.play(LAYOUT.capacity)
    oldest = stage.replay.oldest
    stage.far.faults = 0.0
    until(lambda: stage.courier.shipping.backlog == 0)
    assert stage.courier.shipping.lost == oldest
    assert stage.far.ring.head == stage.replay.head - oldest
    stage.far.ring.check_valid()


def test_an_error_that_nobody_foresaw_is_told_once_and_shipping_goes_on_trying(
    stage: Stage,
) -> None:
    stage.far.fault, stage.far.faults = ZeroDivisionError, 1.0
    stage.play(100)
    until(lambda: stage.courier.problem == "ZeroDivisionError: nobody there")
    time.sleep(0.05)  # many tries
    assert stage.told == ["agent test: frames are not shipped: ZeroDivisionError: nobody there"]
    stage.far.faults = 0.5
    until(stage.arrived)
    until(lambda: stage.courier.shipping.falls > 0)  # after they had spoken, too
    stage.far.faults = 0.0
    until(lambda: stage.courier.problem == "")
    stage.check()
    until(lambda: stage.played != [])


def test_frames_of_a_ring_that_came_back_with_fewer_are_shipped_as_new_ones(stage: Stage) -> None:
    stage.play(500)
    until(stage.arrived)
    assert stage.courier.stop(5.0)
    # A power failure: of the file, only what came earlier was on the disk.
    lost, stage.replay = stage.replay, Replay.in_memory(LAYOUT)
    stage.play(300)
    stage.far.faults = 1.0
    stage.begin()
    stage.play(300)  # more than were lost, before the learner is there
    stage.far.faults = 0.0
    until(lambda: stage.courier.shipping.backlog == 0)
    shown = stage.far.ring.column("observation")[: stage.far.ring.head, 0].tolist()
    assert shown == [*range(lost.head), *range(300, 600)]
    stage.far.ring.check_valid()
    stage.play(50)  # from here on all is as ever
    until(lambda: stage.far.ring.head == 500 + 350)
    assert (stage.courier.shipping.lost, stage.far.intake.repeated) == (0, 0)


def test_several_learners_get_each_frame_once_among_them_and_weights_come_from_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(courier_module, "SHIP_S", 0.002)
    stage = Stage()
    assert stage.courier.stop(5.0)
    ends = [Far(), Far(), Far()]
    for end in ends:
        end.faults = 0.2
    ends[1].version = 99
    courier = Courier(
        name="test",
        stream="ring",
        replay=stage.replay,
        weights=Weights(0, 0, 0.0, np.zeros(1, np.float32)),
        reach=lambda rank: ends[rank].reach(),
        on_weights=lambda weights: stage.played.append(weights.version),
        tell=stage.told.append,
        learners=3,
        gateway=1,
    )
    courier.start()
    for _ in range(10):
        stage.play(RUN // 2 - 7)
        time.sleep(0.01)
    head = stage.replay.head
    until(lambda: sum(end.ring.head for end in ends) == head)
    until(lambda: courier.shipping.backlog == 0)
    taken = [end.ring.column("observation")[: end.ring.head, 0].astype(int) for end in ends]
    assert sorted(np.concatenate(taken).tolist()) == list(range(head))
    for rank, (end, frames) in enumerate(zip(ends, taken, strict=True)):
        assert {(number // RUN + 1) % 3 for number in frames.tolist()} == {rank}
        # Cut where a run ends, and nowhere else.
        linked = end.ring.linked(np.arange(len(frames) - 1))
        assert linked.tolist() == (np.diff(frames) == 1).tolist()
        end.ring.check_valid()
        assert end.intake.missing == 0
    assert courier.shipping.lost == 0
    # One of them is lost, and comes back with nothing: it alone gets its share again.
    ends[2].begin("second")
    until(lambda: ends[2].ring.head == len(taken[2]))
    assert [ends[rank].ring.head for rank in (0, 1)] == [len(taken[0]), len(taken[1])]
    assert courier.stop(5.0)
    assert set(stage.played) == {1}
