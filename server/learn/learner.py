"""Makes the network better: sample, target, loss, backward, clip, optimise, target update."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.optim.adamw import adamw

from server.learn.loss import Batch, double_dqn_target, hybrid_loss
from server.learn.network import HybridNetwork, Weights, flatten_parameters
from server.learn.replay import Transitions
from server.learn.sampler import UniformSampler
from server.spaces import Spaces


@dataclass(frozen=True, slots=True)
class Rules:
    """How a learner learns: the settings of a gradient step."""

    batch_size: int = 256
    steps_per_sample: int = 4
    learning_rate: float = 5e-4
    weight_decay: float = 1e-5
    gamma: float = 0.99
    n_step: int = 3
    target_update: str = "soft"
    target_tau: float = 0.005
    target_period: int = 1000
    gradient_clip: float = 10.0
    gradient_accumulation: int = 1
    continuous_weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Report:
    """What a learner has done so far; counters only grow."""

    steps: int = 0
    samples: int = 0
    transitions: int = 0
    skipped: int = 0
    loss: float | None = None
    gradient_norm: float | None = None
    q_min: float | None = None
    q_mean: float | None = None
    q_max: float | None = None


class Learner:
    """Owns the network that trains, its target and its optimizer; knows no thread."""

    def __init__(
        self,
        *,
        spaces: Spaces,
        hidden_sizes: tuple[int, ...],
        rules: Rules,
        sampler: UniformSampler,
        device: str = "cpu",
        seed: int = 0,
    ) -> None:
        self.rules = rules
        self.report = Report()
        self._heads = spaces.actions.heads
        self._device = torch.device(device)
        self._sampler = sampler
        starts = [sum(self._heads[:head]) for head in range(len(self._heads))]
        self._offsets = torch.tensor(starts, device=self._device)
        # A generator of its own: torch's global one belongs to nobody.
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self._online = HybridNetwork(spaces, hidden_sizes).to(self._device)
            self._target = HybridNetwork(spaces, hidden_sizes).to(self._device)
        self._flat, self._gradient = flatten_parameters(self._online)
        self._target_flat, _ = flatten_parameters(self._target)
        self._target_flat.copy_(self._flat)
        self._target.requires_grad_(False)
        self._moments = {
            "exp_avg": torch.zeros_like(self._flat),
            "exp_avg_sq": torch.zeros_like(self._flat),
            "step": torch.zeros((), device=self._device),
        }
        self._version = 0

    def train(self) -> bool:
        """Gather one sample and take all its steps; False where there is nothing to learn from."""
        rules = self.rules
        batches = rules.steps_per_sample * rules.gradient_accumulation
        transitions = self._sampler.sample(
            batches * rules.batch_size, n_step=rules.n_step, gamma=rules.gamma
        )
        if transitions is None:
            return False
        parts = transitions.split(batches)
        for first in range(0, batches, rules.gradient_accumulation):
            self.step(parts[first : first + rules.gradient_accumulation])
        self.report = replace(self.report, samples=self.report.samples + 1)
        return True

    def step(self, parts: list[Transitions]) -> None:
        """Take one gradient step on the mean gradient of these batches."""
        self._gradient.zero_()
        loss_sum = 0.0
        for transitions in parts:
            batch = self._to_batch(transitions)
            with torch.no_grad():
                online_next = self._online(batch.next_observation).values
                target_next = self._target(batch.next_observation).values
                target = double_dqn_target(
                    batch.reward, batch.discount, online_next, target_next, self._heads
                )
            online = self._online(batch.observation)
            loss = hybrid_loss(
                online, target, batch, self._heads, self._offsets, self.rules.continuous_weight
            )
            (loss.total / len(parts)).backward()  # type: ignore[no-untyped-call]
            loss_sum += float(loss.total.detach())
        norm = float(torch.linalg.vector_norm(self._gradient))
        finite = math.isfinite(loss_sum) and math.isfinite(norm)
        if finite:
            self._clip(norm)
            self._optimise()
            self._update_target()
        self._note(len(parts), finite, loss_sum / len(parts), norm, loss.chosen)

    def refresh_target(self) -> None:
        """Make the target equal to the network that trains."""
        self._target_flat.copy_(self._flat)

    def weights(self) -> Weights:
        """Give a whole copy of the weights, with a version of its own."""
        self._version += 1
        flat = self._flat.to("cpu", copy=True).numpy()
        return Weights(self._version, self.report.steps, time.monotonic(), flat)

    def get_state(self) -> dict[str, Any]:
        """Give everything a checkpoint needs: tensors by name, and plain counters."""
        tensors = {f"online.{k}": v.detach().clone() for k, v in self._online.state_dict().items()}
        tensors |= {f"target.{k}": v.detach().clone() for k, v in self._target.state_dict().items()}
        tensors |= {f"optimizer.{k}": v.clone() for k, v in self._moments.items()}
        report = self.report
        return {
            "tensors": tensors,
            "counters": {
                "steps": report.steps,
                "samples": report.samples,
                "transitions": report.transitions,
                "skipped": report.skipped,
                "version": self._version,
            },
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what get_state gave."""
        tensors: Mapping[str, Tensor] = state["tensors"]
        self._online.load_state_dict(_under("online.", tensors))
        self._target.load_state_dict(_under("target.", tensors))
        for name, moment in _under("optimizer.", tensors).items():
            self._moments[name].copy_(moment)
        counters = dict(state["counters"])
        self._version = counters.pop("version")
        self.report = Report(**counters)

    def _to_batch(self, transitions: Transitions) -> Batch:
        def tensor(array: np.ndarray[Any, Any]) -> Tensor:
            return torch.from_numpy(array).to(self._device)

        return Batch(
            tensor(transitions.observation),
            tensor(transitions.choice).long(),
            tensor(transitions.continuous),
            tensor(transitions.reward),
            tensor(transitions.discount),
            tensor(transitions.next_observation),
        )

    def _clip(self, norm: float) -> None:
        limit = self.rules.gradient_clip
        if 0 < limit < norm:
            self._gradient.mul_(limit / norm)

    def _optimise(self) -> None:
        """Take AdamW's step, through torch's functional form.

        The optimizer's class would import half of torch's compiler with its first instance:
        seconds in which nobody is answered, and 80 MB.
        """
        moments = self._moments
        adamw(
            [self._flat],
            [self._gradient],
            [moments["exp_avg"]],
            [moments["exp_avg_sq"]],
            [],
            [moments["step"]],
            fused=self._device.type != "mps",
            foreach=False,
            amsgrad=False,
            beta1=0.9,
            beta2=0.999,
            lr=self.rules.learning_rate,
            weight_decay=self.rules.weight_decay,
            eps=1e-8,
            maximize=False,
        )

    def _update_target(self) -> None:
        if self.rules.target_update == "soft":
            self._target_flat.lerp_(self._flat, self.rules.target_tau)
        elif (self.report.steps + 1) % self.rules.target_period == 0:
            self.refresh_target()

    def _note(self, batches: int, finite: bool, loss: float, norm: float, chosen: Tensor) -> None:
        before = self.report
        low, high = (float(bound) for bound in chosen.aminmax())
        self.report = replace(
            before,
            steps=before.steps + finite,
            transitions=before.transitions + batches * self.rules.batch_size * finite,
            skipped=before.skipped + (not finite),
            loss=loss,
            gradient_norm=norm,
            q_min=low,
            q_mean=float(chosen.mean()),
            q_max=high,
        )


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }
