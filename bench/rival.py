"""Whom we compare with: Stable-Baselines3's DQN on an Atari game, in a process of its own.

``python -m bench.rival OPTIONS`` trains for a wall time and writes its network every now and then.
It sees the game through the same code as our client. Its settings are those that its authors
document for Atari games (RL Baselines3 Zoo, hyperparams/dqn.yml), with an MLP in place of the
convolutions.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import safetensors.torch
import torch
from numpy.typing import NDArray
from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import BaseCallback

from client_py.ale import AleGame
from server.net.wire import Choice

DOCUMENTED: dict[str, Any] = {
    "buffer_size": 100_000,
    "learning_rate": 1e-4,
    "batch_size": 32,
    "learning_starts": 100_000,
    "target_update_interval": 1000,
    "train_freq": 4,
    "gradient_steps": 1,
    "exploration_fraction": 0.1,
    "exploration_final_eps": 0.01,
}
TIMESTEPS = 10_000_000  # documented too; exploration falls over a tenth of them
# The same with our schedule of exploration and our start of learning: made for minutes, not days.
EAGER: dict[str, Any] = {
    **DOCUMENTED,
    "learning_starts": 2_000,
    "exploration_fraction": 60_000 / TIMESTEPS,
    "exploration_final_eps": 0.02,
}
SETTINGS = {"sb3": DOCUMENTED, "sb3-eager": EAGER}
LAYERS = [128, 128]  # as ours

Vector = NDArray[np.float32]


class AleEnv(gymnasium.Env[Vector, np.int64]):
    """Our client's game as a Gymnasium environment, with what the documented wrapper does.

    A lost life ends an episode, and rewards are their signs. Bytes are scaled, as in our network.
    """

    def __init__(self, game: str, observation: str, seed: int) -> None:
        self._game = AleGame(game, observation=observation, seed=seed)
        self._seed = seed
        self._over = True  # the game; an episode may end before
        self._last = b""
        self._lives = 0
        space = self._game.spaces
        self._bytes = space.observation.dtype == "uint8"
        bound = 1.0 if self._bytes else np.inf
        self.observation_space = gymnasium.spaces.Box(-bound, bound, (space.observation.values,))
        self.action_space = gymnasium.spaces.Discrete(space.actions.discrete[0].choices)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Vector, dict[str, Any]]:
        """Start a game, or go on with the next life."""
        if self._over:
            self._last = self._game.reset(self._seed)
            self._seed += 1
            self._over, self._lives = False, 0
        return self._vector(), {}

    def step(self, action: np.int64) -> tuple[Vector, float, bool, bool, dict[str, Any]]:
        """Hold the stick for one decision."""
        step = self._game.step(Choice([int(action)], []))
        self._last = step.observation
        lives = step.info.get("lives", 0)
        lost = lives < self._lives
        self._lives = lives
        self._over = step.terminal or step.truncated
        reward = float(np.sign(step.rewards[0]))
        return self._vector(), reward, step.terminal or lost, step.truncated, {}

    def _vector(self) -> Vector:
        if self._bytes:
            return np.frombuffer(self._last, np.uint8).astype(np.float32) / np.float32(255)
        return np.frombuffer(self._last, "<f4").astype(np.float32)


class Diary(BaseCallback):
    """Writes the network every now and then, and ends the training in time."""

    def __init__(self, to: Path, began_s: float, every_s: float, seconds: float) -> None:
        super().__init__()
        self._to = to
        self._began_s, self._every_s, self._seconds = began_s, every_s, seconds
        self._next_s = every_s

    def _on_step(self) -> bool:
        wall_s = time.time() - self._began_s
        if wall_s >= self._next_s:
            self._next_s += self._every_s
            self._write(wall_s)
        return wall_s < self._seconds

    def _on_training_end(self) -> None:
        self._write(min(time.time() - self._began_s, self._seconds))

    def _write(self, wall_s: float) -> None:
        model: Any = self.model
        tensors = {
            f"{number:02}.{name}": value.detach().contiguous().clone()
            for number, layer in enumerate(
                m for m in model.policy.q_net.q_net if isinstance(m, torch.nn.Linear)
            )
            for name, value in (("weight", layer.weight), ("bias", layer.bias))
        }
        told = {"wall_s": wall_s, "frames": model.num_timesteps, "steps": model._n_updates}
        path = self._to / f"{round(wall_s):06}.safetensors"
        data = safetensors.torch.save(tensors, {"point": json.dumps(told)})
        path.with_suffix(".new").write_bytes(data)
        path.with_suffix(".new").replace(path)  # complete or absent


def main() -> None:
    """Train as the options say."""
    parser = argparse.ArgumentParser(prog="python -m bench.rival", description=__doc__)
    add = parser.add_argument
    add("--settings", choices=SETTINGS, required=True)
    add("--game", required=True)
    add("--observation", required=True)
    add("--seed", type=int, required=True)
    add("--seconds", type=float, required=True)
    add("--every", type=float, required=True, help="s between networks written")
    add("--began", type=float, required=True, help="when the clock started, s since the epoch")
    add("--threads", type=int, default=1, help="of torch; one is faster here than two")
    add("--to", type=Path, required=True, help="directory for the networks")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model = DQN(
        "MlpPolicy",
        AleEnv(options.game, options.observation, options.seed * 1_000_000),
        policy_kwargs={"net_arch": LAYERS},
        seed=options.seed,
        device="cpu",
        **SETTINGS[options.settings],
    )
    diary = Diary(options.to, options.began, options.every, options.seconds)
    model.learn(TIMESTEPS, callback=diary)


if __name__ == "__main__":
    main()
