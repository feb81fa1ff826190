"""What a cluster costs and gives: gateways plain and on Ray, shipping, weights, several learners.

All nodes are on this machine, so gateways share its cores with the load clients: what several of
them reach here says how they share, not how they scale (docs/scaling.md).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

from bench import crowd, host
from bench.figures import Round
from server.app import App
from server.emulators import LaunchError

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
    """Play at a plain server, then at each number of gateways."""
    figures: Round = {}
    async with host.server(trainer={"training": False}) as app:
        figures |= await _play("plain", [app.listener.port], options)
    for gateways in _numbers(options.gateways):
        async with _cluster(fabric, gateways, training=False) as app:
            ports = [int(address.rpartition(":")[2]) for address in _addresses(app)]
            await _warm_up(app, ports, options.values)
            figures |= await _play(f"ray_{gateways}", ports, options, app)
    if "fps_ray_1" in figures:
        paced = [figures[f"paced_p99_ms_{name}"] for name in ("ray_1", "plain")]
        figures["fps_ray_over_plain"] = figures["fps_ray_1"] / figures["fps_plain"]
        figures["p99_ray_over_plain"] = paced[0] / paced[1]
    return figures


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


async def _play(
    name: str, ports: list[int], options: argparse.Namespace, app: App | None = None
) -> Round:
    """Play at full speed and at a given pace, the clients shared out among the gateways."""
    share = max(1, options.clients // len(ports))
    load = {"clients": share, "seconds": options.seconds, "values": options.values}
    before = _shipped(app)
    full = await asyncio.gather(*(crowd.play(port, **load) for port in ports))
    shipping = _shipping(name, before, _shipped(app)) if app else {}
    pace = options.fps / len(ports)
    paced = await asyncio.gather(*(crowd.play(port, fps=pace, **load) for port in ports))
    return {
        f"fps_{name}": sum(seen["fps"] for seen in full),
        f"p99_ms_{name}": max(seen["p99_ms"] for seen in full),
        f"paced_fps_{name}": sum(seen["fps"] for seen in paced),
        f"paced_p99_ms_{name}": max(seen["p99_ms"] for seen in paced),
        **shipping,
    }


async def _warm_up(app: App, ports: list[int], values: int) -> None:
    """Have a client at each gateway until its frames are shipped: then the learner is there."""
    assert app.conductor is not None
    deadline = time.monotonic() + _PATIENCE_S
    while sum(one.frames > 0 for one in app.conductor.shipping()) < len(ports):
        if time.monotonic() > deadline:
            raise RuntimeError("no frame was shipped")
        load: dict[str, Any] = {"clients": 1, "seconds": 0.5, "fps": 50.0, "values": values}
        await asyncio.gather(*(crowd.play(port, **load) for port in ports))


def _shipped(app: App | None) -> tuple[float, float, float, float]:
    """Give the time, and the frames, bytes and CPU seconds that shipping took so far."""
    if app is None:
        return 0.0, 0.0, 0.0, 0.0
    assert app.conductor is not None
    shipping = app.conductor.shipping()
    return (
        time.monotonic(),
        sum(one.frames for one in shipping),
        sum(one.size_bytes for one in shipping),
        sum(one.seconds for one in shipping),
    )


def _shipping(
    name: str, before: tuple[float, float, float, float], after: tuple[float, float, float, float]
) -> Round:
    seconds, frames, size, cpu = (b - a for a, b in zip(before, after, strict=True))
    return {
        f"shipped_mb_per_s_{name}": size / seconds / 1e6,
        f"shipping_cpu_share_{name}": cpu / seconds,
        f"shipping_us_per_frame_{name}": 1e6 * cpu / max(1.0, frames),
    }


async def _fresh_weights(app: App, options: argparse.Namespace) -> Round:
    """Take the time from asking for the newest weights to a gateway that plays with them."""
    (address,) = _addresses(app)
    port = int(address.rpartition(":")[2])
    load = {"clients": options.clients, "seconds": options.seconds + 10, "values": options.values}
    playing = asyncio.create_task(crowd.play(port, fps=options.fps, **load))
    await _trained(app)
    taken = []
    assert app.conductor is not None
    for _ in range(_FRESH):
        agent, began = app.agents[host.AGENT], time.perf_counter()
        await agent.refresh_policy()
        put_out = agent.weights.version if agent.weights else 0
        while await app.conductor.version_in_play(host.AGENT) < put_out:
            await asyncio.sleep(_LOOK_S)
        taken.append(1e3 * (time.perf_counter() - began))
    await playing
    return {"weights_in_use_ms": sorted(taken)[_FRESH // 2], "weights_in_use_most_ms": max(taken)}


async def _learn(name: str, app: App, options: argparse.Namespace) -> Round:
    """Count the steps of learning, and the transitions in them, while clients play at a pace."""
    ports = [int(address.rpartition(":")[2]) for address in _addresses(app)]
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
    return {
        f"steps_per_s_{name}": (after.steps - before.steps) / seconds,
        f"transitions_per_s_{name}": (after.transitions - before.transitions) / seconds,
        f"waiting_share_{name}": waited / seconds,
    }


async def _trained(app: App) -> None:
    """Wait until the learner has begun to train."""
    deadline = time.monotonic() + _PATIENCE_S
    while host.AGENT not in app.agents or not app.agents[host.AGENT].trainer.report.steps:
        if time.monotonic() > deadline:
            raise RuntimeError("the learner did not begin to train")
        await asyncio.sleep(_LOOK_S)


def _addresses(app: App) -> list[str]:
    return app.snapshot().address.split(",")


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
