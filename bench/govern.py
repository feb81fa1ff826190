"""Whether the governor holds what it should while the load changes, and what that costs."""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

import numpy as np

from bench import crowd, host
from bench.figures import Round
from bench.hold import beside
from server.app import App
from server.governor import Floats, delay_p99_ms

ABOUT = "a load of 500, 4,000 and again 500 frames/s, with and without a p99 that is to be held"
OPTIONS = {
    "--rounds": 3,
    "--seconds": 6.0,
    "--clients": 16,
    "--values": 128,
    "--trainer": "thread",
    "--p99-ms": 3.0,
    "--warmup": 5.0,
}
_LOOK_S = 0.5
_LOADS = {"500": 500.0, "4000": 4000.0, "500_again": 500.0}


async def measure(options: argparse.Namespace) -> Round:
    """Measure one round: no training, free and governed training, under the same changing load."""
    ways: dict[str, dict[str, Any]] = {
        "none": {"training": False},
        "free": {"trainer": options.trainer},
        "held": {"trainer": options.trainer, "hold_p99_ms": options.p99_ms},
    }
    figures: Round = {}
    for name, trainer in ways.items():
        async with host.server(trainer=trainer) as app:
            load = {"clients": options.clients, "values": options.values}
            await crowd.play(app.listener.port, seconds=1.0, **load)
            for part, fps in _LOADS.items():
                figures |= await _part(app, f"{name}_{part}", fps, options)
    for part in _LOADS:
        kept = figures[f"held_{part}_steps_per_s"] / figures[f"free_{part}_steps_per_s"]
        figures[f"held_{part}_steps_over_free"] = kept
    return figures


async def _part(app: App, name: str, fps: float, options: argparse.Namespace) -> Round:
    """Measure one server under one load."""
    started = asyncio.Event()
    delays = asyncio.create_task(_delay_p99_ms(app, started, options.seconds))
    seen, steps_per_s = await beside(
        app,
        on_start=started.set,
        fps=fps,
        seconds=options.seconds,
        warmup_s=options.warmup,
        clients=options.clients,
        values=options.values,
    )
    figures = {
        f"{name}_answered_share": seen["fps"] / fps,
        f"{name}_p99_ms": seen["p99_ms"],
        f"{name}_delay_p99_ms": await delays,
    }
    if host.agent_of(app).controls.training:
        figures[f"{name}_steps_per_s"] = steps_per_s
    governed = app.snapshot().governed
    if governed is not None:
        figures[f"{name}_training_share"] = governed.training_share
        figures[f"{name}_holding"] = float(governed.state == "holding")
    return figures


async def _delay_p99_ms(app: App, started: asyncio.Event, seconds: float) -> float:
    """Give what the governor holds: the delay in the server, without the clients' own."""
    assert app.probe is not None
    streams = (host.agent_of(app).batcher.latency_s, app.probe.lag_s)
    await started.wait()
    seen = [stream.since(0)[1] for stream in streams]
    kept: list[list[Floats]] = [[], []]
    looks = max(1, round(seconds / _LOOK_S))
    while len(kept[0]) < looks or not any(map(len, kept[1])):  # the probe looks now and then
        await asyncio.sleep(min(seconds, _LOOK_S))
        for number, stream in enumerate(streams):
            values, seen[number] = stream.since(seen[number])
            kept[number].append(values)
    latency_s, lag_s = (np.concatenate(values) for values in kept)
    return delay_p99_ms(latency_s, lag_s, np.random.default_rng(0))
