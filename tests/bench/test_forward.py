"""The ways through the network that are compared do the same."""

from __future__ import annotations

import numpy as np
import pytest

from bench import forward
from bench.stage import Stage
from bench.stopwatch import median_us


@pytest.fixture(scope="module")
def stage() -> Stage:
    return Stage(values=128, batch_size=32)


def test_all_ways_give_the_same_values(stage: Stage) -> None:
    observation = stage.observation(5)
    values = {
        name: np.asarray(getattr(out, "values", out))
        for name, judge in forward.ways(stage).items()
        for out in [judge(observation)]
    }
    assert values["numpy"].shape == (5, 6)
    for other in values.keys() - {"numpy"}:
        np.testing.assert_allclose(values[other], values["numpy"], rtol=1e-4, atol=1e-5)


def test_all_ways_choose_the_same_for_a_lone_observation(stage: Stage) -> None:
    observation = stage.observation(1)
    judged = {name: judge(observation) for name, judge in forward.ways(stage).items()}
    best = int(np.argmax(judged["addmm"]))
    assert int(np.argmax(judged["turned"])) == best
    for played in judged.keys() - {"addmm", "turned"}:
        assert judged[played] == ([best], [])


def test_each_work_does_its_part(stage: Stage) -> None:
    head = stage.replay.head
    stage.append_work(16)()
    assert stage.replay.head == head + 16
    flush = stage.flush_work(4)
    flush()
    flush()
    assert stage.replay.head == head + 16 + 8
    # The second turn of each client is linked to its first.
    assert stage.replay.linked(np.arange(head + 16, head + 20)).all()
    lane_work = stage.lane_work(4)
    if lane_work is not None:  # there is a C compiler
        lane_work()
        lane_work()
        assert stage.replay.head == head + 16 + 16
        assert stage.replay.linked(np.arange(head + 24, head + 28)).all()
    stage.decode_work()()
    steps = stage.learner.report.steps
    stage.step_work()()
    assert stage.learner.report.steps == steps + 1
    assert stage.sample_work(64)() is not None


def test_the_stopwatch_calls_the_work_often() -> None:
    calls: list[None] = []
    assert median_us(lambda: calls.append(None), 0.01) > 0
    assert len(calls) > 1000
