"""The benchmarks' command line: ``python -m bench serve``, ``hold`` and ``memory``."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path


def main() -> int:
    """Run a benchmark for some rounds and show its figures."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    import uvloop

    from bench import figures, hold, memory, serve

    benches = {"serve": serve, "hold": hold, "memory": memory}
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure Coinop on this machine. Load clients run in a process of their own.",
        epilog="All figures are medians over the rounds; docs/benchmarks.md explains each.",
    )
    commands = parser.add_subparsers(dest="bench", required=True, metavar="BENCH")
    for name, module in benches.items():
        command = commands.add_parser(name, help=module.ABOUT, description=module.ABOUT)
        _add_options(command)
    options = parser.parse_args()
    rounds: list[figures.Round] = []
    for number in range(options.rounds):
        print(f"{options.bench}: round {number + 1} of {options.rounds} ...", file=sys.stderr)
        rounds.append(uvloop.run(benches[options.bench].measure(options)))
    figures.show(options.bench, rounds)
    if options.json:
        figures.write_json(options.json, rounds)
    return 0


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number from 1 on")
    return int(text)


def _add_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--rounds", type=_positive, default=3, help="rounds (default: 3)")
    command.add_argument(
        "--seconds", type=float, default=5.0, help="counted time of each part, s (default: 5)"
    )
    command.add_argument("--clients", type=int, default=16, help="lockstep clients (default: 16)")
    command.add_argument(
        "--values", type=int, default=128, help="uint8 values of an observation (default: 128)"
    )
    command.add_argument("--json", type=Path, metavar="FILE", help="write the medians to FILE")
    if command.prog.endswith("serve"):
        command.add_argument(
            "--pin",
            action=argparse.BooleanOptionalAction,
            default=False,
            help="keep the server and a single client on a core each (default: no)",
        )
    else:
        command.add_argument(
            "--fps", type=float, default=2000.0, help="frames/s offered together (default: 2000)"
        )
        command.add_argument(
            "--batch-size", type=int, default=256, help="transitions per step (default: 256)"
        )


if __name__ == "__main__":
    sys.exit(main())
