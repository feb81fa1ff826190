"""What it costs to be watched: frames/s and steps/s with all measuring on, against none.

One server under one load; measuring is switched on and off in slices of a second, so that a
machine that changes its pace changes it for both.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
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
_READ_QUADS = 7  # of two watched slices, to one reading: Prometheus usually comes every 15 s


async def measure(options: argparse.Namespace) -> Round:
    """Measure one round, in slices that are watched, unwatched, unwatched, watched, and so on."""
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
        quads = []
        for number in range(max(1, round(options.seconds / (4 * _SLICE_S)))):
            read = number % _READ_QUADS == 0
            first, *without, last = [
                await _slice(app, on=on, read=read and not place)
                for place, on in enumerate((True, False, False, True))
            ]
            quads.append((_rates(first, last), _rates(*without)))
        playing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await playing
    return _figures(quads)


Rates = tuple[float, float]  # frames/s, steps/s


def _rates(*slices: tuple[float, float, float]) -> Rates:
    seconds, frames, steps = (sum(column) for column in zip(*slices, strict=True))
    return frames / seconds, steps / seconds


def _figures(quads: list[tuple[Rates, Rates]]) -> Round:
    """Give medians: of the rates, and of the ratios of neighbours, which saw the same machine."""
    figures: Round = {}
    for number, name in enumerate(("fps", "steps_per_s")):
        on, off = ([quad[way][number] for quad in quads] for way in (0, 1))
        figures |= {
            f"{name}_watched": statistics.median(on),
            f"{name}_unwatched": statistics.median(off),
            f"{name}_watched_over_unwatched": statistics.median(
                a / b for a, b in zip(on, off, strict=True)
            ),
        }
    return figures


async def _slice(app: App, *, on: bool, read: bool) -> tuple[float, float, float]:
    """Give the seconds of a slice, and the frames and steps in it."""
    async with _watched(app, read=read) if on else _unwatched():
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
async def _watched(app: App, *, read: bool) -> AsyncIterator[None]:
    """Probe the event loop, and perhaps read as Prometheus does; the server notes its history."""
    loop = asyncio.get_running_loop()
    probe = Probe(loop.call_soon_threadsafe)
    probe.start()
    if read:
        loop.call_later(_SETTLE_S + _SLICE_S / 2, lambda: exposition.render(app.snapshot()))
    try:
        yield
    finally:
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
