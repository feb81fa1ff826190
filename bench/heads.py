"""Ways to learn a continuous control, side by side: cut into choices, or trained as a number.

Each training is the server as a person starts it, in a process of its own, with two emulators on
real sockets. A round is a seed; within it the heads play by turns.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from bench import training
from bench.figures import Round
from bench.training import Training
from server.emulators import LaunchError

ABOUT = "return on games with a continuous control: factored, branching and regressed heads"
OPTIONS = {
    "--rounds": 3,
    "--minutes": 5.0,
    "--games": "mame:pong2600,gym:Pendulum-v1",
    "--heads": "factored,branching,regressed",
    "--episodes": 10,
}
_EMULATORS = 2
# Branching: the choices are advantages around one value of the state, which all controls share.
_WORDS = {
    "factored": ("--bins", "15"),
    "branching": ("--bins", "15", "--dueling"),
    "regressed": ("--bins", "0"),
}
_LAST = 0.2  # share of the time over whose episodes the return is told


async def measure(options: argparse.Namespace) -> Round:
    """Train each head on each game with the round's seed."""
    heads = options.heads.split(",")
    if unknown := [head for head in heads if head not in _WORDS]:
        raise LaunchError(f"--heads {unknown[0]!r} is none of {', '.join(_WORDS)}")
    figures: Round = {}
    for game in options.games.split(","):
        name = game.partition(":")[2].lower()
        for head in heads:
            earned, greedy = await _train(game, _WORDS[head], options)
            figures |= {f"{name}_{head}": earned, f"{name}_{head}_greedy": greedy}
            print(f"  {game} {head}: {earned:,.1f}, greedy {greedy:,.1f}", file=sys.stderr)
    return figures


async def _train(
    game: str, words: tuple[str, ...], options: argparse.Namespace
) -> tuple[float, float]:
    """Run a server for a while; give the mean return of its last episodes, and a greedy one."""
    seconds = options.minutes * 60
    with tempfile.TemporaryDirectory() as directory:
        runs = Path(directory)
        server = await Training.start(runs, f"{game}={_EMULATORS}", options.round, *words)
        try:
            await server.go_on(seconds * (1 - _LAST))
            before = (await server.agent()).episodes
            await server.go_on(seconds * _LAST)
            agent = await server.agent()
            await server.end()
        finally:
            await server.kill()
        if agent.episodes == before:
            raise LaunchError(f"no episode of {game} ended at the end; give it more --minutes")
        # Those that ended in that time, or the newest that the server remembers.
        earned = statistics.fmean(agent.returns[before - agent.episodes :])
        return earned, await training.evaluate(runs, options.episodes)
