"""Emulators that gateways start: one on each node, back after a fall, gone at the end."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from live import Server, until

from tests.cluster.conftest import Nodes
from tests.cluster.stage import Stage

pytestmark = pytest.mark.timeout(300)


def emulators_of(port: int) -> set[int]:
    """The processes that were started to play at this port."""
    asked = b"\x00".join((b"--server", f"127.0.0.1:{port}".encode(), b""))
    found = set()
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = file.read_bytes()
        except OSError:  # it has just ended
            continue
        if asked in words and b"client_py" in words:
            found.add(int(file.parent.name))
    return found


def plays(stage: Stage, number: int) -> bool:
    """Whether the gateway's own emulator is connected to it, and nobody else."""
    names = [client.name for client in stage.gateway(number).clients]
    return names == [f"g{number}-gym-CartPole-v1-1"]


def test_each_node_has_its_own_which_come_back_with_their_gateway_and_end_with_it(
    nodes: Nodes, tmp_path: Path, ports: int
) -> None:
    node = nodes.add(cpus=1)
    stage = Stage(nodes, tmp_path, ports, "--launch", "gym:CartPole-v1=1@each")
    try:
        until(lambda: plays(stage, 0) and plays(stage, 1))
        assert stage.gateway(0).node != stage.gateway(1).node
        before = [emulators_of(ports), emulators_of(ports + 1)]
        assert [len(found) for found in before] == [1, 1]
        os.kill(stage.gateway(1).pid, signal.SIGKILL)
        stage.server.wait_for("gateway-1 is back")
        until(lambda: plays(stage, 1))
        (again,) = emulators_of(ports + 1)
        assert {again} != before[1]
        assert emulators_of(ports) == before[0]  # the other one did not notice
        assert stage.server.stop() == 0, stage.server.text
        until(lambda: not emulators_of(ports) | emulators_of(ports + 1))
    finally:
        stage.server.stop()
        stage.server.kill()
        nodes.remove(node)


def test_what_a_gateway_cannot_launch_is_told_at_the_start(nodes: Nodes, tmp_path: Path) -> None:
    server = Server(tmp_path, "--cluster", nodes.address, "--launch", "ale:no_such_game=1")
    try:
        assert server.wait() == 2
        assert "gateway 0 cannot be started on" in server.text
        assert "no_such_game" in server.text
    finally:
        server.kill()
