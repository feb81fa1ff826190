"""What each option of the learner costs, against the plain one: in steps/s and in frames/s.

A server for each option, all in this process, each with a full replay; the ones that are not
measured rest. Each option is measured between slices of the plain one (plain, option, option,
plain), and what is told is the median of the ratios of such neighbours: they saw the same machine.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import time
from collections.abc import Awaitable, Callable
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
    "--seconds": 4.0,
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
_SLICE_S = 0.5
_FRAMES = 1_000_000
_REST_S = 0.3  # in which a trainer that was told to rest does
_WARMUP_S = 0.3


Slice = tuple[float, ...]  # rates
Quad = tuple[Slice, Slice]  # of the option, and of the plain one beside it


async def measure(options: argparse.Namespace) -> Round:
    """Measure one round: the learners alone, then beside clients at full speed."""
    names = options.only.split(",") if options.only else list(VARIANTS)[1:]
    bare: dict[str, list[Quad]] = {name: [] for name in names}
    beside: dict[str, list[Quad]] = {name: [] for name in names}
    async with contextlib.AsyncExitStack() as stack:
        apps: dict[str, App] = {}
        learners: dict[str, Learner] = {}
        for name in ("plain", *names):
            apps[name] = await stack.enter_async_context(host.server(**_settings(name, options)))
            learners[name] = await _prepared(apps[name], options)

        async def alone(name: str) -> Slice:
            replay = host.agent_of(apps[name]).replay
            return (_bare(learners[name], replay, _SLICE_S, options.fps),)

        async def crowded(name: str) -> Slice:
            return await _beside(apps[name], _SLICE_S, options)

        # Of the counted time an option has half, the plain one beside it the other half.
        for _ in range(max(1, round(options.seconds / (4 * _SLICE_S)))):
            for name in names:
                bare[name].append(await _quad(name, alone))
                beside[name].append(await _quad(name, crowded))
    return _figures(bare, beside)


async def _quad(name: str, measured: Callable[[str], Awaitable[Slice]]) -> Quad:
    """Measure an option between two slices of the plain one; give the means of both."""
    first, *option, last = [await measured(who) for who in ("plain", name, name, "plain")]
    return _mean(option), _mean([first, last])


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
    figures = await crowd.play(app.listener.port, warmup_s=_WARMUP_S, on_start=mark, **load)
    mark()
    host.set_training(app, False)
    await asyncio.sleep(_REST_S)
    (began_s, before), (ended_s, after) = marks
    return figures["fps"], (after - before) / (ended_s - began_s)


def _mean(slices: list[Slice]) -> Slice:
    return tuple(statistics.fmean(column) for column in zip(*slices, strict=True))


def _figures(bare: dict[str, list[Quad]], beside: dict[str, list[Quad]]) -> Round:
    """Give medians: of the plain one's rates, and of the ratios of neighbours."""
    alone, crowded = (
        _median([plain for quads in all_of.values() for _, plain in quads])
        for all_of in (bare, beside)
    )
    figures = {
        "plain_steps_per_s": alone[0],
        "plain_fps": crowded[0],
        "plain_steps_per_s_beside": crowded[1],
    }
    for name in bare:
        (steps,) = _median([_ratios(*quad) for quad in bare[name]])
        fps, steps_beside = _median([_ratios(*quad) for quad in beside[name]])
        figures |= {
            f"{name}_steps": steps,
            f"{name}_fps": fps,
            f"{name}_steps_beside": steps_beside,
        }
    return figures


def _ratios(option: Slice, plain: Slice) -> Slice:
    return tuple(mine / usual if usual else 0.0 for mine, usual in zip(option, plain, strict=True))


def _median(slices: list[Slice]) -> Slice:
    return tuple(statistics.median(column) for column in zip(*slices, strict=True))
