"""Two ways to learn a continuous control, side by side: cut into choices, or trained as a number.

Each training is the server as a person starts it, in a process of its own, with two emulators on
real sockets. A round is a seed; within it the heads play by turns.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
from pathlib import Path

from bench.figures import Round
from server.emulators import ROOT, LaunchError

ABOUT = "return on games with a continuous control: factored and regressed heads"
OPTIONS = {"--rounds": 3, "--minutes": 5.0, "--games": "mame:pong2600,gym:Pendulum-v1"}
_EMULATORS = 2
_BINS = {"factored": 15, "regressed": 0}
_LAST = 0.2  # share of the time over which the return is told
_END_S = 60.0  # for a server to save and end


async def measure(options: argparse.Namespace) -> Round:
    """Train each head on each game with the round's seed."""
    figures: Round = {}
    for game in options.games.split(","):
        name = game.partition(":")[2].lower()
        for head, bins in _BINS.items():
            returns = await _train(game, bins, options.round, options.minutes * 60)
            first = returns[-1][0] * (1 - _LAST)
            late = [mean for at_s, mean in returns if at_s >= first]
            figures[f"{name}_{head}"] = sum(late) / len(late)
            print(f"  {game} {head}: {figures[f'{name}_{head}']:,.1f}", file=sys.stderr)
    return figures


async def _train(game: str, bins: int, seed: int, seconds: float) -> list[tuple[float, float]]:
    """Run a server for a while; give the mean return of the last episodes along its time."""
    with tempfile.TemporaryDirectory() as runs:
        words = ["--plain", "--port", "0", "--runs-dir", runs, "--run", "r", "--seed", str(seed)]
        words += ["--launch", f"{game}={_EMULATORS}", "--bins", str(bins)]
        words += ["--eval-interval-s", "0"]  # it would take turns from the training
        server = await asyncio.create_subprocess_exec(
            *(sys.executable, str(ROOT / "main.py"), *words),
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said = asyncio.create_task(_last_words(server))
        try:
            await asyncio.wait_for(server.wait(), seconds)
        except TimeoutError:
            server.send_signal(signal.SIGINT)
            await asyncio.wait_for(server.wait(), _END_S)
        returns = _returns(Path(runs, "r", "curves.jsonl"))
        if server.returncode or not returns:
            raise LaunchError(f"the training of {game} came to nothing: {await said}")
    return returns


async def _last_words(server: asyncio.subprocess.Process) -> str:
    """Read what a server says, so that it is never held up; give the last line."""
    last = ""
    assert server.stdout is not None
    async for line in server.stdout:
        last = line.decode(errors="replace").strip()
    return last


def _returns(curves: Path) -> list[tuple[float, float]]:
    """Give time and mean return out of a run's curves, from the first episode on."""
    if not curves.exists():
        return []
    told = map(json.loads, curves.read_text(encoding="utf-8").splitlines())
    return [
        (row["uptime_s"], row["return_mean"])
        for row in told
        if row["kind"] == "interval" and row["return_mean"] is not None
    ]
