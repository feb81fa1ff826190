"""Makes agents as the settings say, anew or from what a run has kept of them."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import config as config_module
from config import Config
from server.agent import Agent, LearningAgent, Memory, Schedules
from server.controls import Controls
from server.dials import CLIENT, Value
from server.learn import checkpoint as checkpoints
from server.learn.checkpoint import Checkpoint, CheckpointError
from server.learn.learner import Rules
from server.learn.network import Shape, Weights, image_shape, make_inference
from server.learn.policy import Coding, Policy
from server.learn.recipe import Recipe, Sampling
from server.learn.replay import MIN_CAPACITY, USUAL_CAPACITY, Layout, Replay
from server.learn.schedule import Linear
from server.spaces import Spaces, from_plain
from server.stats import EventLog
from server.train.actor import TrainingActor
from server.train.process import TrainingProcess
from server.train.thread import TrainingThread
from server.train.trainer import Home, Trainer
from server.train.workers import TrainingWorkers

_REPLAY = "replay.bin"
_GOVERNED_NICENESS = 10  # of training where something is to be held: docs/architecture.md
# Of a learner's process: shorter ones gain the event loop little (docs/architecture.md). Where
# something is to be held, each look of a second must see its share of them.
_LEAST_REST_S = 0.05

# Live settings whose bounds are those of a setting; where they have no schedule, its value too.
_SOURCES: dict[str, tuple[str, str]] = {
    "training": ("trainer", "training"),
    "epsilon": ("policy", "epsilon_start"),
    "expert_ratio": ("policy", "expert_start"),
    "learning_rate": ("learner", "learning_rate"),
    "steps_per_sample": ("trainer", "training_steps_per_sample"),
    "max_replay_ratio": ("trainer", "max_replay_ratio"),
    "n_step": ("learner", "n_step"),
    "heartbeat_s": ("policy", "heartbeat_s"),
}


def bounds() -> dict[str, tuple[float, float]]:
    """Give the bounds of the live settings that are numbers."""
    return {
        name: limits
        for name, source in _SOURCES.items()
        if (limits := config_module.bounds(*source)) is not None
    }


def naturals(config: Config) -> dict[str, Value]:
    """Give the live settings as the server starts with them."""
    switches = {"greedy": False, "expert": False, "exploring": True, "verbose": False}
    started = {
        name: getattr(getattr(config, section), setting)
        for name, (section, setting) in _SOURCES.items()
    }
    pushed = config_module.client_settings(config.server.client_setting)
    return {**switches, **started, **{CLIENT + name: value for name, value in pushed.items()}}


_IMAGE_STACK = 4  # frames: as in the literature


def make_agent(
    config: Config,
    directory: Path,
    name: str,
    game: str,
    spaces: Spaces,
    *,
    controls: Controls,
    events: EventLog,
    schedule_call: Callable[[Callable[[], None]], object],
    on_death: Callable[[str, BaseException], None],
    on_fall: Callable[[str], None],
    in_actor: Callable[[Recipe, Layout, Replay], TrainingActor] | None = None,
) -> tuple[LearningAgent, float | None]:
    """Give the agent, and when it was last saved (seconds since the epoch) if it ever was.

    Where its learner is ``in_actor``, the frames are there too, and none are kept here.
    """
    layout = _layout(config, spaces)
    replay = Replay.in_memory(Layout.of(spaces, MIN_CAPACITY))
    if in_actor is None:
        replay = _open_replay(config, directory, layout, events)
    if config.replay.replay_capacity is None and layout.capacity < USUAL_CAPACITY:
        events.add(_short_memory(name, spaces, layout))
    checkpoint, note = checkpoints.load(directory)
    if note:
        events.add(note, "warning")
    frames = max(replay.head, checkpoint.plain["frames"] if checkpoint else 0)
    dice = _dice(config, name, frames)
    cooked = recipe(config, spaces, dice[1])
    memory: Memory = replay
    trainer: Trainer
    if in_actor is not None:
        trainer = in_actor(cooked, layout, replay)
        memory = trainer.ring
    else:
        trainer = _trainer(
            config,
            directory,
            replay,
            cooked,
            name=name,
            controls=controls,
            on_death=lambda error: on_death(name, error),
            on_fall=on_fall,
        )
    parts = _parts(config, name, game, spaces, dice)
    agent = LearningAgent(
        directory=directory,
        replay=replay,
        memory=memory,
        trainer=trainer,
        controls=controls,
        schedule_call=schedule_call,
        tell=events.add,
        **parts,
    )
    return agent, _resume(agent, checkpoint, directory, spaces, parts["shape"], events)


def make_player(
    config: Config,
    directory: Path,
    name: str,
    game: str,
    spaces: Spaces,
    *,
    number: int,
    controls: Controls,
    events: EventLog,
    schedule_call: Callable[[Callable[[], None]], object],
    home: Callable[[Replay, Weights], Home],
    on_episode: Callable[[str, float, bool], None],
) -> Agent:
    """Give an agent that only plays, at the gateway of that number: its learner is elsewhere.

    Until that one sends weights it plays with those that any learner of these settings begins with.
    """
    layout = _layout(config, spaces)
    share = max(MIN_CAPACITY, layout.capacity // config.cluster.gateways)
    # A ring stays as large as it was made, however many gateways there are by now.
    kept = dataclasses.replace(layout, capacity=share).as_kept(directory / _REPLAY)
    replay = _open_replay(config, directory, kept, events)
    dice = _dice(config, f"{name}@{number}", replay.head)
    return Agent(
        directory=directory,
        replay=replay,
        trainer=home(replay, recipe(config, spaces, dice[1]).on_processor().make(replay).weights()),
        controls=controls,
        schedule_call=schedule_call,
        on_episode=on_episode,
        **_parts(config, name, game, spaces, dice),
    )


def playing_device(config: Config) -> str:
    """Give what computes answers; on a cluster, the device of the settings is for learners only."""
    return "cpu" if config.cluster.cluster else config.network.device


def _parts(
    config: Config, name: str, game: str, spaces: Spaces, dice: tuple[int, int, int]
) -> dict[str, Any]:
    """Give what an agent is made of wherever its learner lives."""
    shape = _shape(config, spaces)
    inference = make_inference(spaces, shape, playing_device(config), dice[2])
    return {
        "name": name,
        "game": game,
        "spaces": spaces,
        "shape": shape,
        "policy": Policy(inference, Coding(spaces.actions), dice[0]),
        "schedules": _schedules(config),
        "min_replay": config.replay.min_replay,
    }


def _dice(config: Config, name: str, frames: int) -> tuple[int, int, int]:
    """Give the seeds of play, of sampling and of noise.

    The frames so far go into them: a resumed run must not repeat its own dice.
    """
    seeds = np.random.SeedSequence([config.run.seed, zlib.crc32(name.encode()), frames])
    play, sample, noise = (int(seed) for seed in seeds.generate_state(3))
    return play, sample, noise


def _resume(
    agent: LearningAgent,
    checkpoint: Checkpoint | None,
    directory: Path,
    spaces: Spaces,
    shape: Shape,
    events: EventLog,
) -> float | None:
    """Go on from a checkpoint, if there is one; give when it was written."""
    if checkpoint is not None:
        _check_fits(checkpoint, directory, spaces, shape)
        agent.restore(checkpoint)
        events.add(
            f"agent {agent.name} resumed: {agent.frames:,} frames, "
            f"{agent.trainer.report.steps:,} steps, {agent.memory.size:,} frames in the replay"
        )
        return _saved_at(directory)
    if agent.replay.head:
        events.add(
            f"agent {agent.name} has no checkpoint: its {agent.replay.head:,} frames are kept, "
            "its network starts anew",
            "warning",
        )
    return None


def _layout(config: Config, spaces: Spaces) -> Layout:
    """Give the layout of the frames that a game's learner learns from."""
    settings = config.replay
    if settings.replay_capacity is not None:
        return Layout.of(spaces, settings.replay_capacity)
    return Layout.usual(spaces, 2 * settings.min_replay)


def _open_replay(config: Config, directory: Path, layout: Layout, events: EventLog) -> Replay:
    if config.replay.replay_storage == "memory":
        return Replay.in_memory(layout)
    replay = Replay.in_file(directory / _REPLAY, layout)
    if replay.note:
        events.add(replay.note, "warning")
    return replay


def _short_memory(name: str, spaces: Spaces, layout: Layout) -> str:
    """Say why a replay is smaller than most, and what a larger one would take."""
    usual = Layout.of(spaces, USUAL_CAPACITY)
    return (
        f"agent {name} remembers {layout.capacity:,} frames of {spaces.observation.describe()} "
        f"({layout.size_bytes() / 1e9:.1f} GB); --replay-capacity {USUAL_CAPACITY} would take "
        f"{usual.size_bytes() / 1e9:.1f} GB"
    )


def _shape(config: Config, spaces: Spaces) -> Shape:
    """Give the network's shape; what is left to us depends on what the game shows."""
    settings = dataclasses.asdict(config.network)
    device = settings.pop("device")
    if not settings["frame_stack"]:
        settings["frame_stack"] = _IMAGE_STACK if len(spaces.observation.shape) > 1 else 1
    if image_shape(spaces.observation) is None:
        settings["trunk"] = Shape().trunk  # there is none
    elif settings["trunk"] == "auto":
        settings["trunk"] = "small" if device == "cpu" else "nature"
    return Shape(**settings)


def recipe(config: Config, spaces: Spaces, sample_seed: int) -> Recipe:
    """Give what the learner of a game is made of."""
    replay, rules = config.replay, dataclasses.asdict(config.learner)
    return Recipe(
        spaces=spaces,
        shape=_shape(config, spaces),
        rules=Rules(steps_per_sample=config.trainer.training_steps_per_sample, **rules),
        sampling=Sampling(
            priorities=replay.sampling == "priority",
            seed=sample_seed,
            alpha=replay.priority_alpha,
            beta=replay.priority_beta,
            beta_steps=replay.priority_beta_steps,
        ),
        device=config.network.device,
        seed=config.run.seed,
    )


def _trainer(
    config: Config,
    directory: Path,
    replay: Replay,
    recipe: Recipe,
    *,
    name: str,
    controls: Controls,
    on_death: Callable[[BaseException], None],
    on_fall: Callable[[str], None],
) -> Trainer:
    """Give the learner the home that the settings ask for."""
    settings = config.trainer
    held = bool(settings.hold_fps or settings.hold_p99_ms)
    common: dict[str, Any] = {
        "name": name,
        "replay": replay,
        "min_replay": config.replay.min_replay,
        "max_replay_ratio": settings.max_replay_ratio,
        "controls": controls,
        "on_death": on_death,
        "niceness": _GOVERNED_NICENESS if held else 0,
    }
    if settings.trainer == "process":
        file = directory / _REPLAY
        return TrainingProcess(
            recipe=recipe,
            replay_file=file,
            directory=directory,
            on_fall=on_fall,
            least_rest_s=0.0 if held else _LEAST_REST_S,
            **common,
        )
    learner = recipe.make(replay)
    if settings.trainer == "workers":
        return TrainingWorkers(learner=learner, workers=settings.training_workers, **common)
    return TrainingThread(learner=learner, **common)


def _schedules(config: Config) -> Schedules:
    policy = config.policy
    return Schedules(
        epsilon=Linear(policy.epsilon_start, policy.epsilon_end, policy.epsilon_frames),
        noise=Linear(policy.noise_start, policy.noise_end, policy.epsilon_frames),
        expert_ratio=Linear(policy.expert_start, policy.expert_end, policy.expert_frames),
    )


def _check_fits(checkpoint: Checkpoint, directory: Path, spaces: Spaces, shape: Shape) -> None:
    """Refuse a checkpoint of another game or another network, describing both."""
    plain_values = checkpoint.plain
    if plain_values["spaces"] != spaces.to_plain():
        raise CheckpointError(
            f"the checkpoint in {directory} was made for "
            f"{from_plain(plain_values['spaces']).describe()}, not for {spaces.describe()}; "
            "name another agent, or use --fresh"
        )
    # A checkpoint of before there was a choice tells its hidden layers only; what it does not
    # tell was as it is by default.
    told = plain_values.get("shape") or {"hidden_sizes": plain_values.get("hidden_sizes")}
    found = {**Shape().to_plain(), **told}
    asked = shape.to_plain()
    different = [name for name, value in found.items() if asked[name] != value]
    if different:
        there = ", ".join(f"{name} = {found[name]}" for name in different)
        here = ", ".join(f"{name} = {asked[name]}" for name in different)
        raise CheckpointError(
            f"the checkpoint in {directory} has a network with {there}, the settings ask for "
            f"{here}; use {' '.join(_option(name, found[name]) for name in different)}, another "
            "--run, or --fresh"
        )


def _option(name: str, value: Any) -> str:
    """Give a setting as it is typed on the command line."""
    option = name.replace("_", "-")
    if isinstance(value, bool):
        return f"--{option}" if value else f"--no-{option}"
    return f"--{option} {','.join(map(str, value)) if isinstance(value, list) else value}"


def _saved_at(directory: Path) -> float:
    """Give when the checkpoint in use was written, seconds since the epoch."""
    times = [
        file.stat().st_mtime
        for file in (directory / checkpoints.NAME, directory / checkpoints.BACKUP)
        if file.exists()
    ]
    return times[0] if times else 0.0
