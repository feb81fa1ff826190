"""What a cluster costs and gives: gateways plain and on Ray, shipping, weights, several learners.

All nodes are on this machine, so gateways share its cores with the load clients: what several of
them reach here says how they share, not how they scale (docs/scaling.md).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, NamedTuple

import config
from bench import crowd, host
from bench.figures import Round, medians
from server.app import App
from server.emulators import LaunchError
from server.learn.learner import Spent
from server.train.actor import TrainingActor

ABOUT = "a gateway plain and on Ray, several gateways, shipping, fresh weights, several learners"
OPTIONS = {
    "--rounds": 3,
    "--seconds": 5.0,
    "--clients": 16,
    "--values": 128,
    "--fps": 2000.0,
    "--gateways": "1,2,4",
    "--learners": "1,2",
    "--only": "",
}
_STORE_BYTES = 200 << 20
_FRESH = 5  # times that weights are put out and waited for
_LOOK_S = 0.002
_PATIENCE_S = 60.0
_TURNS = 3  # of a plain server and a gateway, one after the other


async def measure(options: argparse.Namespace) -> Round:
    """Measure one round: all parts on a cluster of two nodes, or those that were asked for."""
    names = options.only.split(",") if options.only else list(PARTS)
    if unknown := set(names) - set(PARTS):
        raise LaunchError(f"--only {', '.join(unknown)}: there is {', '.join(PARTS)}")
    figures: Round = {}
    with _nodes() as fabric:
        for name in names:
            figures |= await PARTS[name](fabric, options)
    return figures


async def _gateways(fabric: Any, options: argparse.Namespace) -> Round:
    """Play at a plain server and at one gateway in turns, then at several gateways."""
    figures: Round = {}
    for gateways in _numbers(options.gateways):
        async with contextlib.AsyncExitStack() as stack:
            app = await stack.enter_async_context(_cluster(fabric, gateways, training=False))
            ports = _ports(app)
            await _warm_up(app, ports, options.values)
            if gateways == 1:
                alone = host.server(trainer={"training": False})
                plain = await stack.enter_async_context(alone)
                figures |= await _side_by_side(plain.listener.port, ports[0], options)
            else:
                figures |= await _play(f"ray_{gateways}", ports, options, options.seconds)
            figures |= await _ship(f"ray_{gateways}", app, options)
    return figures


async def _side_by_side(plain: int, ray: int, options: argparse.Namespace) -> Round:
    """Play at both in short turns: a machine that changes its pace changes it for both."""
    turns: list[tuple[Round, Round]] = []
    for _ in range(_TURNS):
        seconds = options.seconds / _TURNS
        first = await _play("plain", [plain], options, seconds)
        turns.append((first, await _play("ray_1", [ray], options, seconds)))

    def ratio(figure: str) -> float:
        return statistics.median(r[f"{figure}_ray_1"] / p[f"{figure}_plain"] for p, r in turns)

    return {
        **medians([p for p, _ in turns]),
        **medians([r for _, r in turns]),
        "fps_ray_over_plain": ratio("fps"),
        "p99_ray_over_plain": ratio("paced_p99_ms"),
    }


async def _weights(fabric: Any, options: argparse.Namespace) -> Round:
    async with _cluster(fabric, 1, training=True) as app:
        return await _fresh_weights(app, options)


async def _learners(fabric: Any, options: argparse.Namespace) -> Round:
    """Learn with each number of learners."""
    figures: Round = {}
    for learners in _numbers(options.learners):
        async with _cluster(fabric, 2, training=True, learners=learners) as app:
            figures |= await _learn(f"learners_{learners}", app, options)
    return figures


def _numbers(text: str) -> list[int]:
    """Read numbers between commas."""
    return [int(number) for number in text.split(",")]


PARTS: dict[str, Callable[[Any, argparse.Namespace], Awaitable[Round]]] = {
    "gateways": _gateways,
    "weights": _weights,
    "learners": _learners,
}


async def _play(name: str, ports: list[int], options: argparse.Namespace, seconds: float) -> Round:
    """Play at full speed and at a given pace, the clients shared out among the gateways."""
    full = await _crowds(ports, options, seconds)
    paced = await _crowds(ports, options, seconds, fps=options.fps)
    return {
        f"fps_{name}": sum(seen["fps"] for seen in full),
        f"p99_ms_{name}": max(seen["p99_ms"] for seen in full),
        f"paced_fps_{name}": sum(seen["fps"] for seen in paced),
        f"paced_p99_ms_{name}": max(seen["p99_ms"] for seen in paced),
    }


async def _crowds(
    ports: list[int],
    options: argparse.Namespace,
    seconds: float,
    *,
    fps: float = 0.0,
    on_start: Callable[[], None] = lambda: None,
) -> list[dict[str, float]]:
    """Have the clients play, shared out among the ports; on_start is called for each of those."""
    load: dict[str, Any] = {
        "clients": max(1, options.clients // len(ports)),
        "seconds": seconds,
        "values": options.values,
        "fps": fps / len(ports),
        "on_start": on_start,
    }
    return await asyncio.gather(*(crowd.play(port, **load) for port in ports))


async def _warm_up(app: App, ports: list[int], values: int) -> None:
    """Have a client at each gateway until its frames are shipped: then the learner is there."""
    assert app.conductor is not None
    deadline = time.monotonic() + _PATIENCE_S
    while sum(one.frames > 0 for one in app.conductor.shipping()) < len(ports):
        if time.monotonic() > deadline:
            raise RuntimeError("no frame was shipped")
        load: dict[str, Any] = {"clients": 1, "seconds": 0.5, "fps": 50.0, "values": values}
        await asyncio.gather(*(crowd.play(port, **load) for port in ports))


class _Shipped(NamedTuple):
    """What was shipped so far, and what that took."""

    time_s: float
    frames: float
    size_bytes: float
    cpu_s: float  # of the couriers
    taken_bytes: float  # by the learner
    taking_s: float  # of its CPU time

    @classmethod
    def so_far(cls, app: App) -> _Shipped:
        """Give what the newest exchange with gateways and learner told."""
        assert app.conductor is not None
        shipping = app.conductor.shipping()
        trainer = app.agents[host.AGENT].trainer
        progress = trainer.progress if isinstance(trainer, TrainingActor) else None
        return cls(
            time.monotonic(),
            sum(one.frames for one in shipping),
            sum(one.size_bytes for one in shipping),
            sum(one.seconds for one in shipping),
            progress.size_bytes if progress else 0.0,
            progress.taking_s if progress else 0.0,
        )

    def since(self, before: _Shipped) -> _Shipped:
        """Give what came in between."""
        return _Shipped(*(now - then for now, then in zip(self, before, strict=True)))


async def _ship(name: str, app: App, options: argparse.Namespace) -> Round:
    """Count what is shipped at full speed, from when the last of the clients has warmed up."""
    marks: list[_Shipped] = []
    await _crowds(
        _ports(app), options, options.seconds, on_start=lambda: marks.append(_Shipped.so_far(app))
    )
    spent = _Shipped.so_far(app).since(marks[-1])
    return {
        f"shipped_mb_per_s_{name}": spent.size_bytes / spent.time_s / 1e6,
        f"shipping_cpu_share_{name}": spent.cpu_s / spent.time_s,
        f"shipping_us_per_frame_{name}": 1e6 * spent.cpu_s / max(1.0, spent.frames),
        f"shipping_ms_per_mb_{name}": 1e9 * spent.cpu_s / max(1.0, spent.size_bytes),
        f"intake_ms_per_mb_{name}": 1e9 * spent.taking_s / max(1.0, spent.taken_bytes),
    }


async def _fresh_weights(app: App, options: argparse.Namespace) -> Round:
    """Take the time from asking for the newest weights to a gateway that plays with them."""
    (port,) = _ports(app)
    load = {"clients": options.clients, "seconds": options.seconds + 10, "values": options.values}
    playing = asyncio.create_task(crowd.play(port, fps=options.fps, **load))
    await _trained(app)
    taken = []
    assert app.conductor is not None
    for _ in range(_FRESH):
        agent, began = app.agents[host.AGENT], time.perf_counter()
        while await agent.refresh_policy() is None:  # the learner was busy for a second
            if time.perf_counter() - began > _PATIENCE_S:
                raise LaunchError("the learner gives no weights")
        put_out = agent.weights.version if agent.weights else 0
        while await app.conductor.version_in_play(host.AGENT) < put_out:
            await asyncio.sleep(_LOOK_S)
        taken.append(1e3 * (time.perf_counter() - began))
    await playing
    middle = statistics.median(taken)
    # A step waits for the next heartbeat, half of one on average; here heartbeats are asked for.
    usual_wait_ms = 1e3 * config.Policy().heartbeat_s / 2
    return {
        "weights_in_use_ms": middle,
        "weights_in_use_most_ms": max(taken),
        "step_to_play_ms": usual_wait_ms + middle,
    }


async def _learn(name: str, app: App, options: argparse.Namespace) -> Round:
    """Count the steps of learning, and the transitions in them, while clients play at a pace."""
    ports = _ports(app)
    share = max(1, options.clients // len(ports))
    load = {"clients": share, "fps": options.fps / len(ports), "values": options.values}
    playing = [
        asyncio.create_task(crowd.play(port, seconds=2 * _PATIENCE_S + options.seconds, **load))
        for port in ports
    ]
    try:
        await _trained(app)
        before, began = app.agents[host.AGENT].trainer.report, time.monotonic()
        await asyncio.sleep(options.seconds)
        after, seconds = app.agents[host.AGENT].trainer.report, time.monotonic() - began
    finally:
        for task in playing:
            task.cancel()
        await asyncio.gather(*playing, return_exceptions=True)
    waited = after.spent.wait_s - before.spent.wait_s
    worked = _worked_s(after.spent) - _worked_s(before.spent)
    return {
        f"step_ms_{name}": 1e3 * worked / max(1, after.steps - before.steps),
        f"steps_per_s_{name}": (after.steps - before.steps) / seconds,
        f"transitions_per_s_{name}": (after.transitions - before.transitions) / seconds,
        f"waiting_share_{name}": waited / seconds,
    }


def _worked_s(spent: Spent) -> float:
    """Give the seconds of all steps together, without what they waited for."""
    return spent.sample_s + spent.forward_s + spent.backward_s + spent.optimise_s


async def _trained(app: App) -> None:
    """Wait until the learner has begun to train."""
    deadline = time.monotonic() + _PATIENCE_S
    while host.AGENT not in app.agents or not app.agents[host.AGENT].trainer.report.steps:
        if time.monotonic() > deadline:
            raise RuntimeError("the learner did not begin to train")
        await asyncio.sleep(_LOOK_S)


def _ports(app: App) -> list[int]:
    """Give the ports of all gateways."""
    return [int(address.rpartition(":")[2]) for address in app.snapshot().address.split(",")]


@contextlib.asynccontextmanager
async def _cluster(
    fabric: Any, gateways: int, *, training: bool, learners: int = 1
) -> AsyncIterator[App]:
    settings: dict[str, dict[str, Any]] = {
        "trainer": {"training": training},
        "cluster": {"cluster": "auto", "gateways": gateways, "learners": learners},
        "policy": {"heartbeat_s": 3600.0},
        "evaluation": {"eval_interval_s": 0.0},
    }
    async with host.server(fabric=fabric, **settings) as app:
        yield app


@contextlib.contextmanager
def _nodes() -> Iterator[Any]:
    """Run two nodes of Ray on this machine, and join them."""
    try:
        from ray.cluster_utils import Cluster

        from server.cluster.fabric import Fabric
    except ModuleNotFoundError as error:
        raise LaunchError(f"{error.name} is not installed: requirements-cluster.txt") from error
    node = {"num_cpus": 1, "object_store_memory": _STORE_BYTES}
    head = {**node, "include_dashboard": False}
    cluster: Any = Cluster(initialize_head=True, head_node_args=head)
    try:
        cluster.add_node(**node)
        cluster.wait_for_nodes()
        fabric = Fabric.join(cluster.address)
        try:
            yield fabric
        finally:
            fabric.leave()
    finally:
        cluster.shutdown()
