"""What each option of the learner costs, against the plain one: in steps/s and in frames/s.

A server for each option, all in this process, each with a full replay; the ones that are not
measured rest. They are measured by turns in short slices, so that a machine that changes its pace
changes it for all.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import time
from typing import Any

import numpy as np

from bench import crowd, host, stage
from bench.figures import Round
from server.app import App
from server.learn.learner import Learner
from server.learn.replay import Frames, Replay

ABOUT = "steps/s and frames/s with each option of the learner, as ratios to the plain one"
OPTIONS = {
    "--rounds": 3,
    "--seconds": 3.0,
    "--clients": 16,
    "--values": 128,
    "--fps": 2000.0,
    "--batch-size": 256,
    "--only": "",
}
# What differs from the plain learner, whose n_step is 3.
VARIANTS: dict[str, dict[str, dict[str, Any]]] = {
    "plain": {},
    "priority": {"replay": {"sampling": "priority"}},
    "dueling": {"network": {"dueling": True}},
    "quantile": {"network": {"distribution": "quantile"}},
    "categorical": {"network": {"distribution": "categorical"}},
    "noisy": {"network": {"noisy": True}},
    "layer_norm": {"network": {"layer_norm": True}},
    "munchausen": {"learner": {"munchausen": 0.9}},
    "n_step_1": {"learner": {"n_step": 1}},
    "n_step_10": {"learner": {"n_step": 10}},
    "frame_stack_4": {"network": {"frame_stack": 4}},
}
_SLICES = 3  # turns that everyone has in a round
_FRAMES = 1_000_000
_REST_S = 0.3  # in which a trainer that was told to rest does


async def measure(options: argparse.Namespace) -> Round:
    """Measure one round: the learners alone, then beside clients at full speed."""
    names = ["plain", *(options.only.split(",") if options.only else list(VARIANTS)[1:])]
    slice_s = options.seconds / _SLICES
    bare: dict[str, list[float]] = {name: [] for name in names}
    beside: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    async with contextlib.AsyncExitStack() as stack:
        apps: dict[str, App] = {}
        learners: dict[str, Learner] = {}
        for name in names:
            apps[name] = await stack.enter_async_context(host.server(**_settings(name, options)))
            learners[name] = await _prepared(apps[name], options)
        for _ in range(_SLICES):
            for name, app in apps.items():
                replay = host.agent_of(app).replay
                bare[name].append(_bare(learners[name], replay, slice_s, options.fps))
        for _ in range(_SLICES):
            for name, app in apps.items():
                beside[name].append(await _beside(app, slice_s, options))
    return _figures(
        {name: statistics.fmean(rates) for name, rates in bare.items()},
        {name: _mean(pairs) for name, pairs in beside.items()},
    )


def _settings(name: str, options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    settings = {section: dict(values) for section, values in VARIANTS[name].items()}
    settings.setdefault("learner", {})["batch_size"] = options.batch_size
    settings.setdefault("replay", {})["replay_capacity"] = _FRAMES
    settings["trainer"] = {"training": False}
    return settings


async def _prepared(app: App, options: argparse.Namespace) -> Learner:
    """Have the agent made by clients of its own, fill its replay; give a learner like its own."""
    await crowd.play(
        app.listener.port, clients=options.clients, seconds=0.1, values=options.values, warmup_s=0.1
    )
    stage.fill(host.agent_of(app).replay, _FRAMES)
    learner = host.learner_like(app)
    for _ in range(3):  # the first are slow
        learner.train()
    return learner


def _bare(learner: Learner, replay: Replay, seconds: float, fps: float) -> float:
    """Run a learner with nothing beside it but the frames that keep coming in; give steps/s.

    The trainer rests and no client plays: the replay is ours while the loop waits.
    """
    steps, counted_s = learner.report.steps, 0.0
    last_s = time.perf_counter()
    while counted_s < seconds:
        began_s = time.perf_counter()
        learner.train()
        now_s = time.perf_counter()
        counted_s += now_s - began_s
        _arrive(replay, round((now_s - last_s) * fps))
        last_s = now_s
    return (learner.report.steps - steps) / counted_s


def _arrive(replay: Replay, count: int) -> None:
    """Append frames as clients would send them meanwhile."""
    layout, head = replay.layout, replay.head
    nothing = [0] * count
    replay.append(
        Frames(
            np.zeros((count, layout.values), np.uint8),
            np.zeros((count, layout.heads), np.int16),
            np.zeros((count, layout.controls), np.float32),
            [0.0] * count,
            nothing,
            nothing,
            1,
            list(range(head - count, head)),
        )
    )


async def _beside(app: App, seconds: float, options: argparse.Namespace) -> tuple[float, float]:
    """Play at full speed while it trains; give frames/s and steps/s."""
    trainer = host.agent_of(app).trainer
    marks: list[tuple[float, int]] = []

    def mark() -> None:
        marks.append((time.perf_counter(), trainer.report.steps))

    host.set_training(app, True)
    load = {"clients": options.clients, "values": options.values, "seconds": seconds}
    figures = await crowd.play(app.listener.port, warmup_s=0.5, on_start=mark, **load)
    mark()
    host.set_training(app, False)
    await asyncio.sleep(_REST_S)
    (began_s, before), (ended_s, after) = marks
    return figures["fps"], (after - before) / (ended_s - began_s)


def _mean(pairs: list[tuple[float, float]]) -> tuple[float, float]:
    return statistics.fmean(fps for fps, _ in pairs), statistics.fmean(rate for _, rate in pairs)


def _figures(bare: dict[str, float], beside: dict[str, tuple[float, float]]) -> Round:
    plain_fps, plain_steps = beside["plain"]
    figures = {
        "plain_steps_per_s": bare["plain"],
        "plain_fps": plain_fps,
        "plain_steps_per_s_beside": plain_steps,
    }
    for name in bare:
        if name != "plain":
            figures[f"{name}_steps"] = bare[name] / bare["plain"]
            figures[f"{name}_fps"] = beside[name][0] / plain_fps
            figures[f"{name}_steps_beside"] = beside[name][1] / plain_steps
    return figures
