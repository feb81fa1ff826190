"""The conductor's hand on actors: what it ends, and what it never ends."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
import ray

import config
from server import document
from server.cluster import ClusterError
from server.cluster import fabric as fabric_module
from server.cluster.conductor import Conductor
from server.cluster.fabric import Actor, Fabric, Node
from server.cluster.report import GatewayReport
from server.controls import Controls
from server.stats import EventLog

HERE = Node("ab" * 28, "10.0.0.1", cpus=2, gpus=0, here=True)
CONFIG = config.from_values({"cluster": {"cluster": "auto", "gateways": 2}})


class FakeActor(Actor):
    """A gateway that answers, or one that could not be made."""

    def __init__(self, problem: Exception | None = None) -> None:
        super().__init__(None)
        self._problem = problem
        self.over = False
        self.dismissed = False

    def ask(self, method: str, *arguments: Any) -> Future[Any]:
        answer: Future[Any] = Future()
        report = GatewayReport(
            "life", HERE.id, "10.0.0.1:1", 1, Controls(), (), {}, {}, (), 0, (), 0
        )
        answers = {"settings": CONFIG, "over": self.over}
        if self._problem:
            answer.set_exception(self._problem)
        else:
            answer.set_result(answers.get(method, report))
        return answer

    def dismiss(self) -> None:
        self.dismissed = True


class FakeFabric(Fabric):
    """Actors by name; some cannot be started."""

    def __init__(self, *, bad: str = "") -> None:
        super().__init__("")
        self.bad = bad
        self.actors: dict[str, FakeActor] = {}
        self.cleared: list[str] = []

    def clear(self) -> None:
        self.cleared.append(self.space)

    def nodes(self) -> list[Node]:
        return [HERE]

    def find(self, name: str) -> Actor | None:
        return self.actors.get(name)

    def start(
        self, kind: type, name: str, node: Node, *arguments: Any, lasting: bool, gpus: float = 0
    ) -> Actor:
        actor = FakeActor(RuntimeError("the port is taken") if name == self.bad else None)
        self.actors[name] = actor
        return actor


def conductor(fabric: Fabric) -> Conductor:
    return Conductor(
        fabric,
        CONFIG,
        "",
        [],
        agents={},
        events=EventLog(),
        make_agent=lambda name, game, spaces: None,
        controls=Controls,
    )


def test_a_start_that_fails_ends_what_it_has_started_and_nothing_else(tmp_path: Path) -> None:
    for found in (False, True):
        fabric = FakeFabric(bad="gateway-1")
        if found:
            fabric.actors["gateway-0"] = FakeActor()
        starting = conductor(fabric)
        starting.open(tmp_path, None)
        with pytest.raises(ClusterError, match=r"gateway 1 cannot be started .*the port is taken"):
            asyncio.run(starting.start())
        starting.abandon()
        assert fabric.actors["gateway-0"].dismissed is not found
        assert fabric.actors["gateway-1"].dismissed


def test_an_actor_that_was_told_to_end_is_not_taken_up(tmp_path: Path) -> None:
    fabric = FakeFabric()
    before = fabric.actors["gateway-0"] = FakeActor()
    before.over = True
    at_work = fabric.actors["gateway-1"] = FakeActor()
    starting = conductor(fabric)
    starting.open(tmp_path, None)
    asyncio.run(starting.start())
    assert before.dismissed and fabric.actors["gateway-0"] is not before
    assert not at_work.dismissed and fabric.actors["gateway-1"] is at_work


def test_a_run_that_is_started_over_ends_the_actors_of_the_old_one_only(tmp_path: Path) -> None:
    fresh, old, never = tmp_path / "pong", tmp_path / "pong.2", tmp_path / "pong.3"
    for run in (fresh, old, never):
        run.mkdir()
    document.write(old / "cluster.json", {"identity": "1234"})
    fabric = FakeFabric()
    conductor(fabric).open(fresh, old)
    assert fabric.cleared == ["coinop/pong/1234"]
    identity = document.read(fresh / "cluster.json")[0]["identity"]
    assert fabric.space == f"coinop/pong/{identity}"
    for kept_as in (never, None):  # one that was never on a cluster; one that goes on
        conductor(fabric).open(fresh, kept_as)
        assert fabric.cleared == ["coinop/pong/1234"]
        assert fabric.space == f"coinop/pong/{identity}"


def test_only_a_runs_own_actors_are_cleared_and_one_that_is_just_gone_is_no_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    named = [
        {"namespace": "coinop/pong/mine", "name": "gateway-0"},
        {"namespace": "coinop/pong/mine", "name": "gone"},
        {"namespace": "coinop/pong/theirs", "name": "gateway-0"},
    ]
    ended = []

    def get_actor(name: str, namespace: str) -> str:
        if name == "gone":
            raise ValueError("there is no such actor")
        return f"{namespace}/{name}"

    monkeypatch.setattr(ray.util, "list_named_actors", lambda all_namespaces: named)
    monkeypatch.setattr(ray, "get_actor", get_actor)
    monkeypatch.setattr(ray, "kill", lambda handle, no_restart: ended.append(handle))
    Fabric("coinop/pong/mine").clear()
    assert ended == ["coinop/pong/mine/gateway-0"]


def test_a_name_that_does_not_get_free_is_a_cluster_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Taken:
        def __call__(self, kind: type) -> Taken:
            return self

        def options(self, **how: Any) -> Taken:
            return self

        def remote(self, *arguments: Any) -> None:
            raise ValueError("the name is taken")

    monkeypatch.setattr(ray, "remote", lambda concurrency_groups: Taken())
    monkeypatch.setattr(fabric_module, "_NAME_S", 0.0)
    with pytest.raises(ClusterError, match="gateway-0 cannot be started: the name is taken"):
        Fabric("space").start(object, "gateway-0", HERE, lasting=True)
