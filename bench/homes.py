"""The learner's homes side by side: what each leaves to the games, and how much it trains.

Steps are counted by the optimizer itself, in the learner's own state, and not by the display.
"""

from __future__ import annotations

import argparse
import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from bench import crowd, host
from bench.figures import Round
from server.app import App
from server.train.workers import Worker

ABOUT = "4 workers, 4 with one lock, 1 x 4, 1 x 1 and a process: frames/s, p99 and steps/s of each"
OPTIONS = {
    "--rounds": 5,
    "--seconds": 4.0,
    "--clients": 16,
    "--values": 128,
    "--fps": 2000.0,
    "--batch-size": 256,
    "--sampling": "both",
    "--warmup": 1.5,
}


@dataclass(frozen=True, slots=True)
class Home:
    """One way to train."""

    trainer: str
    workers: int = 1
    steps_per_sample: int = 4
    single_lock: bool = False
    training: bool = True


HOMES = {
    "none": Home("thread", training=False),
    "workers_4x1": Home("workers", workers=4, steps_per_sample=1),
    "locked_4x1": Home("workers", workers=4, steps_per_sample=1, single_lock=True),
    "thread_1x4": Home("thread"),
    "thread_1x1": Home("thread", steps_per_sample=1),
    "process_1x4": Home("process"),
}


async def measure(options: argparse.Namespace) -> Round:
    """Measure one round: each home in turn, with each way to sample, paced and saturated."""
    figures: Round = {}
    for name, home in HOMES.items():
        for sampling, suffix in _samplings(home, options.sampling):
            figures |= await _measure(f"{name}{suffix}", home, sampling, options)
    return figures


def _samplings(home: Home, wanted: str) -> list[tuple[str, str]]:
    """Give the ways to sample, and what they add to a home's name."""
    if not home.training:
        return [("uniform", "")]
    return [
        (sampling, suffix)
        for sampling, suffix in (("uniform", ""), ("priority", "_priority"))
        if wanted in (sampling, "both")
    ]


async def _measure(name: str, home: Home, sampling: str, options: argparse.Namespace) -> Round:
    settings = {
        "trainer": {
            "trainer": home.trainer,
            "training": home.training,
            "training_workers": home.workers,
            "training_steps_per_sample": home.steps_per_sample,
        },
        "learner": {"batch_size": options.batch_size},
        "replay": {"sampling": sampling},
    }
    load: dict[str, Any] = {
        "clients": options.clients,
        "seconds": options.seconds,
        "values": options.values,
    }
    with _single_lock(home.single_lock):
        async with host.server(**settings) as app:
            # Not counted: fills the replay, so that training runs from the first second on.
            await crowd.play(app.listener.port, **{**load, "seconds": 1.0})
            load["warmup_s"] = options.warmup
            paced, steps = await _beside(app, load, home.training, fps=options.fps)
            saturated, steps_saturated = await _beside(app, load, home.training)
    figures = {
        f"{name}_fps": paced["fps"],
        f"{name}_p50_ms": paced["p50_ms"],
        f"{name}_p99_ms": paced["p99_ms"],
        f"{name}_fps_saturated": saturated["fps"],
        f"{name}_p99_ms_saturated": saturated["p99_ms"],
    }
    if home.training:
        figures |= {
            f"{name}_steps_per_s": steps,
            f"{name}_steps_per_s_saturated": steps_saturated,
        }
    return figures


async def _beside(
    app: App, load: dict[str, Any], training: bool, fps: float = 0.0
) -> tuple[dict[str, float], float]:
    """Play, and count the optimizer's steps over the same seconds."""
    counts: list[asyncio.Task[tuple[float, int]]] = []

    def count() -> None:
        counts.append(asyncio.create_task(_steps(app)))

    figures = await crowd.play(app.listener.port, fps=fps, on_start=count, **load)
    if not training:
        return figures, 0.0
    count()
    (began, before), (ended, after) = [await task for task in counts]
    return figures, (after - before) / (ended - began)


async def _steps(app: App) -> tuple[float, int]:
    """Ask the learner for its state; give when it was taken, and the optimizer's own count."""
    state = await asyncio.wrap_future(host.agent_of(app).trainer.learner_state())
    return time.perf_counter(), int(state["tensors"]["optimizer.step"])


@contextmanager
def _single_lock(wanted: bool) -> Iterator[None]:
    """Have workers hold one lock around each whole sample, as a simple design would."""
    lock, train = threading.Lock(), Worker.train

    def train_alone(worker: Worker, between_steps: Callable[[], None]) -> bool:
        with lock:
            return train(worker, between_steps)

    if wanted:
        Worker.train = train_alone  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        Worker.train = train  # type: ignore[method-assign]
