"""A whole server on two nodes: what is played, shipped, learned, steered, lost and found again."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from live import ROOT, Server, until

from server import document
from server.cluster.fabric import Fabric
from server.controls import Command, Verb
from tests.cluster.conftest import Nodes
from tests.cluster.stage import LEARNER, Stage
from tools.control import Line, find

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def stages(nodes: Nodes, tmp_path: Path, ports: int) -> Iterator[list[Stage]]:
    made: list[Stage] = []
    yield made
    for stage in made:
        for client in stage.clients:
            client.finish()
        stage.server.stop()
        stage.server.kill()


def test_two_nodes_play_learn_and_are_steered_as_one(
    nodes: Nodes, stages: list[Stage], tmp_path: Path, ports: int
) -> None:
    node = nodes.add(cpus=2)
    stage = Stage(nodes, tmp_path, ports)
    stages.append(stage)
    stage.join(4)
    stage.clients[-1].plays_on(100)
    stage.is_trained()
    # One console for all.
    until(lambda: stage.states() == ["up", "up"])
    view = stage.status()
    assert view.cluster is not None
    assert len(view.clients) == 4
    assert sorted(n.gateways for n in view.cluster.nodes) == [1, 1]
    (home,) = [n for n in view.cluster.nodes if n.learners]
    assert home.cpus == 2  # the learner is where the most cores are
    assert all(gateway.frames_per_s > 10 for gateway in view.cluster.gateways)
    # Live settings reach every gateway within a heartbeat, and so do new weights.
    with Line(find(tmp_path, "default")) as line:
        line.obey(Command(Verb.SET, "epsilon", "0.25"), "test")
        line.obey(Command(Verb.SET, "client.level", "3"), "test")
    time.sleep(1.0)
    for number in range(2):
        assert stage.gateway(number).controls.epsilon == 0.25
    versions = [stage.gateway(number).tallies["game"].weights_version for number in range(2)]
    until(
        lambda: all(
            stage.gateway(number).tallies["game"].weights_version > versions[number]
            for number in range(2)
        )
    )
    # Whatever was answered is with the learner, once.
    stage.rest()
    stage.every_answered_frame_is_there_once()
    played = sum(len(client.answered) for client in stage.clients)
    until(lambda: stage.status().agents[0].frames == played)
    until(lambda: stage.status().agents[0].replay_size == played)
    with Line(find(tmp_path, "default")) as line:
        assert "frames forgotten" in line.obey(Command(Verb.FLUSH), "test")
    until(lambda: stage.ask(LEARNER, "progress").replay_size == 0)
    # The end in good order.
    stage.goes_on_alone_and_comes_back(f"{played:,}")
    assert stage.server.stop() == 0, stage.server.text
    nodes.remove(node)


def test_killed_gateways_learners_and_drivers_lose_what_they_are_said_to_and_no_more(
    nodes: Nodes, stages: list[Stage], tmp_path: Path, ports: int
) -> None:
    stage = Stage(nodes, tmp_path, ports)
    stages.append(stage)
    stage.join(4)
    stage.is_trained()
    least = stage.steps()
    with Line(find(tmp_path, "default")) as line:
        line.obey(Command(Verb.SAVE), "test")
    most = stage.steps()
    # A gateway is killed: its clients go to the other, it comes back with its ring.
    before = stage.gateway(0)
    os.kill(before.pid, signal.SIGKILL)
    stage.clients[0].plays_on()
    assert stage.clients[0].sessions == 2
    stage.server.wait_for("gateway-0 is back")
    assert stage.gateway(0).life != before.life
    # The learner is killed: from the newest checkpoint, with the frames that the rings still hold.
    os.kill(stage.ask(LEARNER, "pid"), signal.SIGKILL)
    told = stage.server.wait_for(
        r"the learner of agent game fell.*started again from step ([\d,]+)"
    )
    assert least <= int(told[1].replace(",", "")) <= most
    for client in stage.clients:
        client.plays_on()
    stage.is_trained()
    # The server that steers is killed: games and learning go on without it.
    stage.server.kill()
    steps = stage.is_trained()
    for client in stage.clients:
        client.plays_on()
    newer = [stage.gateway(number).tallies["game"].weights_version for number in range(2)]
    until(lambda: stage.gateway(1).tallies["game"].weights_version > newer[1])
    stage.server = stage.start()
    stage.server.wait_for("gateway-1 was at work already")
    stage.server.wait_for("the learner of agent game was at work already")
    stage.is_trained()
    assert stage.steps() > steps
    stage.rest()
    stage.every_answered_frame_is_there_once()
    assert sum(client.sessions for client in stage.clients) <= 4 + 2
    # Frames of a gateway that died are counted up to its last report.
    played = sum(len(client.answered) for client in stage.clients)
    until(lambda: stage.status().agents[0].frames > 0.9 * played)
    assert stage.status().agents[0].frames <= played + 4
    assert stage.server.stop() == 0, stage.server.text


def test_a_removed_node_takes_its_unshipped_frames_and_nothing_else(
    nodes: Nodes, stages: list[Stage], tmp_path: Path, ports: int
) -> None:
    node = nodes.add(cpus=2)
    stage = Stage(nodes, tmp_path, ports)
    stages.append(stage)
    stage.join(4)
    stage.is_trained()
    with Line(find(tmp_path, "default")) as line:
        line.obey(Command(Verb.SAVE), "test")
    nodes.remove(node)  # with a gateway, its ring, its clients' connections, and the learner
    stage.server.wait_for("gateway-1 is back")
    stage.server.wait_for("the learner of agent game fell")
    gone = frozenset(stage.frames_of(ports + 1))
    for client in stage.clients:
        client.plays_on()
    stage.is_trained()
    view = stage.status().cluster
    assert view is not None
    assert [n.gateways for n in view.nodes] == [2]
    stage.rest()
    stage.every_answered_frame_is_there_once(lost=gone)
    assert stage.server.stop() == 0, stage.server.text


def test_a_start_that_fails_leaves_nothing_behind(nodes: Nodes, tmp_path: Path, ports: int) -> None:
    with socket.create_server(("127.0.0.1", ports + 1)):  # where the second gateway would listen
        server = Server(
            tmp_path, "--cluster", nodes.address, "--gateways", "2", "--port", str(ports)
        )
        assert server.wait() == 2
    server.kill()
    assert "gateway 1 cannot be started" in server.text
    identity = document.read(tmp_path / "default" / "cluster.json")[0]["identity"]
    until(lambda: Fabric(f"coinop/default/{identity}").find("gateway-0") is None)
    socket.create_server(("127.0.0.1", ports)).close()


def test_a_dead_gateway_whose_ring_is_gone_loses_what_it_had_not_shipped_and_no_more(
    nodes: Nodes, stages: list[Stage], tmp_path: Path, ports: int
) -> None:
    stage = Stage(nodes, tmp_path, ports)
    stages.append(stage)
    stage.join(4)
    stage.is_trained()
    gateway, learner = stage.gateway(0).pid, stage.ask(LEARNER, "pid")
    (ring,) = (tmp_path / "default" / "gateways").glob("*/0/agents/game/replay.bin")
    shipped = set(stage.stored())
    os.kill(learner, signal.SIGSTOP)  # for a while it takes nothing in
    try:
        stage.clients[0].plays_on(150)
        os.kill(gateway, signal.SIGKILL)
        ring.unlink()
        unshipped = frozenset(stage.frames_of(ports) - shipped)
    finally:
        os.kill(learner, signal.SIGCONT)
    stage.server.wait_for("gateway-0 is back")
    for client in stage.clients:
        client.plays_on()
    stage.is_trained()
    assert stage.ask(LEARNER, "pid") == learner
    stage.rest()
    stage.every_answered_frame_is_there_once(lost=unshipped)
    missing = stage.frames_of() - set(stage.stored())
    assert missing and missing <= unshipped
    assert stage.server.stop() == 0, stage.server.text


def test_without_ray_a_cluster_is_one_clear_line_and_nothing_else_needs_it(tmp_path: Path) -> None:
    script = (
        "import sys; sys.modules['ray'] = None; sys.path.insert(0, '.'); import main; "
        "sys.exit(main.main())"
    )
    server = Server(tmp_path, "--cluster", "local", script=script)
    assert server.wait() == 2
    assert server.text == (
        "coinop: cluster = 'local' needs Ray (ray is not installed): "
        "pip install -r requirements-cluster.txt"
    )
    server.kill()
    code = "import server.app, sys; sys.exit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_a_cluster_that_is_not_there_is_named(tmp_path: Path) -> None:
    server = Server(tmp_path, "--cluster", "127.0.0.1:1")
    assert server.wait() == 2
    server.kill()
    assert "no cluster of Ray at '127.0.0.1:1' ([Errno 111] Connection refused)" in server.text


def test_a_token_of_ray_that_is_not_here_is_asked_for(nodes: Nodes, tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path), "RAY_AUTH_MODE": "token"}
    server = Server(tmp_path, "--cluster", nodes.address, **home)
    assert server.wait() == 2
    server.kill()
    assert server.text.startswith(f"coinop: Ray asks for a token to join {nodes.address!r}: ")
    assert "no authentication token was found" in server.text
    assert "Traceback" not in server.text
