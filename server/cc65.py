"""Builds a game's ROM from C source with the compiler cc65."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

_PATIENCE_S = 60.0


class BuildError(ValueError):
    """A ROM that cannot be built; the message says why, with the compiler's own words."""


def build(source: Path, target: str) -> Path:
    """Give the ROM of a source for a console that cc65 knows, built unless it was before.

    ROMs are kept in the person's cache directory, by what they are built from.
    """
    try:
        text = source.read_bytes()
    except OSError as error:
        raise BuildError(f"cannot read the source {source}: {error.strerror}") from error
    digest = hashlib.sha256(text).hexdigest()[:16]
    rom = _cache() / f"{source.stem}-{digest}.{target}"
    if not rom.exists():
        _compile(source, target, rom)
    return rom


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "coinop"


def _compile(source: Path, target: str, rom: Path) -> None:
    """Compile and link; the ROM appears whole or not at all."""
    compiler = shutil.which("cl65")
    if compiler is None:
        raise BuildError(
            f"{source.name} is built with cc65, which is not installed; "
            "on Debian: apt-get install cc65"
        )
    try:
        rom.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=rom.parent) as room:
            # The compiler leaves its object file beside the source, so the source comes along.
            shutil.copy(source, room)
            arguments = [compiler, "-t", target, "-O", "-o", "rom", source.name]
            _run(arguments, Path(room), source)
            (Path(room) / "rom").replace(rom)
    except OSError as error:
        raise BuildError(f"cannot build {source.name} in {rom.parent}: {error}") from error


def _run(arguments: list[str], directory: Path, source: Path) -> None:
    try:
        done = subprocess.run(
            arguments,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_PATIENCE_S,
        )
    except subprocess.TimeoutExpired:
        raise BuildError(f"cc65 did not finish {source} within {_PATIENCE_S:g} s") from None
    if done.returncode != 0:
        raise BuildError(f"cc65 cannot build {source}:\n{done.stdout.strip()}")
