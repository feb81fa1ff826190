"""Several training threads: one is like a lone thread, four neither block nor tear anything."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from game import played, recipe, until

from server.controls import Controls
from server.learn.learner import Learner
from server.train.lock import ReadWriteLock
from server.train.thread import TrainingThread
from server.train.trainer import TrainerState
from server.train.workers import TrainingWorkers

STEPS = 10_000
TORN_STEPS = 4_000


@pytest.fixture
def deaths() -> Iterator[list[BaseException]]:
    found: list[BaseException] = []
    yield found
    assert found == []


def make(deaths: list[BaseException], learner: Learner, workers: int) -> TrainingWorkers:
    return TrainingWorkers(
        name="test",
        learner=learner,
        workers=workers,
        replay=learner._sampler._replay,
        min_replay=100,
        max_replay_ratio=0.0,
        controls=Controls(),
        on_death=deaths.append,
    )


@pytest.mark.parametrize("priorities", [False, True])
@pytest.mark.parametrize("noisy", [False, True])
def test_one_worker_is_bit_for_bit_a_thread(
    deaths: list[BaseException], priorities: bool, noisy: bool
) -> None:
    asked = recipe(priorities=priorities, noisy=noisy, gradient_accumulation=2)
    alone, worked = asked.make(played(300)), asked.make(played(300))
    thread = TrainingThread(
        name="test",
        learner=alone,
        replay=alone._sampler._replay,
        min_replay=100,
        max_replay_ratio=0.0,
        controls=Controls(training=False),
        on_death=deaths.append,
    )
    (worker,) = make(deaths, worked, 1)._workers
    for _ in range(30):
        assert thread._learner.train(lambda: None) and worker.train(lambda: None)
    ours, theirs = alone.get_state(), worked.get_state()
    assert ours["counters"] == theirs["counters"]
    assert ours["counters"]["steps"] == 120
    for name, tensor in ours["tensors"].items():
        assert tensor.equal(theirs["tensors"][name]), name
    assert alone.report.loss == worked.report.loss


def test_four_workers_neither_block_nor_tear_anything(deaths: list[BaseException]) -> None:
    learner = recipe(priorities=True, steps_per_sample=2).make(played(300))
    trainer = make(deaths, learner, 4)
    asked = threading.Event()
    seen: list[int] = []

    def look() -> None:
        """Ask for weights and states all along, as heartbeats and checkpoints do."""
        while not asked.is_set():
            weights = trainer.weights().result(60)
            state = trainer.learner_state().result(60)
            seen.append(state["counters"]["steps"])
            assert np.isfinite(weights.flat).all()
            # Whole: the optimizer counts its steps in a tensor of its own.
            assert int(state["tensors"]["optimizer.step"]) == state["counters"]["steps"]

    trainer.start()
    looker = threading.Thread(target=look)
    looker.start()
    until(lambda: trainer.report.steps >= STEPS or bool(deaths))
    asked.set()
    looker.join(60)
    assert not looker.is_alive()
    assert trainer.stop(60)
    assert deaths == []
    report = trainer.report
    assert trainer.state is TrainerState.STOPPED
    assert report.steps >= STEPS and report.skipped == 0
    assert report.transitions == report.steps * 8
    assert seen == sorted(seen) and len(seen) > 1
    state = trainer.learner_state().result(5)
    assert int(state["tensors"]["optimizer.step"]) == report.steps
    assert all(tensor.isfinite().all() for tensor in state["tensors"].values())
    spent = report.spent
    assert min(spent.sample_s, spent.forward_s, spent.backward_s, spent.optimise_s) > 0
    assert spent.sync_s > 0 and spent.wait_s > 0


@pytest.mark.parametrize("locked", [True, False])
def test_no_copy_mixes_the_weights_of_two_steps(
    deaths: list[BaseException], monkeypatch: pytest.MonkeyPatch, locked: bool
) -> None:
    """Each step sets all weights to its number, bit by bit: whoever looks must see one number.

    Without the read lock somebody sees two, or this test would show nothing.
    """
    if not locked:
        monkeypatch.setattr(ReadWriteLock, "read", lambda self: contextlib.nullcontext())
    learner = recipe().make(played(300))
    trainer = make(deaths, learner, 4)
    whole, torn = [], []

    def look(*tensors: torch.Tensor) -> None:
        numbers = torch.cat([tensor.flatten() for tensor in tensors]).unique()
        (whole if len(numbers) == 1 else torn).append(numbers)

    def apply(gradient: object) -> None:
        step = learner.report.steps + 1
        for part in (*learner._flat.chunk(2), *learner._target_flat.chunk(2)):
            part.fill_(step)
            time.sleep(0)  # somebody else's turn: who keeps to the lock waits
        learner.report = replace(learner.report, steps=step)

    def compute(replica: Learner, parts: object) -> None:
        look(replica._flat, replica._target_flat)

    def nothing(*_: object) -> None:
        pass

    learner._flat.zero_()
    learner._target_flat.zero_()
    for name, instead in (("apply", apply), ("learned", nothing), ("note_worth", nothing)):
        monkeypatch.setattr(learner, name, instead)
    for worker in trainer._workers:
        replica = worker._replica
        monkeypatch.setattr(replica, "compute", functools.partial(compute, replica))
    trainer.start()
    while learner.report.steps < TORN_STEPS and not deaths:
        look(torch.from_numpy(trainer.weights().result(60).flat))
        tensors = trainer.learner_state().result(60)["tensors"]
        look(*(part for name, part in tensors.items() if name.startswith(("online.", "target."))))
    assert trainer.stop(60)
    assert len(whole) > 100
    assert (torn == []) is locked


def test_a_replica_follows_whole_weights() -> None:
    learner = recipe().make(played(300))
    replica = learner.replica(1)
    learner.train()
    replica.follow(learner)
    assert np.array_equal(replica.weights().flat, learner.weights().flat)
    assert replica._target_flat.equal(learner._target_flat)
    assert replica.report.steps == learner.report.steps == 4
    learner.train()
    assert not np.array_equal(replica.weights().flat, learner.weights().flat)


def test_the_target_can_be_refreshed_from_outside(deaths: list[BaseException]) -> None:
    learner = recipe().make(played(300))
    trainer = make(deaths, learner, 2)
    learner.train()
    assert not learner._target_flat.equal(learner._flat)
    trainer.refresh_target().result(0)  # at once: nobody trains
    assert learner._target_flat.equal(learner._flat)


def test_one_dead_worker_is_a_dead_trainer() -> None:
    deaths: list[BaseException] = []
    trainer = make(deaths, recipe().make(played(300)), 3)
    broken = ArithmeticError("broken for the test")

    def fail(parts: object) -> None:
        raise broken

    trainer._workers[1]._replica.compute = fail  # type: ignore[method-assign,assignment]
    trainer.start()
    until(lambda: bool(deaths))
    assert deaths == [broken]
    until(lambda: trainer.state is TrainerState.DEAD)
    assert trainer.stop(10)


@pytest.mark.parametrize("workers", [1, 3])
def test_they_rest_and_go_on_together(deaths: list[BaseException], workers: int) -> None:
    learner = recipe().make(played(300))
    trainer = make(deaths, learner, workers)
    trainer.set_controls(Controls(training=False))
    trainer.start()
    until(lambda: trainer.state is TrainerState.PAUSED)
    trainer.set_controls(Controls())
    until(lambda: trainer.report.steps > 20)
    trainer.set_clients(False)
    until(lambda: all(t.state is TrainerState.ALONE for t in trainer._threads))
    assert trainer.stop(10)
