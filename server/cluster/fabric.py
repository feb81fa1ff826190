"""Ray as we use it: joined, asked for its nodes, given actors to run, left again."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import socket
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import AuthenticationError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from server.cluster import LOCAL, ClusterError

_STORE_BYTES = 512 << 20  # of shared memory, where we start Ray ourselves: shipments are small
# We place by node: an actor must never wait for a core. For one that asks for nothing at all, Ray
# forgets the node.
_CORE_SHARE = 0.001
_NAME_S = 10.0  # for an actor that was ended to give its name free
_NAP_S = 0.05
_LOOPBACK = "127.0.0.1"
_ELSEWHERE = ("192.0.2.1", 9)  # an address of no machine (RFC 5737)
_REACH_S = 5.0  # to reach a cluster's head
INTAKE = "intake"  # calls of this group are done one at a time


@dataclass(frozen=True, slots=True)
class Node:
    """One machine of the cluster, as Ray knows it."""

    id: str
    address: str
    cpus: float
    gpus: float
    here: bool  # whether we run on it


class Actor:
    """One actor, by its handle."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle

    def ask(self, method: str, *arguments: Any) -> Future[Any]:
        """Have a method called there; the answer comes in a thread of Ray's."""
        future: Future[Any] = getattr(self.handle, method).remote(*arguments).future()
        return future

    def dismiss(self) -> None:
        """End it, if it still lives."""
        with contextlib.suppress(RayError):
            ray.kill(self.handle, no_restart=True)


class Fabric:
    """A joined cluster; actors are found by name, in a name space of the run's own."""

    def __init__(self, space: str) -> None:
        self.space = space

    @classmethod
    def join(cls, address: str) -> Fabric:
        """Join a cluster of Ray, or start one that lives as long as we do."""
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        options: dict[str, Any] = {"log_to_driver": False}
        if ":" in address:
            _check_reachable(address)  # or Ray would try for minutes
        if address == LOCAL:
            options |= {"object_store_memory": _STORE_BYTES, "include_dashboard": False}
        try:
            ray.init(address, configure_logging=True, logging_level=logging.ERROR, **options)
        except AuthenticationError as error:
            raise ClusterError(
                f"Ray asks for a token to join {address!r}: {error.message}; bring the head's here "
                "(`ray get-auth-token` shows it, RAY_AUTH_TOKEN hands it over) with "
                "RAY_AUTH_MODE=token"
            ) from error
        except (ConnectionError, ValueError, RuntimeError, TimeoutError) as error:
            raise ClusterError(_unreachable(address, error)) from error
        return cls("")

    def enter(self, run: str, identity: str) -> None:
        """Find and start the actors of one run from now on."""
        self.space = f"coinop/{run}/{identity}"

    def clear(self) -> None:
        """End every actor of the run; those of others, even of its name, are left alone."""
        for found in ray.util.list_named_actors(all_namespaces=True):
            if found["namespace"] != self.space:
                continue
            if (actor := self.find(found["name"])) is not None:  # or it has just ended
                actor.dismiss()

    def leave(self) -> None:
        """Leave the cluster; one that we started ends."""
        ray.shutdown()

    def nodes(self) -> list[Node]:
        """Give the nodes that live, always in the same order: ours first, then by address."""
        here = ray.get_runtime_context().get_node_id()
        found = [
            Node(
                id=node["NodeID"],
                address=node["NodeManagerAddress"],
                cpus=node["Resources"].get("CPU", 0.0),
                gpus=node["Resources"].get("GPU", 0.0),
                here=node["NodeID"] == here,
            )
            for node in ray.nodes()  # type: ignore[no-untyped-call]
            if node["Alive"]
        ]
        return sorted(found, key=lambda node: (not node.here, node.address, node.id))

    def find(self, name: str) -> Actor | None:
        """Give the actor of that name, if there is one."""
        try:
            return Actor(ray.get_actor(name, namespace=self.space))
        except ValueError:
            return None

    def start(
        self, kind: type, name: str, node: Node, *arguments: Any, lasting: bool, gpus: float = 0
    ) -> Actor:
        """Start an actor that outlives us, on that node while it lives.

        A lasting one is started again by Ray itself, wherever there is a node.
        """
        remote: Any = ray.remote  # its types do not know of groups
        asked = remote(concurrency_groups={INTAKE: 1})(kind).options(
            name=name,
            namespace=self.space,
            lifetime="detached",
            num_cpus=_CORE_SHARE,
            num_gpus=gpus,
            max_restarts=-1 if lasting else 0,
            max_concurrency=8,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=True),
        )
        deadline = time.monotonic() + _NAME_S
        while True:
            try:
                return Actor(asked.remote(*arguments))
            except ValueError as error:  # the one before it is not quite gone
                if time.monotonic() > deadline:
                    raise ClusterError(f"{name} cannot be started: {reason(error)}") from error
                time.sleep(_NAP_S)


def this_address() -> str:
    """Give the address by which other nodes reach this one."""
    address: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
    return address


def outside_address(known: str) -> str:
    """Give the address by which clients elsewhere reach this machine, if Ray knows loopback only.

    Nothing is sent: a datagram socket that is connected tells which address it would send from.
    """
    if known != _LOOPBACK:
        return known
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_ELSEWHERE)
        except OSError:  # there is no way to elsewhere
            return known
        address: str = probe.getsockname()[0]
    return address


def best_for_learning(nodes: Sequence[Node]) -> Node:
    """Choose where a learner lives: where the most accelerators are, then the most cores."""
    return min(nodes, key=lambda node: (-node.gpus, -node.cpus, not node.here))


def homes_for_learning(nodes: Sequence[Node], count: int) -> list[Node]:
    """Choose where several learners live: each where the most is left for it."""
    given: Counter[str] = Counter()
    homes = []
    for _ in range(count):
        left = [
            dataclasses.replace(
                node,
                gpus=max(0.0, node.gpus - given[node.id]),
                cpus=node.cpus / (1 + given[node.id]),
            )
            for node in nodes
        ]
        best = best_for_learning(left)
        given[best.id] += 1
        homes.append(next(node for node in nodes if node.id == best.id))
    return homes


def reason(problem: BaseException) -> str:
    """Give the last line of what went wrong: the rest is for whoever reads Ray's log."""
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    return lines[-1] if lines else type(problem).__name__


def _check_reachable(address: str) -> None:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), _REACH_S).close()
    except (OSError, ValueError, OverflowError) as error:
        raise ClusterError(_unreachable(address, error)) from error


def _unreachable(address: str, error: BaseException) -> str:
    if address == LOCAL:
        return f"Ray cannot be started here: {reason(error)}"
    return (
        f"no cluster of Ray at {address!r} ({reason(error)}); start one with `ray start --head`, "
        "name its address (--cluster HOST:6379), or use --cluster local"
    )
