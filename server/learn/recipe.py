"""What a learner is made of, in plain values: the same learner can be made here or elsewhere."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from server.learn.learner import Learner, Rules
from server.learn.network import Shape
from server.learn.replay import Replay
from server.learn.sampler import PrioritySampler, UniformSampler
from server.learn.schedule import Linear
from server.spaces import Spaces, from_plain


@dataclass(frozen=True, slots=True)
class Sampling:
    """How transitions are chosen; alpha and beta are for priorities only."""

    priorities: bool
    seed: int
    alpha: float = 0.6
    beta: float = 0.4
    beta_steps: int = 200_000

    def make(self, replay: Replay, depth: int) -> UniformSampler:
        """Make the sampler over a replay, of observations that are stacks of so many frames."""
        if not self.priorities:
            return UniformSampler(replay, self.seed, depth=depth)
        beta = Linear(self.beta, 1.0, self.beta_steps)
        return PrioritySampler(replay, self.seed, alpha=self.alpha, beta=beta, depth=depth)


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything that decides what a learner is, but its replay and what it has learned."""

    spaces: Spaces
    shape: Shape
    rules: Rules
    sampling: Sampling
    device: str = "cpu"
    seed: int = 0

    def make(self, replay: Replay, clock: Callable[[], float] = time.monotonic) -> Learner:
        """Make a learner that has learned nothing yet."""
        return Learner(
            spaces=self.spaces,
            shape=self.shape,
            rules=self.rules,
            sampler=self.sampling.make(replay, self.shape.frame_stack),
            device=self.device,
            seed=self.seed,
            clock=clock,
        )

    def for_rank(self, rank: int) -> Recipe:
        """Give the same recipe with dice of its own, for one of several learners."""
        sampling = dataclasses.replace(self.sampling, seed=self.sampling.seed + rank)
        return dataclasses.replace(self, seed=self.seed + rank, sampling=sampling)

    def on_processor(self) -> Recipe:
        """Give the same recipe for where nothing is trained: any machine has a processor."""
        return dataclasses.replace(self, device="cpu")

    def to_plain(self) -> dict[str, Any]:
        """Give it as plain values."""
        return {
            "spaces": self.spaces.to_plain(),
            "shape": self.shape.to_plain(),
            "rules": dataclasses.asdict(self.rules),
            "sampling": dataclasses.asdict(self.sampling),
            "device": self.device,
            "seed": self.seed,
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Recipe:
        """Read what to_plain gave."""
        return cls(
            spaces=from_plain(plain["spaces"]),
            shape=Shape(
                **{**plain["shape"], "hidden_sizes": tuple(plain["shape"]["hidden_sizes"])}
            ),
            rules=Rules(**plain["rules"]),
            sampling=Sampling(**plain["sampling"]),
            device=plain["device"],
            seed=plain["seed"],
        )
