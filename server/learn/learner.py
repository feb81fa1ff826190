"""Makes the network better: sample, target, loss, backward, clip, optimise, target update."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.optim.adamw import adamw

from server.controls import Controls
from server.learn import loss as losses
from server.learn.loss import Batch, Loss, Target
from server.learn.network import (
    HybridNetwork,
    Outputs,
    Shape,
    Weights,
    flatten_parameters,
    to_bins,
)
from server.learn.sampler import Sample, UniformSampler
from server.learn.schedule import Linear, Warmed
from server.net.wire import Source
from server.spaces import Spaces

_MUNCHAUSEN_TEMPERATURE = 0.03  # as in the paper


@dataclass(frozen=True, slots=True)
class Rules:
    """How a learner learns: the settings of a gradient step."""

    batch_size: int = 256
    steps_per_sample: int = 4
    learning_rate: float = 5e-4
    learning_rate_end: float = 0.0  # where a cosine ends
    learning_rate_fall: int = 0  # steps over which it falls; 0: it does not
    warmup_steps: int = 0
    weight_decay: float = 1e-5
    gamma: float = 0.99
    n_step: int = 3
    target_update: str = "soft"
    target_tau: float = 0.005
    target_period: int = 1000
    target_max_age_s: float = 0.0  # 0: as old as it gets
    gradient_clip: float = 10.0
    gradient_accumulation: int = 1
    continuous_weight: float = 1.0
    cloning_weight: float = 0.0
    cloning_steps: int = 1_000_000
    munchausen: float = 0.0


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
        shape: Shape,
        rules: Rules,
        sampler: UniformSampler,
        device: str = "cpu",
        seed: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.rules = rules
        self._started_with = rules
        self._chosen_rate: float | None = None  # a person's learning rate; None: the schedule's
        self.report = Report()
        self._shape = shape
        self._heads = shape.branches(spaces)
        self._discrete = len(self._heads) - (len(spaces.actions.continuous) if shape.bins else 0)
        self._clock = clock
        self._device = torch.device(device)
        self._sampler = sampler
        starts = [sum(self._heads[:head]) for head in range(len(self._heads))]
        self._offsets = torch.tensor(starts, device=self._device)
        # A generator of its own: torch's global one belongs to nobody.
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self._online = HybridNetwork(spaces, shape).to(self._device)
            self._target = HybridNetwork(spaces, shape).to(self._device)
        self._noise = torch.Generator().manual_seed(seed)
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
        self._target_s = clock()  # when the target last followed

    def steer(self, controls: Controls) -> None:
        """Put live settings in force, between two samples."""
        rules = self._started_with
        self.rules = replace(
            rules,
            n_step=controls.n_step or rules.n_step,
            steps_per_sample=controls.steps_per_sample or rules.steps_per_sample,
        )
        self._chosen_rate = controls.learning_rate

    def train(self) -> bool:
        """Gather one sample and take all its steps; False where there is nothing to learn from."""
        rules = self.rules
        batches = rules.steps_per_sample * rules.gradient_accumulation
        sample = self._sampler.sample(
            batches * rules.batch_size,
            n_step=rules.n_step,
            gamma=rules.gamma,
            step=self.report.steps,
        )
        if sample is None:
            return False
        parts = sample.split(batches)
        for first in range(0, batches, rules.gradient_accumulation):
            self.step(parts[first : first + rules.gradient_accumulation])
        self.report = replace(self.report, samples=self.report.samples + 1)
        return True

    def step(self, parts: list[Sample]) -> None:
        """Take one gradient step on the mean gradient of these batches."""
        self._gradient.zero_()
        self._online.renew_noise(self._noise)
        self._target.renew_noise(self._noise)
        loss_sum = 0.0
        for sample in parts:
            loss = self._loss(self._to_batch(sample))
            (loss.total / len(parts)).backward()  # type: ignore[no-untyped-call]
            loss_sum += float(loss.total.detach())
            self._sampler.learned(sample.index, loss.error.cpu().numpy())
        norm = float(torch.linalg.vector_norm(self._gradient))
        finite = math.isfinite(loss_sum) and math.isfinite(norm)
        if finite:
            self._clip(norm)
            self._optimise()
            self._update_target()
        self._note(len(parts), finite, loss_sum / len(parts), norm, loss.chosen)

    def _loss(self, batch: Batch) -> Loss:
        rules = self.rules
        with torch.no_grad():
            target = self._target_of(batch)
        cloning = Linear(rules.cloning_weight, 0.0, rules.cloning_steps).at(self.report.steps)
        return losses.hybrid_loss(
            self._online(batch.observation),
            target,
            batch,
            self._heads,
            self._offsets,
            losses.DISTANCES[self._shape.distribution],
            losses.Weights(rules.continuous_weight, cloning),
        )

    def _target_of(self, batch: Batch) -> Target:
        judged: Outputs = self._target(batch.next_observation)
        if self.rules.munchausen:
            return losses.munchausen_target(
                batch,
                self._target(batch.observation),
                judged,
                self._offsets,
                self._heads,
                self.rules.munchausen,
                _MUNCHAUSEN_TEMPERATURE,
            )
        chosen: Outputs = self._online(batch.next_observation)
        if self._shape.distribution == "categorical":
            support = self._online.support
            return losses.categorical_target(batch, chosen, judged, self._heads, support)
        return losses.double_dqn_target(batch, chosen, judged, self._heads)

    def refresh_target(self) -> None:
        """Make the target equal to the network that trains."""
        self._target_flat.copy_(self._flat)
        self._target_s = self._clock()

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

    def _to_batch(self, sample: Sample) -> Batch:
        def tensor(array: np.ndarray[Any, Any]) -> Tensor:
            return torch.from_numpy(array).to(self._device)

        rows = sample.transitions
        choice, continuous = tensor(rows.choice).long(), tensor(rows.continuous)
        if self._discrete < len(self._heads):  # continuous controls are choices too
            bins = to_bins(continuous, self._shape.bins)
            choice = torch.cat([choice[:, : self._discrete], bins], 1)
        source = tensor(rows.source)
        return Batch(
            tensor(rows.observation),
            choice,
            continuous,
            tensor(rows.reward),
            tensor(rows.discount),
            tensor(rows.next_observation),
            (source == Source.EXPERT) | (source == Source.HUMAN),
            None if sample.weight is None else tensor(sample.weight),
        )

    def _clip(self, norm: float) -> None:
        limit = self.rules.gradient_clip
        if 0 < limit < norm:
            self._gradient.mul_(limit / norm)

    @property
    def learning_rate(self) -> float:
        """The step size of the next step."""
        chosen = self._chosen_rate
        return self.natural_learning_rate if chosen is None else chosen

    @property
    def natural_learning_rate(self) -> float:
        """The step size that the schedule has for the next step."""
        rules = self.rules
        schedule = Warmed(
            rules.learning_rate,
            rules.warmup_steps,
            rules.learning_rate_fall,
            rules.learning_rate_end,
        )
        return schedule.at(self.report.steps)

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
            lr=self.learning_rate,
            weight_decay=self.rules.weight_decay,
            eps=1e-8,
            maximize=False,
        )

    def _update_target(self) -> None:
        rules = self.rules
        if rules.target_update == "soft":
            self._target_flat.lerp_(self._flat, rules.target_tau)
        elif (self.report.steps + 1) % rules.target_period == 0:
            self.refresh_target()
        elif 0 < rules.target_max_age_s < self._clock() - self._target_s:
            self.refresh_target()  # steps are slow: an old target holds learning back

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
