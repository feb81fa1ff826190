"""Greedy episodes with fixed seeds for saved networks, ours or a rival's, all in the same way.

The game is the client's own, in this process. Each episode begins with a few decisions at random:
without them a deterministic player of an Atari game plays only four different games.
"""

from __future__ import annotations

import json
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
from numpy.typing import NDArray

from client_py.ale import AleGame
from server.net.wire import Choice

SEED = 90_000  # of the first episode: no training comes here
OPENING = 20  # decisions at random, at most

Player = Callable[[bytes, bool], int]  # (observation, whether it is an episode's first) -> choice


@dataclass(frozen=True, slots=True)
class Exam:
    """What is played, and how often."""

    game: str
    observation: str
    episodes: int
    sticky: float = 0.0  # share of frames in which the last action is repeated

    def take(self, play: Player) -> list[float]:
        """Give the return of each episode."""
        return [self._episode(play, SEED + number) for number in range(self.episodes)]

    def _episode(self, play: Player, seed: int) -> float:
        game = AleGame(
            self.game,
            observation=self.observation,
            seed=seed,
            repeat_action_probability=self.sticky,
        )
        dice = random.Random(seed)
        opening = dice.randint(0, OPENING)
        choices = game.spaces.actions.discrete[0].choices
        seen, total, decision = game.reset(seed), 0.0, 0
        while True:
            choice = play(seen, decision == 0)
            if decision < opening:
                choice = dice.randrange(choices)
            step = game.step(Choice([choice], []))
            seen, decision = step.observation, decision + 1
            total += sum(step.rewards)
            if step.terminal or step.truncated:
                return total


def returns(exam: Exam, who: str, path: Path) -> list[float]:
    """Examine a saved network; for a process of its own."""
    import torch

    torch.set_num_threads(1)
    return exam.take(_ours(path) if who == "ours" else _rival(path, exam))


def _ours(path: Path) -> Player:
    """Give the player of a checkpoint."""
    from server.learn import checkpoint
    from server.learn.learner import played
    from server.learn.network import Shape, Weights, make_inference, to_flat
    from server.spaces import from_plain

    saved = checkpoint.read(path)
    spaces = from_plain(saved.plain["spaces"])
    shape = Shape.from_plain(saved.plain["shape"])
    inference = make_inference(spaces, shape, "cpu", None)  # noisy layers are still
    inference.load(Weights(1, 0, 0.0, to_flat(spaces, shape, played(saved.tensors))))
    dtype = np.dtype(spaces.observation.dtype)
    frames: deque[NDArray[Any]] = deque(maxlen=shape.frame_stack)

    def play(seen: bytes, first: bool) -> int:
        frame = np.frombuffer(seen, dtype)
        if first:  # as in the replay: the oldest frame stands in for those before it
            frames.extend([frame] * shape.frame_stack)
        frames.append(frame)
        return inference.best(np.concatenate(frames).tobytes())[0][0]

    return play


def _rival(path: Path, exam: Exam) -> Player:
    """Give the player of a plain MLP with ReLU between its layers."""
    with safetensors.safe_open(path, framework="numpy") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    names = sorted({name.split(".")[0] for name in tensors})
    layers = [(tensors[f"{n}.weight"].T.copy(), tensors[f"{n}.bias"]) for n in names]

    def play(seen: bytes, first: bool) -> int:
        if exam.observation == "ram":
            x = np.frombuffer(seen, np.uint8).astype(np.float32) / np.float32(255)
        else:
            x = np.frombuffer(seen, "<f4")
        for weight, bias in layers[:-1]:
            x = np.maximum(x @ weight + bias, np.float32(0))
        return int((x @ layers[-1][0] + layers[-1][1]).argmax())

    return play


def told(path: Path) -> dict[str, float]:
    """Give what a rival's file says about itself: wall time, frames, steps."""
    with safetensors.safe_open(path, framework="numpy") as file:
        point: dict[str, float] = json.loads(file.metadata()["point"])
    return point
