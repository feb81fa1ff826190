"""What each part of a frame's way costs, and each part of a gradient step, one at a time."""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from collections.abc import Callable

import numpy as np

from bench import burst, forward, weighed
from bench.figures import Round
from bench.stage import Stage
from bench.stopwatch import median_us
from server.learn.dice import Dice
from server.net import wire
from server.probe import Probe

ABOUT = "microseconds of each part of a frame's way and of a gradient step"
OPTIONS = {"--rounds": 5, "--seconds": 0.2, "--values": 128, "--batch-size": 256}
_FEW_AND_MANY = (1, 16)
_BATCHES = (1, 4, 16, 64)
_EPSILON = 0.02


async def measure(options: argparse.Namespace) -> Round:
    """Measure one round."""
    stage = Stage(values=options.values, batch_size=options.batch_size)
    figures: Round = {}

    def take(name: str, work: Callable[[], object]) -> None:
        figures[name] = median_us(work, options.seconds)

    take("decode_us", stage.decode_work())
    take("encode_us", lambda: wire.encode_action(70_000, [3], [], 0))
    for rows in _BATCHES:
        observation = stage.observation(rows)
        for name, judge in forward.ways(stage).items():
            take(f"forward_{name}_us_{rows}", lambda: judge(observation))  # noqa: B023
    for rows in _FEW_AND_MANY:
        for name, roll in _dice(rows).items():
            take(f"dice_{name}_us_{rows}", roll)
        take(f"append_us_{rows}", stage.append_work(rows))
        take(f"flush_us_{rows}", stage.flush_work(rows))
        lane_work = stage.lane_work(rows)
        if lane_work is not None:
            take(f"lane_us_{rows}", lane_work)
    figures |= burst.measure(_FEW_AND_MANY[-1], options.seconds)
    figures["probe_us"] = await _probe_us(options.seconds)
    take("sample_us", stage.sample_work(stage.rules.steps_per_sample * options.batch_size))
    take("sample_one_step_us", stage.sample_work(options.batch_size))
    take("step_us", stage.step_work())
    for name, work in weighed.ways(stage).items():
        take(name, work)
    return figures


async def _probe_us(seconds: float) -> float:
    """Give the processor time of one look at contention, the event loop's share included."""
    probe = Probe(asyncio.get_running_loop().call_soon_threadsafe, interval_s=0.002)
    began = time.process_time()
    probe.start()
    await asyncio.sleep(max(0.2, 2 * seconds))
    await asyncio.to_thread(probe.stop)
    return 1e6 * (time.process_time() - began) / len(probe.lag_s.values())


def _dice(rows: int) -> dict[str, Callable[[], object]]:
    """Give the ways to roll for so many frames: each by itself, together, and in advance."""
    by_python, by_numpy = random.Random(1).random, np.random.default_rng(1).random
    stock = Dice(1, (18,), 0)
    return {
        "python": lambda: [row for row in range(rows) if by_python() < _EPSILON],
        "numpy": lambda: np.flatnonzero(by_numpy(rows) < _EPSILON),
        "stock": lambda: stock.take(rows),
    }
