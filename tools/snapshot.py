"""Saves the newest picture of each client's screen as a PNG file.

There are pictures if the server was started with --preview-every N: each client then shows its
screen with every Nth frame, and the run keeps the newest one of each, written once a second.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path
from typing import NamedTuple

import config
from server.album import DIRECTORY

_UNITS = ((86400, "days"), (3600, "h"), (60, "min"))


class NoPictureError(Exception):
    """There is nothing to save; the message says why, and how to get a picture."""


class Picture(NamedTuple):
    """The newest picture of one client."""

    path: Path
    run: str
    client: str
    time_s: float


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this command."""
    add = parser.add_argument
    add("--run", metavar="NAME", help="run to look into (default: that of the newest picture)")
    add(
        "--runs-dir",
        metavar="DIR",
        type=Path,
        default=Path(config.Run().runs_dir),
        help="directory that holds all runs (default: %(default)s)",
    )
    add("--client", metavar="NAME", help="client whose screen to save (default: each)")
    add(
        "--out",
        metavar="FILE",
        type=Path,
        help="save the newest one only, there (default: each as RUN-CLIENT-TIME.png, here)",
    )


def run(options: argparse.Namespace) -> int:
    """Save the pictures and say where; give the exit code."""
    try:
        pictures = _chosen(options.runs_dir, options.run, options.client)
        if options.out is not None:
            pictures = pictures[:1]
        for picture in pictures:
            target = options.out or Path(_file_name(picture))
            shutil.copyfile(picture.path, target)
            age = _duration(time.time() - picture.time_s)
            print(f"saved {target}: {picture.client} in run {picture.run}, {age} ago")
    except NoPictureError as error:
        print(f"coinop: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"coinop: cannot save the picture: {error}", file=sys.stderr)
        return 1
    return 0


def _chosen(runs: Path, run: str | None, client: str | None) -> list[Picture]:
    """Find the pictures that are asked for, the newest first; all are of one run."""
    known = sorted(path.name for path in runs.iterdir() if path.is_dir()) if runs.is_dir() else []
    if run is not None and run not in known:
        there = ", ".join(known) or "none"
        raise NoPictureError(f"no run {run!r} in {runs}; there are: {there}")
    found = [picture for name in ([run] if run else known) for picture in _pictures(runs, name)]
    if not found:
        where = runs / run if run else f"any run of {runs}"
        raise NoPictureError(
            f"no picture in {where}: start the server with --preview-every 60, "
            "and a client that has a screen"
        )
    found.sort(key=lambda picture: picture.time_s, reverse=True)
    found = [picture for picture in found if picture.run == found[0].run]
    chosen = [picture for picture in found if client in (None, picture.client)]
    if not chosen:
        there = ", ".join(sorted(picture.client for picture in found))
        raise NoPictureError(
            f"no picture of client {client!r} in run {found[0].run!r}; there are: {there}"
        )
    return chosen


def _pictures(runs: Path, run: str) -> list[Picture]:
    paths = (runs / run / DIRECTORY).glob("*.png")
    return [Picture(path, run, path.stem, path.stat().st_mtime) for path in paths]


def _file_name(picture: Picture) -> str:
    """Name a picture by what it shows and when, so that no other is overwritten."""
    when = time.strftime("%Y%m%d-%H%M%S", time.localtime(picture.time_s))
    return f"{picture.run}-{picture.client}-{when}.png"


def _duration(seconds: float) -> str:
    for size, unit in _UNITS:
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"
