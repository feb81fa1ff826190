"""A tiny game whose frames learners can be tried on."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from server.learn.learner import Rules
from server.learn.network import Shape
from server.learn.recipe import Recipe, Sampling
from server.learn.replay import Frames, Layout, Replay
from server.spaces import Actions, Continuous, Discrete, Observation, Spaces

SPACES = Spaces(
    Observation("float32", (3,)),
    Actions((Discrete("stick", 2),), (Continuous("x", -1, 1),)),
    ("r",),
)
LAYOUT = Layout.of(SPACES, 4096)
PATIENCE_S = 60.0


def recipe(*, priorities: bool = False, noisy: bool = False, **rules: object) -> Recipe:
    settings = {"batch_size": 8, "steps_per_sample": 4, "learning_rate": 1e-3, **rules}
    return Recipe(
        spaces=SPACES,
        shape=Shape((8,), noisy=noisy),
        rules=Rules(**settings),  # type: ignore[arg-type]
        sampling=Sampling(priorities=priorities, seed=5),
        seed=3,
    )


def play(replay: Replay, frames: int) -> None:
    """Append frames of one endless episode."""
    rng = np.random.default_rng(replay.head)
    for _ in range(frames):
        head = replay.head
        replay.append(
            Frames(
                rng.normal(size=(1, 3)).astype(np.float32),
                rng.integers(0, 2, (1, 1)),
                rng.uniform(-1, 1, (1, 1)).astype(np.float32),
                [float(rng.normal())],
                [0],
                np.zeros(1, np.uint8),
                0,
                [head - 1],
            )
        )


def played(frames: int, file: Path | None = None) -> Replay:
    replay = Replay.in_memory(LAYOUT) if file is None else Replay.in_file(file, LAYOUT)
    play(replay, frames)
    return replay


def until(holds: Callable[[], bool]) -> None:
    """Wait for something that must come to pass."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.002)
