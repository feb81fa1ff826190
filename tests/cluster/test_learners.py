"""Several learners on two nodes: the same weights, each frame with one of them, lost and found."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from live import until

from server.controls import Command, Verb
from server.train.trainer import TrainerState
from tests.cluster.conftest import Nodes
from tests.cluster.stage import LEARNER, Stage
from tools.control import Line, find

pytestmark = pytest.mark.timeout(300)
FOLLOWER = "learner-1-game"


@pytest.fixture
def stage(nodes: Nodes, tmp_path: Path, ports: int) -> Iterator[Stage]:
    node = nodes.add(cpus=1)
    stage = Stage(nodes, tmp_path, ports, learners=2)
    yield stage
    for client in stage.clients:
        client.finish()
    stage.server.stop()
    stage.server.kill()
    nodes.remove(node)


def are_the_same(stage: Stage) -> None:
    """Have training rest, and compare all that was learned."""
    with Line(find(stage.runs, "default")) as line:
        line.obey(Command(Verb.SET, "training", "off"), "test")
    until(lambda: stage.ask(LEARNER, "progress").state is TrainerState.PAUSED)
    until(lambda: len({stage.ask(name, "progress").report.steps for name in stage.learners}) == 1)
    assert len({stage.ask(name, "digest") for name in stage.learners}) == 1
    with Line(find(stage.runs, "default")) as line:
        line.obey(Command(Verb.SET, "training", "on"), "test")
    # The server has obeyed, but the learner hears of it with the next exchange.
    until(lambda: stage.ask(LEARNER, "progress").state is not TrainerState.PAUSED)


def test_two_learners_are_one_to_everybody_else(stage: Stage, tmp_path: Path) -> None:
    stage.join(4)
    stage.is_trained()
    view = stage.status()
    assert view.cluster is not None
    assert [node.learners for node in view.cluster.nodes] == [1, 1]
    are_the_same(stage)
    stage.is_trained()
    with Line(find(tmp_path, "default")) as line:
        line.obey(Command(Verb.SET, "steps_per_sample", "2"), "test")
        line.obey(Command(Verb.TARGET), "test")
        line.obey(Command(Verb.SAVE), "test")
    stage.is_trained()
    are_the_same(stage)
    newer = [stage.gateway(number).tallies["game"].weights_version for number in range(2)]
    until(lambda: stage.gateway(1).tallies["game"].weights_version > newer[1])
    # Each frame is with one of them, and each has its share.
    stage.rest()
    stage.every_answered_frame_is_there_once()
    shares = [stage.ask(name, "progress").frames for name in stage.learners]
    assert min(shares) > 0.2 * sum(shares)
    until(lambda: stage.status().agents[0].replay_size == sum(shares))
    with Line(find(tmp_path, "default")) as line:
        line.obey(Command(Verb.FLUSH), "test")
    until(lambda: not any(stage.ask(n, "progress").replay_size for n in stage.learners))
    stage.goes_on_alone_and_comes_back()
    are_the_same(stage)


@pytest.mark.parametrize("killed", [FOLLOWER, LEARNER])
def test_where_one_is_killed_all_go_on_from_the_newest_checkpoint(
    stage: Stage, tmp_path: Path, killed: str
) -> None:
    stage.join(4)
    stage.is_trained()
    least = stage.steps()
    with Line(find(tmp_path, "default")) as line:
        line.obey(Command(Verb.SAVE), "test")
    most = stage.steps()
    before = [stage.ask(name, "pid") for name in stage.learners]
    os.kill(stage.ask(killed, "pid"), signal.SIGKILL)
    told = stage.server.wait_for(
        r"the learner of agent game fell.*started again from step ([\d,]+)"
    )
    assert least <= int(told[1].replace(",", "")) <= most
    for client in stage.clients:
        client.plays_on()
        assert client.sessions == 1
    stage.is_trained()
    assert not set(before) & {stage.ask(name, "pid") for name in stage.learners}
    are_the_same(stage)
    # The server that steers is killed as well: learning goes on, and is taken up.
    stage.server.kill()
    steps = stage.is_trained()
    stage.server = stage.start()
    stage.server.wait_for("the learner of agent game was at work already")
    stage.is_trained()
    assert stage.steps() > steps
    # The rings have filled them again.
    stage.rest()
    stage.every_answered_frame_is_there_once()
    assert stage.server.stop() == 0, stage.server.text
