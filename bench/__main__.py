"""The benchmarks' command line: ``python -m bench --help`` lists them."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any


def main() -> int:
    """Run a benchmark for some rounds and show its figures."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    import uvloop

    from bench import (
        cartpole,
        cluster,
        comeback,
        figures,
        govern,
        heads,
        hold,
        homes,
        hotpath,
        learn,
        lock,
        mame,
        memory,
        resume,
        scale,
        screen,
        serve,
        siege,
        soak,
        stalls,
        telemetry,
    )
    from bench import options as learner_options
    from server.emulators import LaunchError
    from tools.progress import Progress

    benches: dict[str, Any] = {
        "serve": serve,
        "hold": hold,
        "homes": homes,
        "govern": govern,
        "scale": scale,
        "telemetry": telemetry,
        "lock": lock,
        "cluster": cluster,
        "mame": mame,
        "hotpath": hotpath,
        "stalls": stalls,
        "screen": screen,
        "memory": memory,
        "options": learner_options,
        "heads": heads,
        "cartpole": cartpole,
        "comeback": comeback,
        "resume": resume,
        "siege": siege,
        "soak": soak,
        "learn": learn,
    }
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure Coinop on this machine. Load clients run in a process of their own.",
        epilog="All figures are medians over the rounds; docs/benchmarks.md explains each.",
    )
    commands = parser.add_subparsers(dest="bench", required=True, metavar="BENCH")
    for name, module in benches.items():
        command = commands.add_parser(name, help=module.ABOUT, description=module.ABOUT)
        for option, default in module.OPTIONS.items():
            command.add_argument(option, default=default, **_OPTIONS[option])
        command.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE")
    options = parser.parse_args()
    if options.bench == "learn":
        return learn.run(options)  # no rounds: each training is a long one
    rounds: list[figures.Round] = []
    spent = ""
    for number in range(options.rounds):
        options.round = number + 1
        about = f"{options.bench}: round {options.round} of {options.rounds}"
        print(f"{about} ...", file=sys.stderr)
        began_s = time.monotonic()
        try:
            with Progress(f"{about}{spent}"):
                rounds.append(uvloop.run(benches[options.bench].measure(options)))
        except LaunchError as error:
            print(f"{options.bench}: {error}", file=sys.stderr)
            return 2
        except soak.SoakError as error:
            print(f"{options.bench}: {error}", file=sys.stderr)
            return 1
        spent = f" (the one before took {time.monotonic() - began_s:.0f} s)"
    figures.show(options.bench, rounds)
    if getattr(options, "markdown", False):
        print(benches[options.bench].markdown(rounds))
    if options.json:
        figures.write_json(options.json, rounds)
    return 0


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number from 1 on")
    return int(text)


# Everything a benchmark can be asked for; its own OPTIONS say for which, and their defaults.
_OPTIONS: dict[str, dict[str, Any]] = {
    "--rounds": {"type": _positive, "help": "rounds (default: %(default)s)"},
    "--seconds": {"type": float, "help": "counted time of each part, s (default: %(default)s)"},
    "--clients": {"type": _positive, "help": "lockstep clients (default: %(default)s)"},
    "--values": {
        "type": _positive,
        "help": "uint8 values of an observation (default: %(default)s)",
    },
    "--most-clients": {
        "type": _positive,
        "help": "no more clients than that (default: %(default)s)",
    },
    "--frames": {"type": _positive, "help": "frames of the replay (default: %(default)s)"},
    "--most-frames": {
        "type": _positive,
        "help": "no larger replay than this, frames (default: %(default)s)",
    },
    "--fps": {"type": float, "help": "frames/s offered together (default: %(default)s)"},
    "--batch-size": {"type": _positive, "help": "transitions per step (default: %(default)s)"},
    "--trainer": {
        "choices": ("thread", "workers", "process"),
        "help": "where the learner runs (default: %(default)s)",
    },
    "--training-workers": {
        "type": _positive,
        "help": "threads of --trainer workers (default: %(default)s)",
    },
    "--sampling": {
        "choices": ("uniform", "priority", "both"),
        "help": "how transitions are chosen (default: %(default)s)",
    },
    "--markdown": {"action": "store_true", "help": "print the table of docs/benchmarks.md too"},
    "--warmup": {"type": float, "help": "time before each part, s (default: %(default)s)"},
    "--p99-ms": {"type": float, "help": "delay that is to be held, ms (default: %(default)s)"},
    "--fps-goal": {
        "type": float,
        "help": "frames/s that are to be held where clients ask for all they can get; 0: halfway "
        "between what they get beside training and without (default: %(default)s)",
    },
    "--telemetry": {
        "action": argparse.BooleanOptionalAction,
        "help": "measure what the event loop waits for (default: yes)",
    },
    "--niceness": {
        "type": int,
        "choices": range(20),
        "metavar": "N",
        "help": "how far emulators give way, 0 to 19 (default: the fleet's, %(default)s)",
    },
    "--gateways": {
        "metavar": "NUMBERS",
        "help": "how many there are, one after the other (default: %(default)s)",
    },
    "--learners": {
        "metavar": "NUMBERS",
        "help": "how many share the steps, one after the other (default: %(default)s)",
    },
    "--only": {"metavar": "NAMES", "help": "options or parts to measure, by commas (default: all)"},
    "--games": {
        "metavar": "NAMES",
        "help": "as --launch has them, by commas (default: %(default)s)",
    },
    "--heads": {"metavar": "NAMES", "help": "which, by commas (default: %(default)s)"},
    "--game": {"help": "an Atari game (default: %(default)s)"},
    "--observation": {
        "choices": ("features", "ram"),
        "help": "how it is seen (default: %(default)s)",
    },
    "--who": {
        "metavar": "NAMES",
        "help": "ours, sb3 (documented settings) and sb3-eager (our exploration), by commas "
        "(default: %(default)s)",
    },
    "--seeds": {"type": _positive, "help": "trainings of each (default: %(default)s)"},
    "--minutes": {"type": float, "help": "wall time of each training (default: %(default)s)"},
    "--every": {"type": float, "help": "s between exams (default: %(default)s)"},
    "--episodes": {"type": _positive, "help": "episodes of an exam (default: %(default)s)"},
    "--cores": {
        "type": int,
        "help": "cores of each training, so many at once as there are cores for; 0: all of them, "
        "one training at a time (default: %(default)s)",
    },
    "--sticky": {
        "type": float,
        "help": "share of frames in which an exam repeats the last action (default: %(default)s)",
    },
    "--with": {
        "metavar": "WORDS",
        "help": 'more of our server\'s command line: --with="--gamma 0.99" (default: none)',
    },
    "--fault-s": {"type": float, "help": "s between faults, about (default: %(default)s)"},
    "--results": {
        "type": Path,
        "metavar": "DIR",
        "help": "where trainings and exams are kept (default: runs/bench-GAME-OBSERVATION)",
    },
    "--svg": {"type": Path, "metavar": "FILE", "help": "picture (default: with the results)"},
    "--pin": {
        "action": argparse.BooleanOptionalAction,
        "help": "keep the server and a single client on a core each (default: no)",
    },
}


if __name__ == "__main__":
    sys.exit(main())
