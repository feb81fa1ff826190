"""What it costs to be watched: frames/s and steps/s with all measuring on, against none.

One server under one load; measuring is switched on and off in slices of a second, so that a
machine that changes its pace changes it for both.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

from bench import crowd, host
from bench.figures import Round
from server import exposition
from server.agent import Agent
from server.app import App
from server.probe import Probe

ABOUT = "frames/s and steps/s with probe, history and Prometheus's figures, as ratios to without"
OPTIONS = {
    "--rounds": 3,
    "--seconds": 40.0,
    "--clients": 16,
    "--values": 128,
    "--fps": 0.0,
    "--trainer": "thread",
}
_SLICE_S = 1.0
_SETTLE_S = 0.1


async def measure(options: argparse.Namespace) -> Round:
    """Measure one round: as many slices with as without, in the order on, off, off, on."""
    trainer = {"trainer": options.trainer}
    async with host.server(trainer=trainer, console={"telemetry": False}) as app:
        load = {"clients": options.clients, "values": options.values}
        await crowd.play(app.listener.port, seconds=1.0, **load)
        started = asyncio.Event()
        playing = asyncio.create_task(
            crowd.play(
                app.listener.port,
                seconds=2 * options.seconds + 60,
                fps=options.fps,
                on_start=started.set,
                **load,
            )
        )
        await started.wait()
        totals = {True: [0.0, 0.0, 0.0], False: [0.0, 0.0, 0.0]}
        for _ in range(max(1, round(options.seconds / (4 * _SLICE_S)))):
            for on in (True, False, False, True):
                grown = await _slice(app, on)
                totals[on] = [before + more for before, more in zip(totals[on], grown, strict=True)]
        playing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await playing
    return _figures(totals)


def _figures(totals: dict[bool, list[float]]) -> Round:
    figures: Round = {}
    for number, name in enumerate(("fps", "steps_per_s"), start=1):
        on, off = (totals[way][number] / totals[way][0] for way in (True, False))
        figures |= {
            f"{name}_watched": on,
            f"{name}_unwatched": off,
            f"{name}_watched_over_unwatched": on / off,
        }
    return figures


async def _slice(app: App, on: bool) -> tuple[float, float, float]:
    """Give the seconds of a slice, and the frames and steps in it."""
    async with _watched(app) if on else _unwatched():
        await asyncio.sleep(_SETTLE_S)
        before = _counts(app)
        await asyncio.sleep(_SLICE_S)
        after = _counts(app)
    seconds, frames, steps = (b - a for a, b in zip(before, after, strict=True))
    return seconds, frames, steps


def _counts(app: App) -> tuple[float, float, float]:
    agent = host.agent_of(app)
    return time.perf_counter(), agent.batcher.frames, agent.trainer.report.steps


@contextlib.asynccontextmanager
async def _watched(app: App) -> AsyncIterator[None]:
    """Probe the event loop, and have Prometheus read once; the server itself notes its history."""
    loop = asyncio.get_running_loop()
    probe = Probe(loop.call_soon_threadsafe)
    probe.start()
    reading = loop.call_later(_SETTLE_S + _SLICE_S / 2, lambda: exposition.render(app.snapshot()))
    try:
        yield
    finally:
        reading.cancel()
        await asyncio.to_thread(probe.stop)


@contextlib.asynccontextmanager
async def _unwatched() -> AsyncIterator[None]:
    """Keep the server from noting its history."""
    note = Agent.note_history
    Agent.note_history = lambda self: None  # type: ignore[method-assign]
    try:
        yield
    finally:
        Agent.note_history = note  # type: ignore[method-assign]
