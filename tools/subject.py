"""Who is evaluated: an agent of a run, the weights of one of its checkpoints, and its game."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import config
from server import dials, document, emulators, journal
from server import fleet as fleet_module
from server import run as run_module
from server.fleet import Launch
from server.learn import checkpoint as checkpoints
from server.learn.checkpoint import Checkpoint
from server.learn.learner import played
from server.learn.network import Shape, Weights, to_flat
from server.spaces import Spaces

_KINDS = {"latest": checkpoints.LATEST, "best": checkpoints.BEST}
_ADVICE = {
    "latest": "one is written half a minute after a start, and at its end",
    "best": "the evaluations during training keep one (--eval-interval-s); use --latest until then",
}


class SubjectError(Exception):
    """There is nothing to evaluate; the message says why, and how to get something."""


@dataclass(frozen=True, slots=True)
class Subject:
    """An agent with the weights of one checkpoint."""

    run: Path
    agent: str
    game: str
    spaces: Spaces
    which: str  # "latest" or "best"
    checkpoint: Checkpoint
    client_settings: dict[str, Any]  # what the game's script is told: a start level, say

    @property
    def frames(self) -> int:
        """Frames the agent had collected."""
        return int(self.checkpoint.plain["frames"])

    @property
    def steps(self) -> int:
        """Steps the learner had taken."""
        plain = self.checkpoint.plain
        return int(plain["learner"]["steps"] if "learner" in plain else plain["steps"])

    @property
    def shape(self) -> Shape:
        """Shape of its network."""
        plain = self.checkpoint.plain
        # A checkpoint of before there was a choice tells its hidden layers only.
        return Shape.from_plain(plain.get("shape") or {"hidden_sizes": plain["hidden_sizes"]})

    def weights(self) -> Weights:
        """Give the weights as one array."""
        tensors = played(self.checkpoint.tensors)
        return Weights(0, self.steps, 0.0, to_flat(self.spaces, self.shape, tensors))

    def launch(self, game: str) -> Launch:
        """Find how its game is played: as asked, as the run did, or as the list of games says."""
        if ":" in game:
            return _quiet(fleet_module.parse(game))
        for launch in _launches(self.run):
            if title(launch.game) == self.game:
                return _quiet(launch)
        if self.game in emulators.atari_games():
            return _quiet(Launch("ale", self.game))
        if self.game in emulators.games():
            return _quiet(Launch(emulators.games()[self.game][0], self.game))
        raise SubjectError(
            f"nothing says how {self.game!r} is played: the run did not start its emulators; "
            f"name it with --game EMULATOR:GAME, such as gym:{self.game}"
        )

    def observation(self, launch: Launch) -> str:
        """Say how the agent sees an Atari game."""
        if launch.emulator != "ale":
            return ""
        seen = self.spaces.observation
        if seen.dtype == "float32":
            return "features"
        return "ram" if len(seen.shape) == 1 else "image"


def find(runs: Path, run: str, *, agent: str | None, game: str, which: str) -> Subject:
    """Find the agent that is meant, and read its weights."""
    path = runs / run
    if not path.is_dir():
        known = sorted(entry.name for entry in runs.glob("*") if entry.is_dir())
        raise SubjectError(f"no run {run!r} in {runs}; there are: {', '.join(known) or 'none'}")
    agents = run_module.agents_of(path, _warn)
    there = ", ".join(f"{name} (plays {about[0]})" for name, about in agents.items()) or "none yet"
    _check_played(agents, agent, game, there)
    name = _chosen(agents, agent, title(game.rpartition(":")[2]))
    if name is None:
        raise SubjectError(f"which agent of run {run!r}? There are: {there}; name one with --agent")
    directory = path / "agents" / name
    checkpoint, note = checkpoints.load(directory, _KINDS[which])
    if note:
        print(f"coinop: {note}", file=sys.stderr)
    if checkpoint is None:
        raise SubjectError(
            f"agent {name!r} has no {which} checkpoint in {directory}: {_ADVICE[which]}"
        )
    return Subject(path, name, *agents[name], which, checkpoint, _client_settings(path))


def title(game: str) -> str:
    """Give a game's name as clients announce it."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", game)


def _chosen(agents: Mapping[str, tuple[str, Spaces]], agent: str | None, game: str) -> str | None:
    """Give the one agent that fits; None if there is none, or several."""
    if agent is not None:
        return agent if agent in agents else None
    fitting = [name for name, (plays, _) in agents.items() if plays == game] or list(agents)
    return fitting[0] if len(fitting) == 1 else None


def _check_played(
    agents: Mapping[str, tuple[str, Spaces]], agent: str | None, game: str, there: str
) -> None:
    """Refuse a game that nobody who is meant plays.

    EMULATOR:GAME says how it is played, which may have another name.
    """
    meant = [agent] if agent is not None and agent in agents else list(agents)
    if game and ":" not in game and title(game) not in {agents[name][0] for name in meant}:
        who = f"agent {agent!r} does not play" if agent in agents else "no agent plays"
        raise SubjectError(f"{who} {game!r}; there are: {there}")


def _client_settings(run: Path) -> dict[str, Any]:
    """Give what the run tells its clients: as it was last started, and what people chose since."""
    natural = dict(config.client_settings(_settings(run)["server"]["client_setting"]))
    told = dict(natural)
    for change in journal.read(run / journal.NAME)[0]:
        if change.kind is journal.Kind.DEED or not change.name.startswith(dials.CLIENT):
            continue
        name = change.name.removeprefix(dials.CLIENT)
        chosen = natural.get(name) if change.new is None else change.new
        if chosen is None:
            told.pop(name, None)
        elif not isinstance(chosen, journal.Ramp):
            told[name] = chosen
    return told


def _launches(run: Path) -> Iterator[Launch]:
    """Give what the run last launched."""
    settings = _settings(run)
    for text in settings["emulators"]["launch"]:
        yield fleet_module.parse(text)
    for entry in settings["fleet"]:
        yield Launch(entry["emulator"], entry["game"])


def _settings(run: Path) -> dict[str, Any]:
    """Give the settings that the run was last started with; empty ones if they are lost."""
    empty = {"server": {"client_setting": []}, "emulators": {"launch": []}, "fleet": []}
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        found, note = document.read(run / run_module.SETTINGS)
        if note:
            _warn(note)
        return {**empty, **found["settings"]}
    return empty


def _warn(text: str) -> None:
    print(f"coinop: {text}", file=sys.stderr)


def _quiet(launch: Launch) -> Launch:
    """Give the launch of one emulator that nobody watches."""
    return Launch(launch.emulator, launch.game, show=False, throttle=False).check()
