"""Whether the governor holds what it should while the load changes, and what that costs."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import time
from collections.abc import AsyncIterator
from typing import Any

import numpy as np

from bench import crowd, host
from bench.figures import Round
from server.app import App
from server.governor import PROBE_S, Floats, Hold, delay_p99_ms
from server.probe import Probe

ABOUT = (
    "clients that ask for 500, 4,000, again 500 frames/s and then for all they can get: without "
    "training, with it, and with a p99 or frames/s that are to be held"
)
OPTIONS = {
    "--rounds": 3,
    "--seconds": 8.0,
    "--clients": 16,
    "--values": 128,
    "--trainer": "thread",
    "--p99-ms": 3.0,
    "--fps-goal": 0.0,
    "--warmup": 10.0,
}
_LOOK_S = 0.25
_PACED = {"500": 500.0, "4000": 4000.0, "500_again": 500.0}
_SATURATED = {"saturated": 0.0}  # whoever asks for less than is to be held need not wait for it


async def measure(options: argparse.Namespace) -> Round:
    """Measure one round: no training, free and governed training, under the same changing load."""
    home = {"trainer": options.trainer}
    all_parts = _PACED | _SATURATED
    figures = await _play("none", all_parts, options, training=False)
    figures |= await _play("free", all_parts, options, **home)
    figures |= await _play("held", _PACED, options, **home, hold_p99_ms=options.p99_ms)
    goal = options.fps_goal or (figures["none_saturated_fps"] + figures["free_saturated_fps"]) / 2
    figures |= await _play("held", _SATURATED, options, **home, hold_fps=goal)
    figures["held_saturated_goal_fps"] = goal
    figures["held_saturated_fps_over_goal"] = figures["held_saturated_fps"] / goal
    for part in all_parts:
        kept = figures[f"held_{part}_steps_per_s"] / figures[f"free_{part}_steps_per_s"]
        figures[f"held_{part}_steps_over_free"] = kept
    return figures


async def _play(
    way: str, parts: dict[str, float], options: argparse.Namespace, **trainer: Any
) -> Round:
    """Measure one server, with one crowd that changes its pace."""
    load = {"clients": options.clients, "values": options.values}
    figures: Round = {}
    names = iter(parts)
    # No telemetry: there is one probe, ours or the governor's, and it looks as often in all ways.
    async with host.server(trainer=trainer, console={"telemetry": False}) as app:
        await crowd.play(app.listener.port, seconds=1.0, **load)  # fills the replay
        load |= {"seconds": options.seconds, "warmup_s": options.warmup}
        words = crowd.paced(app.listener.port, list(parts.values()), **load)
        async with _watched(app) as watch, contextlib.aclosing(words):
            async for seen in words:
                if seen is None:
                    watch.count()
                    continue
                name = next(names)
                found = watch.finish() | {"p99_ms": seen["p99_ms"]}
                if pace := parts[name]:
                    found["answered_share"] = seen["fps"] / pace
                else:
                    found["fps"] = seen["fps"]
                figures |= {f"{way}_{name}_{figure}": value for figure, value in found.items()}
    return figures


@contextlib.asynccontextmanager
async def _watched(app: App) -> AsyncIterator[_Watch]:
    """Look at a server now and then."""
    probe = app.probe
    if probe is None:
        probe = Probe(asyncio.get_running_loop().call_soon_threadsafe, interval_s=PROBE_S)
        probe.start()
    watch = _Watch(app, probe)
    looking = asyncio.create_task(watch.look())
    try:
        yield watch
    finally:
        looking.cancel()
        if probe is not app.probe:
            await asyncio.to_thread(probe.stop)


class _Watch:
    """Notes what a server does and says while a part of the load lasts."""

    def __init__(self, app: App, probe: Probe) -> None:
        self._agent = host.agent_of(app)
        self._governor = app.governor
        self._streams = (self._agent.batcher.latency_s, probe.lag_s)
        self._changed_s = time.perf_counter()
        self._missed_s = 0.0  # since the change: when the governor last said so
        self.count()

    def count(self) -> None:
        """Begin to count: the warm-up is over."""
        self._began = (time.perf_counter(), self._agent.trainer.report.steps)
        self._seen = [stream.since(0)[1] for stream in self._streams]
        self._delays: list[list[Floats]] = [[], []]
        self._shares: list[float] = []
        self._holding: list[bool] = []

    async def look(self) -> None:
        """Note what is there to be seen, again and again."""
        while True:
            await asyncio.sleep(_LOOK_S)
            self._note()

    def _note(self) -> None:
        for number, stream in enumerate(self._streams):
            values, self._seen[number] = stream.since(self._seen[number])
            self._delays[number].append(values)
        if self._governor is not None:
            self._shares.append(self._governor.view().training_share)
            self._holding.append(self._governor.state is Hold.HOLDING)
            if not self._holding[-1]:
                self._missed_s = time.perf_counter() - self._changed_s

    def finish(self) -> Round:
        """Give what was found; the next part of the load begins."""
        self._note()
        latency_s, lag_s = (np.concatenate(values) for values in self._delays)
        figures = {"delay_p99_ms": delay_p99_ms(latency_s, lag_s, np.random.default_rng(0))}
        now_s, (began_s, before) = time.perf_counter(), self._began
        if self._agent.controls.training:
            steps = self._agent.trainer.report.steps - before
            figures["steps_per_s"] = steps / (now_s - began_s)
        if self._governor is not None:
            figures["training_share"] = statistics.fmean(self._shares)
            figures["holding_share"] = statistics.fmean(self._holding)
            figures["settled_s"] = self._missed_s
        self._changed_s, self._missed_s = now_s, 0.0
        self.count()
        return figures
