"""The learner's homes side by side: what each leaves to the games, and how much it trains.

Steps are counted by the optimizer itself, in the learner's own state, and not by the display.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from bench import crowd, host
from bench.figures import Round, few_digits, medians
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
    "--markdown": False,
}


@dataclass(frozen=True, slots=True)
class Home:
    """One way to train."""

    about: str
    trainer: str
    workers: int = 1
    steps_per_sample: int = 4
    single_lock: bool = False


HOMES = {
    "workers_4x1": Home("4 workers, 1 step each", "workers", workers=4, steps_per_sample=1),
    "locked_4x1": Home(
        "4 workers, one lock around the whole step",
        "workers",
        workers=4,
        steps_per_sample=1,
        single_lock=True,
    ),
    "thread_1x4": Home("1 thread, 4 steps per sample: the default", "thread"),
    "thread_1x1": Home("1 thread, 1 step per sample", "thread", steps_per_sample=1),
    "process_1x4": Home("a process of its own, 4 steps per sample", "process"),
}
SAMPLINGS = {"uniform": "", "priority": "_priority"}  # and what each adds to a home's name
_NONE = "none"


async def measure(options: argparse.Namespace) -> Round:
    """Measure one round: each home in turn, with each way to sample, beside no training."""
    figures: Round = {}
    quiet: list[Round] = []
    for name, home in HOMES.items():
        for sampling, suffix in SAMPLINGS.items():
            if options.sampling in (sampling, "both"):
                trained, untrained = await _measure(home, sampling, options)
                figures |= {f"{name}{suffix}_{figure}": v for figure, v in trained.items()}
                quiet.append(untrained)
    return {f"{_NONE}_{figure}": v for figure, v in medians(quiet).items()} | figures


async def _measure(home: Home, sampling: str, options: argparse.Namespace) -> tuple[Round, Round]:
    """Measure a home, and the same server while it does not train."""
    settings = {
        "trainer": {
            "trainer": home.trainer,
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
    found: dict[bool, Round] = {}
    with _single_lock(home.single_lock):
        async with host.server(**settings) as app:
            # Not counted: fills the replay, so that training runs from the first second on.
            await crowd.play(app.listener.port, **{**load, "seconds": 1.0})
            load["warmup_s"] = options.warmup
            # By turns the one or the other is first: a machine may grow slower or faster.
            for training in (True, False) if options.round % 2 else (False, True):
                host.set_training(app, training)
                found[training] = await _played(app, load, training, options)
    trained, untrained = found[True], found[False]
    for figure in ("p99_ms", "fps_saturated"):
        trained[f"{figure}_over_none"] = trained[figure] / untrained[figure]
    return trained, untrained


async def _played(
    app: App, load: dict[str, Any], training: bool, options: argparse.Namespace
) -> Round:
    """Play at the given pace, then at full speed."""
    paced, steps = await _beside(app, load, training, fps=options.fps)
    waits = host.contention(app, options.seconds, training=training)
    saturated, steps_saturated = await _beside(app, load, training)
    return {
        "fps": paced["fps"],
        "p50_ms": paced["p50_ms"],
        "p99_ms": paced["p99_ms"],
        **({"steps_per_s": steps} if training else {}),
        "fps_saturated": saturated["fps"],
        "p99_ms_saturated": saturated["p99_ms"],
        **({"steps_per_s_saturated": steps_saturated} if training else {}),
        **waits,
    }


COLUMNS = {
    "fps": "frames/s",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "steps_per_s": "steps/s",
    "fps_saturated": "frames/s saturated",
    "fps_saturated_over_none": "over `none`",
    "p99_ms_saturated": "p99 ms saturated",
    "steps_per_s_saturated": "steps/s saturated",
}


def markdown(rounds: list[Round]) -> str:
    """Draw the table for docs/benchmarks.md: medians, and in brackets the lowest and highest."""
    rows = {_NONE: "no training, in the same servers"}
    for name, home in HOMES.items():
        rows |= {name: home.about, f"{name}_priority": "the same, prioritised sampling"}
    lines = [f"| home | {' | '.join(COLUMNS.values())} | |", "|---" * (len(COLUMNS) + 2) + "|"]
    for name, about in rows.items():
        if f"{name}_fps" in rounds[0]:
            cells = [_cell([r.get(f"{name}_{figure}") for r in rounds]) for figure in COLUMNS]
            lines.append(f"| `{name}` | {' | '.join(cells)} | {about} |")
    return "\n".join(lines)


def _cell(values: list[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    middle, least, most = map(few_digits, (statistics.median(known), min(known), max(known)))
    return f"{middle} ({least} to {most})"


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
