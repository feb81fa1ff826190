"""A server on real nodes of Ray, clients whose frames can be told apart, and looks into actors."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from live import Client, Server, until
from ray.exceptions import RayError

from server import document
from server.cluster.fabric import Fabric
from server.cluster.report import GatewayReport
from server.net import wire
from server.net.wire import START
from server.stats import Snapshot
from tests.cluster.conftest import Nodes
from tools.control import Line, find

LEARNER = "learner-0-game"
QUICK = (
    "--replay-capacity",
    "60000",
    "--heartbeat-s",
    "1",
    "--min-replay",
    "200",
    "--batch-size",
    "32",
    "--eval-interval-s",
    "0",
)


class Marked(threading.Thread):
    """A client that shows its number and a count with each frame, and knows which were answered."""

    def __init__(self, number: int, ports: list[int]) -> None:
        super().__init__(daemon=True)
        self.number, self._ports = number, ports
        self.answered: list[int] = []
        self.by: list[int] = []  # the ports that answered them
        self.sessions = 0
        self._done = threading.Event()
        self.start()

    def run(self) -> None:
        count = 0
        while not self._done.is_set():
            try:
                client = Client(self._ports[0])
                assert isinstance(client.hello(client=f"marked-{self.number}"), wire.Welcome)
            except (OSError, AssertionError):
                self._ports.append(self._ports.pop(0))
                self._done.wait(0.1)
                continue
            self.sessions += 1
            try:
                fresh = True
                while not self._done.wait(0.01):
                    shown = np.array([self.number, count, 0, 0], np.float32).tobytes()
                    client.frame(shown, flags=START if fresh else 0, reward=float(not fresh))
                    while isinstance(answer := client.receive(), wire.Ping):
                        client.send(wire.encode(wire.Pong()))
                    if not isinstance(answer, wire.Action):
                        raise OSError("the gateway is gone")
                    self.by.append(self._ports[0])
                    self.answered.append(count)
                    count, fresh = count + 1, False
            except OSError:
                count += 1  # whether that one was stored, nobody knows
            client.close()

    def plays_on(self, frames: int = 30) -> None:
        goal = len(self.answered) + frames
        until(lambda: len(self.answered) >= goal)

    def finish(self) -> None:
        self._done.set()
        self.join(30)
        assert not self.is_alive()


class Stage:
    """A server on the cluster, its clients, and a look into its actors."""

    def __init__(
        self,
        nodes: Nodes,
        runs: Path,
        port: int,
        *options: str,
        gateways: int = 2,
        learners: int = 1,
    ) -> None:
        self.runs, self.port, self.gateways = runs, port, gateways
        self.learners = [f"learner-{rank}-game" for rank in range(learners)]
        counts = ("--gateways", str(gateways), "--learners", str(learners))
        self._options = ("--cluster", nodes.address, *counts, *QUICK, *options)
        self.clients: list[Marked] = []
        self.server = self.start()

    def start(self) -> Server:
        server = Server(self.runs, *self._options, "--port", str(self.port))
        assert server.wait_for(r"listening on [\d.]+:(\d+)")[1] == str(self.port)
        return server

    def join(self, count: int) -> None:
        ports = [self.port + number for number in range(self.gateways)]
        for _ in range(count):
            turn = len(self.clients) % self.gateways
            self.clients.append(Marked(len(self.clients), ports[turn:] + ports[:turn]))

    def ask(self, name: str, method: str, *arguments: Any) -> Any:
        """Ask an actor, or the one that takes its place."""
        fabric = Fabric("")
        identity = document.read(self.runs / "default" / "cluster.json")[0]["identity"]
        fabric.enter("default", identity)
        deadline = time.monotonic() + 60
        while True:
            actor = fabric.find(name)
            try:
                assert actor is not None, name
                return actor.ask(method, *arguments).result(30)
            except (AssertionError, RayError):
                assert time.monotonic() < deadline, name
                time.sleep(0.1)

    def gateway(self, number: int) -> GatewayReport:
        report: GatewayReport = self.ask(f"gateway-{number}", "exchange", None)
        return report

    def stored(self) -> list[tuple[float, float]]:
        """What the learners' rings hold of the clients: each frame's number and count."""
        rings = [self.ask(name, "column", "observation")[:, :2] for name in self.learners]
        return [tuple(row) for rows in rings for row in rows.tolist()]

    def steps(self) -> int:
        return int(self.ask(LEARNER, "progress").report.steps)

    def is_trained(self, steps: int = 20) -> int:
        goal = self.steps() + steps
        until(lambda: self.steps() >= goal)
        return goal

    def status(self) -> Snapshot:
        with Line(find(self.runs, "default")) as line:
            return line.status()

    def states(self) -> list[str]:
        cluster = self.status().cluster
        return [gateway.state for gateway in cluster.gateways] if cluster else []

    def rest(self) -> None:
        """Have nobody play any more."""
        for client in self.clients:
            client.finish()

    def frames_of(self, port: int = 0) -> set[tuple[float, float]]:
        """The frames that were answered so far, by one gateway or by all."""
        return {
            (float(client.number), float(count))
            for client in self.clients
            for count, by in zip(client.answered, client.by, strict=False)
            if port in (0, by)
        }

    def goes_on_alone_and_comes_back(self, frames: str = r"[\d,]+") -> None:
        """Check that the checkpoint is good for one learner on one machine, and back."""
        steps = self.steps()
        assert self.server.stop() == 0, self.server.text
        self.server.kill()  # closes what it wrote to
        alone = Server(self.runs, *QUICK)
        try:
            assert alone.wait_for(rf"resumed: {frames} frames, {steps:,} steps")
            client = Marked(9, [alone.port])
            until(lambda: alone.steps > steps + 20)
            client.finish()
            assert alone.stop() == 0
        finally:
            alone.kill()
        self.server = self.start()
        found = self.server.wait_for(r"resumed: ([\d,]+) frames, ([\d,]+) steps")
        assert int(found[2].replace(",", "")) > steps + 20

    def every_answered_frame_is_there_once(
        self, lost: frozenset[tuple[float, float]] = frozenset()
    ) -> None:
        """Compare what clients were answered with what the rings hold; nobody plays."""
        wanted = self.frames_of() - lost
        until(lambda: wanted <= set(self.stored()))
        rows = self.stored()
        assert len(rows) == len(set(rows)), "a frame is there twice"
        assert sum(self.ask(name, "check_valid")[0] for name in self.learners) == len(rows)
