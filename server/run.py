"""A run's directory: one server at a time, one place for everything that must not be lost."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from server import document
from server.spaces import SpaceError, Spaces, check_name, from_plain

SETTINGS = "settings.json"  # of the newest start
_AGENT = "agent.json"
_AGENTS = (_AGENT, document.copy_of(Path(_AGENT)).name)
_OWNER_ONLY = 0o700


class RunError(RuntimeError):
    """A run directory that cannot be used; the message names it and the fix."""


class Run:
    """An open run: locked against other servers until it is closed."""

    def __init__(self, path: Path, lock: IO[str], kept_as: Path | None) -> None:
        self.path = path
        self.kept_as = kept_as  # where the run that had this name before is now
        self._lock = lock

    @classmethod
    def open(cls, runs: Path, name: str, *, fresh: bool) -> Run:
        """Open a run, making it if there is none; fresh moves an old one out of the way."""
        try:
            check_name("run", name)
        except SpaceError as error:
            raise RunError(f"--{error}") from error
        path = (runs / name).absolute()
        try:
            path.mkdir(parents=True, exist_ok=True)
            path.chmod(_OWNER_ONLY)  # one that is there already may have been open to all
            lock = _locked(path)
            kept_as = None
            if fresh and any(entry.name != "lock" for entry in path.iterdir()):
                kept_as = path.rename(_free_name(path))
                lock.close()
                path.mkdir(_OWNER_ONLY)
                lock = _locked(path)
        except OSError as error:
            raise RunError(f"cannot use the run directory {path}: {error.strerror}") from error
        return cls(path, lock, kept_as)

    def close(self) -> None:
        """Let other servers use the run."""
        self._lock.close()

    def agent_directory(self, agent: str) -> Path:
        """Give an agent's directory, made if need be."""
        path = self.path / "agents" / agent
        path.mkdir(parents=True, exist_ok=True)
        return path

    def agents(self, tell: Callable[[str], None]) -> dict[str, tuple[str, Spaces]]:
        """Give the game and spaces of every agent that the run has; tell of what is damaged."""
        return agents_of(self.path, tell)

    def write_agent(self, agent: str, game: str, spaces: Spaces) -> None:
        """Note what an agent plays, so that a resume finds it before any client says Hello."""
        path = self.agent_directory(agent) / _AGENT
        document.write(path, {"game": game, **spaces.to_plain()})
        document.sync_directory(path.parent.parent)

    def note_start(self, settings: dict[str, Any]) -> None:
        """Keep the full settings and versions beside the results, and those of every start.

        ``settings.json`` is the newest start, ``starts.jsonl`` all of them, one a line.
        """
        document.write(self.path / SETTINGS, settings)
        with (self.path / "starts.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(settings) + "\n")


def agents_of(path: Path, tell: Callable[[str], None]) -> dict[str, tuple[str, Spaces]]:
    """Give the game and spaces of every agent of a run, open or not; tell of what is damaged."""
    found = {}
    places = {file.parent for name in _AGENTS for file in path.glob(f"agents/*/{name}")}
    for place in sorted(places):
        file = place / _AGENT
        try:
            plain, note = document.read(file)
            found[place.name] = (check_name("game", plain["game"]), from_plain(plain))
        except (ValueError, KeyError, TypeError) as error:
            raise RunError(f"{file} is damaged ({error}); use --fresh or another --run") from error
        if note:
            tell(note)
    return found


def _locked(path: Path) -> IO[str]:
    lock = (path / "lock").open("a+", encoding="utf-8")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        lock.seek(0)
        holder = lock.read().strip() or "unknown"
        lock.close()
        raise RunError(
            f"the run {path} is in use by another server (process {holder}); "
            "end that one, or choose another --run"
        ) from error
    lock.truncate(0)
    lock.write(str(os.getpid()))
    lock.flush()
    return lock


def _free_name(path: Path) -> Path:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    candidate, number = path.with_name(f"{path.name}.{stamp}"), 1
    while candidate.exists():
        number += 1
        candidate = path.with_name(f"{path.name}.{stamp}-{number}")
    return candidate
