"""What a run is made with: its settings, the versions behind it, the machine."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import os
import platform
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from server import VERSION

PACKAGES = ("torch", "numpy", "msgpack", "uvloop", "safetensors", "gymnasium", "ale-py")
_GIT_S = 5.0


def described(settings: Any, programs: Mapping[str, str]) -> dict[str, Any]:
    """Give all that it takes to do a start again: settings (a dataclass), seed, versions.

    Programs are those that we start, the emulators, with their versions.
    """
    return {
        "time_s": round(time.time(), 3),
        "command": sys.argv,
        "seed": settings.run.seed,
        "settings": dataclasses.asdict(settings),
        "versions": {**installed(), **programs},
        "machine": {
            "system": platform.platform(),
            "processor": platform.machine(),
            "cores": os.cpu_count(),
        },
    }


def installed() -> dict[str, str | None]:
    """Give the versions of Coinop, of Python and of what we build on; None: not installed."""
    return {
        "coinop": VERSION,
        "commit": _commit(),
        "python": platform.python_version(),
        **{name: _package(name) for name in PACKAGES},
    }


def _package(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    """Give the commit of our own source, with a mark if it was changed since."""
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--exclude", "*"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=_GIT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None  # not a checkout, or no git
    return done.stdout.strip() or None
