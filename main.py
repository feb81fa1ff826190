"""Coinop's command line: settings in, a running server out."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import config

_ABOUT = """\
Train agents on games that run in emulators. The server takes a frame from every emulator,
answers each with an action, and learns while they play."""

_EXAMPLES = """\
examples:
  python main.py                                  wait for emulators (see the commands it shows)
  python main.py --launch ale:pong=2              start two Atari emulators that play Pong
  python main.py --run breakout --launch ale:breakout=4 --batch-size 512
  python main.py --run breakout                   go on with that run
  python main.py --config my.toml --fresh         start over; the old run is kept

Settings come from their defaults, then --config FILE, then the command line.
docs/configuration.md explains each of them."""


def main(arguments: list[str] | None = None) -> int:
    """Read the command line and serve; give the process's exit code."""
    _pin_threads()
    parser = make_parser()
    options = parser.parse_args(arguments)
    try:
        base = config.read_toml(options.config) if options.config else {}
        settings = config.from_arguments(options, base)
        token = _read_token(settings.server.token_file)
    except config.ConfigError as error:
        print(f"coinop: {error}", file=sys.stderr)
        return 2
    if sys.stdout.isatty():
        print("coinop: starting (loading torch takes a few seconds)", flush=True)
    # Imported late: --help and a wrong option should not wait for torch.
    try:
        from server.app import serve
    except ModuleNotFoundError as error:
        print(
            f"coinop: {error.name} is not installed for this Python; run `make install` and use "
            ".venv/bin/python",
            file=sys.stderr,
        )
        return 2
    return serve(settings, token=token)


def make_parser() -> argparse.ArgumentParser:
    """Build the parser: every setting of config.py, and the file that may hold them."""
    parser = argparse.ArgumentParser(
        prog="main.py",
        usage="python main.py [--config FILE] [options]",
        description=_ABOUT,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="TOML file with settings")
    config.add_arguments(parser)
    return parser


def _read_token(path: str) -> str:
    if not path:
        return os.environ.get("COINOP_TOKEN", "")
    try:
        token = Path(path).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise config.ConfigError(f"cannot read token_file = {path}: {error.strerror}") from error
    if not token:
        raise config.ConfigError(f"token_file = {path} is empty; put the secret on its first line")
    return token


def _pin_threads() -> None:
    """Keep BLAS and OpenMP to one thread each; unpinned they cost 3 to 30 times (see docs)."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")


if __name__ == "__main__":
    sys.exit(main())
