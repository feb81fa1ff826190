"""Which transitions are drawn, how often, and how much each counts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.learn.replay import GUARD, MIN_CAPACITY, Frames, Layout, Replay
from server.learn.sampler import PrioritySampler, UniformSampler
from server.learn.schedule import Linear
from server.net.wire import START, TERMINAL

LAYOUT = Layout(MIN_CAPACITY, "float32", 1, 1, 0)


def play(replay: Replay, frames: int, episode: int = 50) -> None:
    """Append the frames of one client that plays episodes of a given length."""
    for _ in range(frames):
        index = replay.head
        place = index % episode
        flags = START if place == 0 else TERMINAL if place == episode - 1 else 0
        replay.append(
            Frames(
                np.full((1, 1), index, np.float32),
                [[0]],
                np.zeros((1, 0), np.float32),
                [1.0],
                [flags],
                [0],
                0,
                [-1 if flags & START else index - 1],
            )
        )


def prioritised(replay: Replay, alpha: float = 1.0, beta: float = 1.0) -> PrioritySampler:
    return PrioritySampler(replay, 1, alpha=alpha, beta=Linear(beta, beta, 1))


def test_at_first_every_transition_has_the_same_chance_and_the_same_weight() -> None:
    replay = Replay.in_memory(LAYOUT)
    play(replay, 200)
    sampler = prioritised(replay)
    sample = sampler.sample(196 * 50, n_step=1, gamma=0.9)
    assert sample is not None
    counts = np.bincount(sample.index, minlength=200)
    assert (counts[49::50] == 0).all()  # nothing follows from an episode's end
    assert counts[counts > 0] == pytest.approx(50, abs=2)
    assert sample.weight == pytest.approx(1.0)
    sampler.check_valid()


def test_a_transition_is_drawn_in_proportion_to_its_error_and_weighed_down_for_it() -> None:
    replay = Replay.in_memory(LAYOUT)
    play(replay, 100)
    sampler = prioritised(replay)
    assert sampler.sample(8, n_step=1, gamma=0.9) is not None
    linked = np.flatnonzero(replay.linked(np.arange(100)))
    error = np.where(linked == 7, 9.999, 0.999).astype(np.float32)  # priorities 10 and 1
    sampler.learned(linked, error)
    sample = sampler.sample(20_000, n_step=1, gamma=0.9)
    assert sample is not None
    share = (sample.index == 7).mean()
    assert share == pytest.approx(10 / (len(linked) - 1 + 10), rel=0.02)
    assert sample.weight is not None
    assert sample.weight[sample.index == 7] == pytest.approx(0.1, rel=1e-4)
    assert sample.weight[sample.index != 7] == pytest.approx(1.0)


def test_alpha_flattens_the_choice_and_beta_the_correction() -> None:
    replay = Replay.in_memory(LAYOUT)
    play(replay, 100)
    sampler = PrioritySampler(replay, 1, alpha=0.5, beta=Linear(0.0, 1.0, 100))
    assert sampler.sample(8, n_step=1, gamma=0.9) is not None
    linked = np.flatnonzero(replay.linked(np.arange(100)))
    sampler.learned(linked, np.where(linked == 7, 15.999, 0.999).astype(np.float32))
    for step, weight in ((0, 1.0), (50, 0.5), (100, 0.25)):
        sample = sampler.sample(5000, n_step=1, gamma=0.9, step=step)
        assert sample is not None and sample.weight is not None
        assert (sample.index == 7).mean() == pytest.approx(4 / (len(linked) + 3), rel=0.05)
        assert sample.weight[sample.index == 7] == pytest.approx(weight, rel=1e-4)


def test_new_frames_come_in_with_the_largest_priority_so_far() -> None:
    replay = Replay.in_memory(LAYOUT)
    play(replay, 40)
    sampler = prioritised(replay)
    sampler.sample(4, n_step=1, gamma=0.9)
    sampler.learned(np.array([3]), np.array([19.999], np.float32))
    play(replay, 8)
    sample = sampler.sample(8000, n_step=1, gamma=0.9)
    assert sample is not None
    fresh = sample.index >= 40
    assert fresh.mean() == pytest.approx(7 * 20 / (39 + 20 + 7 * 20), rel=0.05)


def test_errors_that_are_not_finite_or_too_late_change_nothing() -> None:
    replay = Replay.in_memory(LAYOUT)
    play(replay, MIN_CAPACITY + GUARD)
    sampler = prioritised(replay)
    sampler.sample(4, n_step=1, gamma=0.9)
    before = sampler._tree.get(np.arange(MIN_CAPACITY)).copy()
    gone = replay.oldest - 1
    sampler.learned(np.array([gone, replay.head - 5]), np.array([5.0, np.nan], np.float32))
    assert np.array_equal(sampler._tree.get(np.arange(MIN_CAPACITY)), before)
    sampler.check_valid()


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 1500), st.booleans()), min_size=1, max_size=12),
    st.integers(2, 90),
)
def test_the_tree_follows_the_writer_round_and_round(
    turns: list[tuple[int, bool]], episode: int
) -> None:
    replay = Replay.in_memory(LAYOUT)
    sampler = prioritised(replay)
    rng = np.random.default_rng(0)
    for frames, emptied in turns:
        play(replay, frames, episode)
        if emptied:
            replay.flush()
        sample = sampler.sample(64, n_step=3, gamma=0.9)
        sampler.check_valid()
        if sample is None:
            assert not replay.linked(np.arange(replay.oldest, replay.head)).any()
            continue
        assert (sample.index >= replay.oldest).all() and (sample.index < replay.head).all()
        assert replay.linked(sample.index).all()
        assert sample.transitions.observation[:, 0].tolist() == sample.index.tolist()
        sampler.learned(sample.index, rng.normal(size=64).astype(np.float32))
        sampler.check_valid()


@pytest.mark.parametrize("kind", [UniformSampler, prioritised])
def test_an_empty_replay_offers_nothing(kind: type) -> None:
    replay = Replay.in_memory(LAYOUT)
    sampler = UniformSampler(replay, 1) if kind is UniformSampler else prioritised(replay)
    assert sampler.sample(4, n_step=1, gamma=0.9) is None


def test_a_writer_that_goes_round_the_ring_between_two_looks_does_no_harm() -> None:
    """A reader that is put aside for long enough finds everything it knew overwritten."""

    class Racing(Replay):
        rounds = 0

        @property
        def oldest(self) -> int:
            found = super().oldest
            while self.rounds:
                self.rounds -= 1
                play(self, MIN_CAPACITY + 7)
            return found

    replay = Racing.in_memory(LAYOUT)
    play(replay, 100)
    sampler = prioritised(replay)
    for rounds in (2, 1, 0):
        replay.rounds = rounds
        sample = sampler.sample(64, n_step=1, gamma=0.9)
        assert sample is not None
        assert (sample.transitions.observation[:, 0] == sample.index).all()
        sampler.check_valid()
