"""Makes the network better: sample, target, loss, backward, clip, optimise, target update."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.optim.adamw import adamw

from server.controls import Controls
from server.learn.judge import Judge
from server.learn.loss import Batch, Loss
from server.learn.network import (
    HybridNetwork,
    Shape,
    Weights,
    flatten_parameters,
    to_bins,
)
from server.learn.replay import Ints
from server.learn.sampler import Floats, Sample, UniformSampler
from server.learn.schedule import Linear, Warmed
from server.net.wire import Source
from server.spaces import Spaces

# Between states that are kept as good ones: weights may grow for a while before they overflow, and
# a learner in a process of its own gives its state with every heartbeat.
_GOOD_S = 60.0


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
    gamma: float = 0.997
    n_step: int = 3
    target_update: str = "soft"
    target_tau: float = 0.005
    target_period: int = 1000
    target_max_age_s: float = 0.0  # 0: as old as it gets
    gradient_clip: float = 10.0
    gradient_accumulation: int = 1
    max_bad_steps: int = 100  # in a row, before the learner goes back to its last good state
    continuous_weight: float = 1.0
    cloning_weight: float = 0.0
    cloning_steps: int = 100_000
    munchausen: float = 0.0


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds that a learner has spent, by what it did; they only grow."""

    sample_s: float = 0.0
    forward_s: float = 0.0  # the target and the loss included
    backward_s: float = 0.0
    optimise_s: float = 0.0  # clipping and the target's update included
    sync_s: float = 0.0  # copies of weights and of the whole state
    wait_s: float = 0.0  # for locks, or for other learners' gradients

    def by_part(self) -> dict[str, float]:
        """Give the seconds by what was done."""
        return {name.removesuffix("_s"): seconds for name, seconds in asdict(self).items()}


@dataclass(frozen=True, slots=True)
class Report:
    """What a learner has done so far; its counters only grow."""

    steps: int = 0
    samples: int = 0
    transitions: int = 0
    skipped: int = 0
    bad: int = 0  # of those, the newest ones in a row; no counter
    restored: int = 0  # times that it went back to its last good state
    loss: float | None = None
    gradient_norm: float | None = None
    q_min: float | None = None
    q_mean: float | None = None
    q_max: float | None = None
    learning_rate: float = 0.0
    natural_learning_rate: float = 0.0  # as the schedule has it
    spent: Spent = field(default_factory=Spent)


class Part(NamedTuple):
    """One batch of a sample, and where its transitions come from."""

    frames: Ints  # (batch,) their indices
    batch: Batch


class Gradient(NamedTuple):
    """What some batches ask of the weights, and what was seen on the way."""

    flat: Tensor  # (parameters,)
    batches: int
    loss: float
    norm: float
    chosen: Tensor  # (batch, heads, width) atoms of the actions taken, in the last batch
    errors: list[tuple[Ints, Floats]]  # of each batch: where it came from, how wrong it was
    forward_s: float
    backward_s: float


class Learner:
    """Owns the network that trains, its target and its optimizer; knows no thread.

    A step is ``compute`` and then ``apply``. Only ``apply`` changes the weights, and a gradient
    may come from another learner that follows this one: that is all that several workers need.
    """

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
        self._spaces = spaces
        self._started_with = rules
        self._chosen_rate: float | None = None  # a person's learning rate; None: the schedule's
        self._shape = shape
        self._seed = seed
        self._heads = shape.branches(spaces)
        self._discrete = len(self._heads) - (len(spaces.actions.continuous) if shape.bins else 0)
        self._clock = clock
        self._device = torch.device(device)
        self._sampler = sampler
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
        self._judge = Judge(
            self._online,
            self._target,
            munchausen=rules.munchausen,
            continuous_weight=rules.continuous_weight,
        )
        self._moments = {
            "exp_avg": torch.zeros_like(self._flat),
            "exp_avg_sq": torch.zeros_like(self._flat),
            "step": torch.zeros((), device=self._device),
        }
        self._good = self._tensors()  # as kept while all was well
        self._good_s = -math.inf  # when
        self._version = 0
        self._samples = 0
        self._sample_s = 0.0
        self._sync_s = 0.0
        self.report = Report()
        self._report_rate()
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
        self._report_rate()

    def train(self, between_steps: Callable[[], None] | None = None) -> bool:
        """Gather one sample and take all its steps; False where there is nothing to learn from."""
        steps = self.gather()
        if not steps:
            return False
        for number, parts in enumerate(steps):
            if number and between_steps is not None:
                between_steps()
            gradient = self.step(parts)
        self.note_worth(gradient)
        return True

    def gather(self) -> list[list[Part]]:
        """Gather one sample, cut into the batches of each step; none where there is nothing."""
        rules, began = self.rules, time.perf_counter()
        batches = rules.steps_per_sample * rules.gradient_accumulation
        sample = self._sampler.sample(
            batches * rules.batch_size,
            n_step=rules.n_step,
            gamma=rules.gamma,
            step=self.report.steps,
        )
        if sample is None:
            return []
        parts = self.cut(sample, batches)
        each = rules.gradient_accumulation
        self._sample_s += time.perf_counter() - began
        self._samples += 1
        return [parts[first : first + each] for first in range(0, batches, each)]

    def cut(self, sample: Sample, batches: int) -> list[Part]:
        """Cut a sample into equal batches; what is the same for all is done once for all."""
        size = len(sample.index) // batches
        whole = self._to_batch(sample)
        return [
            Part(sample.index[number * size : (number + 1) * size], batch)
            for number, batch in enumerate(whole.split(batches))
        ]

    def step(self, parts: list[Part]) -> Gradient:
        """Take one gradient step on the mean gradient of these batches."""
        gradient = self.compute(parts)
        self.learned(gradient)
        self.apply(gradient)
        return gradient

    def compute(self, parts: list[Part]) -> Gradient:
        """Find the mean gradient of these batches, with weights that stay as they are."""
        self._gradient.zero_()
        self._online.renew_noise(self._noise)
        self._target.renew_noise(self._noise)
        loss_sum = forward_s = backward_s = 0.0
        errors = []
        for frames, batch in parts:
            began = time.perf_counter()
            loss = self._loss(batch)
            judged = time.perf_counter()
            total = loss.total if len(parts) == 1 else loss.total / len(parts)
            total.backward()  # type: ignore[no-untyped-call]
            backward_s += time.perf_counter() - judged
            forward_s += judged - began
            loss_sum += loss.total.item()
            errors.append((frames, loss.error.cpu().numpy()))
        norm = torch.linalg.vector_norm(self._gradient).item()
        mean = loss_sum / len(parts)
        return Gradient(
            self._gradient, len(parts), mean, norm, loss.chosen, errors, forward_s, backward_s
        )

    def learned(self, gradient: Gradient) -> None:
        """Tell the sampler how wrong the network was."""
        for index, error in gradient.errors:
            self._sampler.learned(index, error)

    def apply(self, gradient: Gradient) -> None:
        """Change the weights as a gradient asks, and let the target follow."""
        began = time.perf_counter()
        finite = math.isfinite(gradient.loss) and math.isfinite(gradient.norm)
        if finite:
            self._clip(gradient)
            self._optimise(gradient.flat)
            self._update_target()
        self._note(gradient, finite, time.perf_counter() - began)
        if self.report.bad >= self.rules.max_bad_steps:
            self._load(self._good)
            self.report = replace(self.report, bad=0, restored=self.report.restored + 1)

    def note_worth(self, gradient: Gradient) -> None:
        """Note what the actions of a batch are worth; once a sample is enough for people."""
        worth = self._online.worth(gradient.chosen).mean(1)
        low, high = worth.aminmax()
        self.report = replace(
            self.report, q_min=low.item(), q_mean=worth.mean().item(), q_max=high.item()
        )

    def follow(self, other: Learner) -> None:
        """Take over the weights and the target of another learner, and know how far it is."""
        self._flat.copy_(other._flat)
        self._target_flat.copy_(other._target_flat)
        self.rules = other.rules
        self.report = other.report

    def take_over(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on with what another learner of the same kind has learned, as its state has it."""
        self._load(tensors)

    def replica(self, number: int) -> Learner:
        """Make a learner of the same kind that can follow this one."""
        return Learner(
            spaces=self._spaces,
            shape=self._shape,
            rules=self.rules,
            sampler=self._sampler,
            device=str(self._device),
            seed=self._seed + number,  # for the noise: its weights are never its own
        )

    def _loss(self, batch: Batch) -> Loss:
        rules = self.rules
        cloning = Linear(rules.cloning_weight, 0.0, rules.cloning_steps).at(self.report.steps)
        return self._judge(batch, cloning)

    def refresh_target(self) -> None:
        """Make the target equal to the network that trains."""
        self._target_flat.copy_(self._flat)
        self._target_s = self._clock()

    def weights(self) -> Weights:
        """Give a whole copy of the weights, with a version of its own."""
        began = time.perf_counter()
        self._version += 1
        flat = self._flat.to("cpu", copy=True).numpy()
        self._sync_s += time.perf_counter() - began
        return Weights(self._version, self.report.steps, time.monotonic(), flat)

    def get_state(self) -> dict[str, Any]:
        """Give everything a checkpoint needs: tensors by name, and plain counters."""
        began = time.perf_counter()
        tensors, report = self._tensors(), self.report
        now_s = self._clock()
        if not report.bad and now_s - self._good_s >= _GOOD_S:
            self._good, self._good_s = tensors, now_s
        self._sync_s += time.perf_counter() - began
        return {
            "tensors": tensors,
            "counters": {
                "steps": report.steps,
                "samples": self._samples,
                "transitions": report.transitions,
                "skipped": report.skipped,
                "version": self._version,
            },
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what get_state gave."""
        self._load(state["tensors"])
        self._good = self._tensors()
        counters = dict(state["counters"])
        self._version = counters.pop("version")
        self._samples = counters["samples"]
        self.report = Report(**counters)
        self._report_rate()
        # Not from its beginning: a resumed run must not repeat its own noise.
        (dice,) = np.random.SeedSequence([self._seed, self.report.steps]).generate_state(1)
        self._noise.manual_seed(int(dice))

    def digest(self) -> str:
        """Give a fingerprint of all that is learned: equal ones are so bit for bit."""
        told = hashlib.sha256()
        for tensor in (self._flat, self._target_flat, *self._moments.values()):
            told.update(tensor.cpu().numpy().tobytes())
        return told.hexdigest()

    def _tensors(self) -> dict[str, Tensor]:
        """Copy everything that training changes."""
        networks = {"online": self._online, "target": self._target}
        tensors = {
            f"{name}.{key}": value.detach().clone()
            for name, network in networks.items()
            for key, value in network.state_dict().items()
        }
        return tensors | {f"optimizer.{k}": v.clone() for k, v in self._moments.items()}

    def _load(self, tensors: Mapping[str, Tensor]) -> None:
        self._online.load_state_dict(_under("online.", tensors))
        self._target.load_state_dict(_under("target.", tensors))
        for name, moment in _under("optimizer.", tensors).items():
            self._moments[name].copy_(moment)

    def _to_batch(self, sample: Sample) -> Batch:
        def tensor(array: np.ndarray[Any, Any]) -> Tensor:
            there = torch.from_numpy(array)
            return there if self._device.type == "cpu" else there.to(self._device)

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

    def _clip(self, gradient: Gradient) -> None:
        limit = self.rules.gradient_clip
        if 0 < limit < gradient.norm:
            gradient.flat.mul_(limit / gradient.norm)

    def _report_rate(self) -> None:
        self.report = replace(
            self.report,
            learning_rate=self.learning_rate,
            natural_learning_rate=self.natural_learning_rate,
        )

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

    def _optimise(self, gradient: Tensor) -> None:
        """Take AdamW's step, through torch's functional form.

        The optimizer's class would import half of torch's compiler with its first instance:
        seconds in which nobody is answered, and 80 MB.
        """
        moments = self._moments
        adamw(
            [self._flat],
            [gradient],
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

    def _note(self, gradient: Gradient, finite: bool, optimise_s: float) -> None:
        before = self.report
        transitions = gradient.batches * self.rules.batch_size
        spent = replace(
            before.spent,
            sample_s=self._sample_s,
            forward_s=before.spent.forward_s + gradient.forward_s,
            backward_s=before.spent.backward_s + gradient.backward_s,
            optimise_s=before.spent.optimise_s + optimise_s,
            sync_s=self._sync_s,
        )
        self.report = Report(
            steps=before.steps + finite,
            samples=self._samples,
            transitions=before.transitions + transitions * finite,
            skipped=before.skipped + (not finite),
            bad=0 if finite else before.bad + 1,
            restored=before.restored,
            loss=gradient.loss,
            gradient_norm=gradient.norm,
            q_min=before.q_min,
            q_mean=before.q_mean,
            q_max=before.q_max,
            learning_rate=self.learning_rate,
            natural_learning_rate=self.natural_learning_rate,
            spent=spent,
        )


def played(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Give the weights to play with out of a learner's state."""
    return _under("online.", tensors)


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }
