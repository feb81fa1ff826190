"""Whether training slows the games: paced and saturated clients beside a learner at full speed."""

from __future__ import annotations

import argparse
import time

from bench import crowd, host
from bench.figures import Round
from server.app import App

ABOUT = "clients offer --fps together while training runs at full speed"
OPTIONS = {
    "--rounds": 3,
    "--seconds": 5.0,
    "--clients": 16,
    "--values": 128,
    "--fps": 2000.0,
    "--batch-size": 256,
    "--trainer": "thread",
    "--training-workers": 1,
    "--telemetry": True,
}


async def measure(options: argparse.Namespace) -> Round:
    """Measure one round: held pace, full speed with and without training, bare learner."""
    home = {"trainer": options.trainer, "training_workers": options.training_workers}
    async with host.server(
        learner={"batch_size": options.batch_size},
        trainer=home,
        console={"telemetry": options.telemetry},
    ) as app:
        load = {"clients": options.clients, "seconds": options.seconds, "values": options.values}
        # Not counted: fills the replay, so that training runs from the first counted second on.
        await crowd.play(app.listener.port, **{**load, "seconds": 1.0})
        held, steps_per_s = await beside(app, fps=options.fps, warmup_s=2.0, **load)
        waits = host.contention(app, options.seconds)
        saturated, steps_saturated = await beside(app, warmup_s=1.0, **load)
        host.set_training(app, False)
        quiet, _ = await beside(app, warmup_s=1.0, **load)
        bare_steps_per_s = _bare(app, options.seconds)
    return {
        "fps_offered": options.fps,
        "fps_answered": held["fps"],
        "answered_share": held["fps"] / options.fps,
        "p50_ms": held["p50_ms"],
        "p99_ms": held["p99_ms"],
        "max_ms": held["max_ms"],
        "p99_due_ms": held["p99_due_ms"],
        "steps_per_s": steps_per_s,
        "bare_steps_per_s": bare_steps_per_s,
        "steps_over_bare": steps_per_s / bare_steps_per_s,
        "fps_saturated": saturated["fps"],
        "steps_per_s_saturated": steps_saturated,
        "fps_saturated_no_training": quiet["fps"],
        "saturated_over_no_training": saturated["fps"] / quiet["fps"],
        **waits,
    }


async def beside(app: App, **load: float) -> tuple[dict[str, float], float]:
    """Play, and count the learner's steps over the same seconds."""
    trainer = host.agent_of(app).trainer
    marks: list[tuple[float, int]] = []

    def mark() -> None:
        marks.append((time.perf_counter(), trainer.report.steps))

    figures = await crowd.play(app.listener.port, on_start=mark, **load)
    mark()
    (began, before), (ended, after) = marks
    return figures, (after - before) / (ended - began)


def _bare(app: App, seconds: float) -> float:
    """Run the same learner on the same replay with nothing beside it."""
    learner = host.learner_like(app)
    learner.train()  # the first steps allocate
    steps, began = learner.report.steps, time.perf_counter()
    # The trainer is paused and the clients are gone: nobody disturbs while the loop waits.
    while time.perf_counter() - began < seconds:
        learner.train()
    return (learner.report.steps - steps) / (time.perf_counter() - began)
