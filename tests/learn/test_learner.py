"""Gradient steps: what they do, what they refuse, what they remember."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import config
from server.controls import Controls
from server.learn.learner import Learner, Rules
from server.learn.network import Shape
from server.learn.replay import Frames, Layout, Replay, Transitions
from server.learn.sampler import PrioritySampler, Sample, UniformSampler
from server.learn.schedule import Linear
from server.net.wire import Source
from server.spaces import Actions, Continuous, Discrete, Observation, Spaces

SPACES = Spaces(
    Observation("float32", (3,)),
    Actions((Discrete("stick", 2),), (Continuous("x", -1, 1),)),
    ("r",),
)
RULES = Rules(batch_size=16, steps_per_sample=4, learning_rate=1e-2, n_step=1)


def filled(frames: int = 400) -> Replay:
    """Make a replay of one endless episode in which choice 1 earns 1 and choice 0 nothing."""
    replay = Replay.in_memory(Layout.of(SPACES, 4096))
    rng = np.random.default_rng(0)
    earned = 0.0
    for index in range(frames):
        choice = int(rng.integers(2))
        replay.append(
            Frames(
                rng.normal(size=(1, 3)).astype(np.float32),
                np.array([[choice]]),
                rng.uniform(-1, 1, (1, 1)).astype(np.float32),
                [earned],
                [0],
                np.zeros(1, np.uint8),
                0,
                [index - 1],
            )
        )
        earned = float(choice)
    return replay


def make(replay: Replay | None = None, shape: Shape | None = None, **changes: object) -> Learner:
    rules = replace(RULES, **changes)  # type: ignore[arg-type]
    sampler = UniformSampler(replay or filled(), 1)
    return Learner(spaces=SPACES, shape=shape or Shape((16,)), rules=rules, sampler=sampler, seed=3)


def batch(reward: float = 1.0) -> Sample:
    rng = np.random.default_rng(2)
    transitions = Transitions(
        rng.normal(size=(16, 3)).astype(np.float32),
        rng.integers(0, 2, (16, 1)).astype(np.int16),
        np.zeros((16, 1), np.float32),
        np.full(16, reward, np.float32),
        np.zeros(16, np.float32),
        np.zeros((16, 3), np.float32),
        np.zeros(16, np.uint8),
    )
    return Sample(np.arange(16), transitions, None)


def test_it_learns_which_choice_pays() -> None:
    learner = make(gamma=0.0)
    for _ in range(60):
        assert learner.train()
    with torch.no_grad():
        values = learner._online(torch.randn(200, 3)).values
    assert values[:, 1].mean() == pytest.approx(1.0, abs=0.15)
    assert values[:, 0].mean() == pytest.approx(0.0, abs=0.15)
    assert (values[:, 1] > values[:, 0]).all()


VARIANTS = {
    "dueling": (Shape((16,), dueling=True), {}),
    "layer norm": (Shape((16,), layer_norm=True), {}),
    "noisy": (Shape((16,), noisy=True), {}),
    "quantile": (Shape((16,), distribution="quantile", atoms=8), {}),
    "dueling quantile": (Shape((16,), dueling=True, distribution="quantile", atoms=8), {}),
    "categorical": (
        Shape((16,), distribution="categorical", atoms=21, value_low=-2, value_high=2),
        {},
    ),
    "munchausen": (Shape((16,)), {"munchausen": 0.1}),
    "factored": (Shape((16,), bins=3, dueling=True), {}),
    "hard": (Shape((16,)), {"target_update": "hard", "target_period": 10}),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_learns_which_choice_pays(name: str) -> None:
    shape, changes = VARIANTS[name]
    learner = make(shape=shape, **{"gamma": 0.0, **changes})
    for _ in range(80):
        assert learner.train()
    assert learner.report.skipped == 0
    with torch.no_grad():
        values = learner._online(torch.randn(200, 3)).values
    assert values[:, 1].mean() == pytest.approx(1.0, abs=0.2)
    assert values[:, 0].mean() == pytest.approx(0.0, abs=0.2)


def test_a_prioritised_learner_learns_and_tells_its_errors() -> None:
    replay = filled()
    sampler = PrioritySampler(replay, 1, alpha=0.6, beta=Linear(0.4, 1.0, 100))
    rules = replace(RULES, gamma=0.0)
    learner = Learner(spaces=SPACES, shape=Shape((16,)), rules=rules, sampler=sampler, seed=3)
    for _ in range(60):
        assert learner.train()
    sampler.check_valid()
    priorities = sampler._tree.get(np.arange(400))
    assert len(np.unique(priorities)) > 100
    with torch.no_grad():
        values = learner._online(torch.randn(200, 3)).values
    assert (values[:, 1] > values[:, 0]).all()


def test_a_binned_control_is_a_choice_of_its_own() -> None:
    learner = make(shape=Shape((16,), bins=5))
    assert learner._heads == (2, 5)
    sample = batch()
    sample.transitions.continuous[:, 0] = np.linspace(-1, 1, 16)
    choice = learner._to_batch(sample).choice
    assert choice[:, 0].tolist() == sample.transitions.choice[:, 0].tolist()
    assert choice[:, 1].tolist() == [0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4]


def test_what_a_person_played_counts_as_an_experts() -> None:
    learner, sample = make(), batch()
    sample.transitions.source[: len(Source)] = list(Source)
    expert = learner._to_batch(sample).expert[: len(Source)].tolist()
    assert {source for source, is_so in zip(Source, expert, strict=True) if is_so} == {
        Source.EXPERT,
        Source.HUMAN,
    }


@pytest.mark.parametrize("bins", [0, 5])
def test_imitation_gives_way_step_by_step(bins: int) -> None:
    learner = make(shape=Shape((16,), bins=bins), cloning_weight=2.0, cloning_steps=4)
    sample = batch()
    sample.transitions.source[:] = Source.HUMAN
    parts = learner.cut(sample, 1)
    extra = []
    for step in range(6):
        learner.report = replace(learner.report, steps=step)
        without = learner._judge(parts[0].batch, 0.0).total.item()
        extra.append(learner._loss(parts[0].batch).total.item() - without)
    assert extra[0] > 0.1
    shares = [1.0, 0.75, 0.5, 0.25, 0.0, 0.0]
    assert extra == pytest.approx([extra[0] * share for share in shares], abs=1e-5)


def test_the_learner_and_the_settings_agree_on_how_long_imitation_lasts() -> None:
    assert Rules().cloning_steps == config.Learner().cloning_steps


def test_an_old_target_is_refreshed_though_its_period_is_not_over() -> None:
    now = [0.0]
    learner = Learner(
        spaces=SPACES,
        shape=Shape((16,)),
        rules=replace(RULES, target_update="hard", target_period=1000, target_max_age_s=60.0),
        sampler=UniformSampler(filled(), 1),
        clock=lambda: now[0],
    )
    before = learner._target_flat.clone()
    now[0] = 60.0
    learner.step(learner.cut(batch(), 1))
    assert torch.equal(learner._target_flat, before)
    now[0] = 60.1
    learner.step(learner.cut(batch(), 1))
    assert torch.equal(learner._target_flat, learner._flat)
    refreshed = learner._target_flat.clone()
    learner.step(learner.cut(batch(), 1))
    assert torch.equal(learner._target_flat, refreshed)


def test_the_learning_rate_follows_its_schedule() -> None:
    learner = make(learning_rate=1.0, warmup_steps=4, learning_rate_fall=10, learning_rate_end=0.2)
    rates = []
    for _ in range(16):
        rates.append(learner.learning_rate)
        learner.step(learner.cut(batch(), 1))
    assert rates[:5] == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.0])
    assert rates[9] == pytest.approx(0.6)
    assert rates[14:] == pytest.approx([0.2, 0.2])


def test_live_settings_take_effect_with_the_next_sample_and_go_back_to_natural() -> None:
    learner = make(n_step=2, learning_rate=1e-3, warmup_steps=10)
    learner.steer(Controls(n_step=5, steps_per_sample=7, learning_rate=0.25))
    assert (learner.rules.n_step, learner.learning_rate) == (5, 0.25)
    assert learner.natural_learning_rate == pytest.approx(1e-4)
    assert learner.train()
    assert (learner.report.steps, learner.report.samples) == (7, 1)
    learner.steer(Controls())
    assert (learner.rules.n_step, learner.rules.steps_per_sample) == (2, 4)
    assert learner.learning_rate == learner.natural_learning_rate == pytest.approx(8e-4)


def test_one_sample_feeds_several_steps_and_each_is_counted_once() -> None:
    learner = make()
    for _ in range(3):
        learner.train()
    report = learner.report
    assert (report.steps, report.samples, report.transitions) == (12, 3, 12 * 16)
    accumulating = make(gradient_accumulation=2)
    accumulating.train()
    report = accumulating.report
    assert (report.steps, report.samples, report.transitions) == (4, 1, 8 * 16)


def test_a_sample_is_cut_into_equal_batches() -> None:
    learner, sample = make(), batch()
    parts = learner.cut(replace(sample, weight=np.arange(16, dtype=np.float32)), 4)
    assert [part.frames.tolist() for part in parts] == np.arange(16).reshape(4, 4).tolist()
    for number, part in enumerate(parts):
        rows = slice(4 * number, 4 * number + 4)
        assert part.batch.weight is not None and part.batch.weight.tolist() == [*range(16)][rows]
        assert np.array_equal(part.batch.observation, sample.transitions.observation[rows])
        assert part.batch.choice.tolist() == sample.transitions.choice[rows].tolist()


def test_an_empty_replay_trains_nothing() -> None:
    learner = make(Replay.in_memory(Layout.of(SPACES, 4096)))
    assert not learner.train()
    assert learner.report.steps == 0


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_a_step_that_is_not_finite_is_skipped_and_counted(poison: float) -> None:
    learner = make()
    before = learner.weights().flat
    bad = batch()
    bad.transitions.observation[0, 0] = poison
    bad.transitions.next_observation[0, 0] = poison
    bad.transitions.reward[0] = poison
    learner.step(learner.cut(bad, 1))
    assert (learner.report.steps, learner.report.skipped) == (0, 1)
    assert np.array_equal(learner.weights().flat, before)
    learner.step(learner.cut(batch(), 1))
    assert (learner.report.steps, learner.report.skipped) == (1, 1)
    assert not np.array_equal(learner.weights().flat, before)


def test_too_many_bad_steps_in_a_row_lead_back_to_the_last_good_state() -> None:
    learner = make(max_bad_steps=3)
    learner.step(learner.cut(batch(), 1))
    good = learner.get_state()["tensors"]
    bad = batch()
    bad.transitions.reward[0] = np.nan
    for steps in ([bad, bad], [batch()], [bad, bad]):  # never three in a row
        for sample in steps:
            learner.step(learner.cut(sample, 1))
    assert (learner.report.bad, learner.report.restored, learner.report.skipped) == (2, 0, 4)
    learner.get_state()  # a state of now would not be good
    learner.step(learner.cut(bad, 1))
    assert (learner.report.bad, learner.report.restored, learner.report.skipped) == (0, 1, 5)
    assert learner.report.steps == 2  # counters only grow
    after = learner.get_state()["tensors"]
    assert all(after[name].equal(good[name]) for name in good)


def test_the_gradient_is_clipped_to_the_given_norm() -> None:
    free, clipped = make(gradient_clip=0.0), make(gradient_clip=0.01)
    for learner in (free, clipped):
        learner.step(learner.cut(batch(reward=50.0), 1))
    assert free.report.gradient_norm == pytest.approx(clipped.report.gradient_norm)
    assert free._gradient.norm() == pytest.approx(free.report.gradient_norm, rel=1e-4)
    assert clipped._gradient.norm() == pytest.approx(0.01, rel=1e-4)


def test_the_optimizer_is_torchs_adamw() -> None:
    learner = make(gradient_clip=0.0, weight_decay=0.1)
    parameter = torch.nn.Parameter(learner._flat.clone())
    optimizer = torch.optim.AdamW([parameter], lr=1e-2, weight_decay=0.1)
    for reward in (1.0, -2.0, 0.5):
        learner.step(learner.cut(batch(reward), 1))
        parameter.grad = learner._gradient.clone()
        optimizer.step()
        assert torch.allclose(learner._flat, parameter.detach(), atol=1e-7)


def test_accumulated_batches_give_the_mean_gradient() -> None:
    one, both = make(gradient_clip=0.0), make(gradient_clip=0.0)
    part = batch()
    double = Transitions(*(np.concatenate([column, column]) for column in part.transitions))
    one.step(one.cut(Sample(np.arange(32), double, None), 1))
    both.step(both.cut(part, 1) * 2)
    assert torch.allclose(one._gradient, both._gradient, atol=1e-6)


def test_a_soft_target_goes_a_share_of_the_way() -> None:
    learner = make(target_tau=0.25)
    before = learner._target_flat.clone()
    learner.step(learner.cut(batch(), 1))
    expected = before + 0.25 * (learner._flat - before)
    assert torch.allclose(learner._target_flat, expected, atol=1e-7)


def test_a_hard_target_waits_and_then_goes_all_the_way() -> None:
    learner = make(target_update="hard", target_period=3)
    before = learner._target_flat.clone()
    for _ in range(2):
        learner.step(learner.cut(batch(), 1))
    assert torch.equal(learner._target_flat, before)
    learner.step(learner.cut(batch(), 1))
    assert torch.equal(learner._target_flat, learner._flat)


def test_a_copy_of_the_weights_is_whole_and_numbered() -> None:
    learner = make()
    first, second = learner.weights(), learner.weights()
    learner.train()
    assert (first.version, second.version) == (1, 2)
    assert np.array_equal(first.flat, second.flat)
    assert not np.array_equal(first.flat, learner.weights().flat)


def test_a_restored_learner_goes_on_bit_for_bit() -> None:
    learner, twin = make(), make()
    for _ in range(5):
        learner.train()
    twin.set_state(learner.get_state())
    assert twin.report.steps == learner.report.steps == 20
    for part in (batch(), batch(0.5)):
        learner.step(learner.cut(part, 1))
        twin.step(twin.cut(part, 1))
    assert np.array_equal(learner.weights().flat, twin.weights().flat)
    assert learner.digest() == twin.digest()


def test_a_resumed_learner_does_not_repeat_its_noise() -> None:
    shape = Shape((16,), noisy=True)
    learner, resumed, again = (make(shape=shape) for _ in range(3))
    learner.train()
    resumed.set_state(learner.get_state())
    again.set_state(learner.get_state())
    first = make(shape=shape)
    for each in (first, resumed, again):
        each._online.renew_noise(each._noise)
    noise = [each._online.heads._in_noise for each in (first, resumed, again)]
    assert not torch.equal(noise[0], noise[1])
    assert torch.equal(noise[1], noise[2])


def test_a_state_is_a_copy() -> None:
    learner = make()
    learner.train()
    state = learner.get_state()
    before = {name: tensor.clone() for name, tensor in state["tensors"].items()}
    learner.train()
    assert all(torch.equal(before[name], state["tensors"][name]) for name in before)


def test_the_same_seed_gives_the_same_weights() -> None:
    assert np.array_equal(make().weights().flat, make().weights().flat)
