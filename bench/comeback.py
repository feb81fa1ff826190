"""Whether a killed training goes on where it was: Pong, killed at half time or left alone.

Both have the same seed, the same time and two emulators; the one that is left alone comes second.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench import chart, training
from bench.chart import Curve, Point
from bench.figures import Round
from bench.training import Training
from server.emulators import LaunchError

ABOUT = "return over time of a training that is killed at half time, and of one that is not"
OPTIONS = {
    "--rounds": 1,
    "--game": "pong",
    "--minutes": 10.0,
    "--episodes": 20,
    "--svg": Path("runs/comeback.svg"),
}
_EMULATORS = 2
_LAST = 0.2  # share of the time over which the return at the end is told
_POINTS = ("--curve-interval-s", "2")


async def measure(options: argparse.Namespace) -> Round:
    """Train twice with the round's seed, and draw both curves."""
    seconds = options.minutes * 60
    figures: Round = {}
    curves: dict[str, list[Curve]] = {}
    for name, killed in (("killed", True), ("untouched", False)):
        with tempfile.TemporaryDirectory() as directory:
            points = await _train(Path(directory), options, killed=killed)
            greedy = await training.evaluate(Path(directory), options.episodes)
        late = [point.mean for point in points if point.wall_s >= seconds * (1 - _LAST)]
        if not late:
            raise LaunchError("no episode has ended; give it more --minutes")
        figures |= {f"{name}_training": statistics.fmean(late), f"{name}_greedy": greedy}
        if killed:
            figures |= _around(points, seconds / 2)
        curves[name] = [points]
        print(f"  {name}: {statistics.fmean(late):.1f}, greedy {greedy:.1f}", file=sys.stderr)
    options.svg.parent.mkdir(parents=True, exist_ok=True)
    title = f"{options.game}, killed at half time and started again"
    picture = chart.svg(title, dict(curves), side="mean return while training")
    options.svg.write_text(picture, encoding="utf-8")
    return figures


async def _train(runs: Path, options: argparse.Namespace, *, killed: bool) -> list[Point]:
    """Train for the time given, killed in the middle or not; give its curve."""
    began_s, seconds = time.time(), options.minutes * 60
    for share in (0.5, 1.0) if killed else (1.0,):
        launch = f"ale:{options.game}={_EMULATORS}"
        server = await Training.start(runs, launch, options.round, *_POINTS)
        try:
            await server.go_on(began_s + share * seconds - time.time())
            if share == 1.0:
                await server.end()
        finally:
            await server.kill()
    return [
        Point(row["time_s"] - began_s, row["frames"], row["steps"], (row["return_mean"],))
        for row in training.curve(runs)
    ]


def _around(points: Sequence[Point], half_s: float) -> Round:
    """Give the return before the kill, and the lowest after it."""
    before = [point.mean for point in points if point.wall_s <= half_s]
    after = [point.mean for point in points if point.wall_s > half_s]
    if not before or not after:
        raise LaunchError("no episode ended before the kill; give it more --minutes")
    return {"before_kill": before[-1], "lowest_after_kill": min(after)}
