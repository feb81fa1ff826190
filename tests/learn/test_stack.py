"""Stacks of frames against a plain-Python reference: in samples, in play, beside a writer."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.learn.replay import GUARD, MIN_CAPACITY, Frames, Layout, Replay
from server.learn.sampler import PrioritySampler, UniformSampler
from server.learn.schedule import Linear
from server.net.wire import ENDED, START, TERMINAL, TRUNCATED

LAYOUT = Layout(MIN_CAPACITY, "int64", 2, 1, 0)
FLAGS = st.sampled_from([0] * 12 + [START, START, TERMINAL, TRUNCATED, START | TERMINAL])
TURNS = st.lists(
    st.dictionaries(st.integers(0, 4), FLAGS, min_size=1, max_size=5), min_size=1, max_size=60
)


@dataclass
class Writer:
    """Appends to a replay, and keeps each client's episodes as plain lists of frame numbers."""

    replay: Replay
    depth: int
    episode_of: list[list[int]] = field(default_factory=list)  # one entry per frame ever appended
    open_episodes: dict[int, list[int]] = field(default_factory=dict)  # by client

    def stack(self, index: int, oldest: int) -> list[int]:
        """Give the stack that a frame should have, by counting back in its episode."""
        episode = self.episode_of[index]
        there = [frame for frame in episode if oldest <= frame <= index][-self.depth :]
        return [there[0]] * (self.depth - len(there)) + there

    def append(self, flags: dict[int, int]) -> None:
        """Add one frame of each of some clients; what they see must be the reference's stack."""
        first, oldest = self.replay.head, self.replay.oldest
        previous = []
        for row, (client, flag) in enumerate(flags.items()):
            if flag & START or client not in self.open_episodes:
                self.open_episodes[client] = []
            episode = self.open_episodes[client]
            previous.append(episode[-1] if episode else -1)
            episode.append(first + row)
            self.episode_of.append(episode)
            if flag & ENDED:
                del self.open_episodes[client]
        index = np.arange(first, first + len(flags))
        observation = np.stack([index, -index], axis=1)
        seen = self.replay.stacked(observation, previous, self.depth)
        assert seen.shape == (len(flags), 2 * self.depth)
        for row in range(len(flags)):
            wanted = self.stack(first + row, oldest)
            assert seen[row].tolist() == [v for frame in wanted for v in (frame, -frame)]
        count = len(flags)
        rest = ([0.0] * count, list(flags.values()), [0] * count, 1, previous)
        self.replay.append(
            Frames(observation, [[0]] * count, np.zeros((count, 0), np.float32), *rest)
        )

    def check(self, n_step: int) -> int:
        """Compare every transition that can be read; give their number."""
        oldest = self.replay.oldest
        live = np.arange(oldest, self.replay.head)
        linked = live[self.replay.linked(live)]
        if not len(linked):
            return 0
        got = self.replay.gather(linked, n_step=n_step, gamma=0.9, depth=self.depth)
        for row, index in enumerate(linked.tolist()):
            episode = self.episode_of[index]
            end = episode[min(episode.index(index) + n_step, len(episode) - 1)]
            assert got.observation[row, ::2].tolist() == self.stack(index, oldest)
            assert got.next_observation[row, ::2].tolist() == self.stack(end, oldest)
        return len(linked)


@given(TURNS, st.integers(1, 6), st.integers(2, 6))
@settings(max_examples=60)
def test_stacks_in_play_and_in_samples_equal_the_reference(
    turns: list[dict[int, int]], n_step: int, depth: int
) -> None:
    writer = Writer(Replay.in_memory(LAYOUT), depth)
    for turn in turns:
        writer.append(turn)
    writer.check(n_step)


@given(st.integers(0, 10**9), st.integers(1, 4), st.integers(2, 5))
@settings(max_examples=4)
def test_stacks_round_the_ring_with_slow_and_vanished_clients(
    seed: int, n_step: int, depth: int
) -> None:
    writer = Writer(Replay.in_memory(LAYOUT), depth)
    dice = random.Random(seed).random
    while writer.replay.head < 2.3 * MIN_CAPACITY:
        flags: dict[int, int] = {}
        for client in range(8):
            # Client 7 is so slow that its own frames are overwritten before its next one comes.
            if dice() < (0.7 if client < 7 else 0.002):
                flags[client] = TERMINAL if dice() < 0.02 else TRUNCATED if dice() < 0.02 else 0
            if dice() < 0.002:
                writer.open_episodes.pop(client, None)  # it vanished; another sits down
        if flags:
            writer.append(flags)
    assert writer.check(n_step) > MIN_CAPACITY / 2


def test_a_stack_by_hand() -> None:
    writer = Writer(Replay.in_memory(LAYOUT), 3)
    for flags in ({0: START}, {0: 0, 1: START}, {1: 0, 0: 0}, {0: TERMINAL}, {0: START}, {0: 0}):
        writer.append(flags)
    # Client 0 plays frames 0, 1, 4, 5 and then 6, 7; client 1 plays 2, 3.
    stacks = writer.replay.stack(np.arange(8), 3).tolist()
    assert stacks[:4] == [[0, 0, 0], [0, 0, 1], [2, 2, 2], [2, 2, 3]]
    assert stacks[4:] == [[0, 1, 4], [1, 4, 5], [6, 6, 6], [6, 6, 7]]
    got = writer.replay.gather(np.array([1, 4]), n_step=1, gamma=0.5, depth=3)
    assert got.next_observation[:, ::2].tolist() == [[0, 1, 4], [1, 4, 5]]


def test_a_frame_is_stored_once_and_a_stack_of_one_is_the_frame() -> None:
    writer = Writer(Replay.in_memory(LAYOUT), 2)
    for _ in range(20):
        writer.append({0: 0})
    assert writer.replay.column("observation")[:20, 0].tolist() == list(range(20))
    flat = writer.replay.gather(np.arange(5), n_step=1, gamma=1.0)
    assert flat.observation.tolist() == [[i, -i] for i in range(5)]


def test_a_sample_is_drawn_again_if_only_the_bottom_of_a_stack_was_overwritten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    writer = Writer(Replay.in_memory(LAYOUT), 3)
    while writer.replay.head < MIN_CAPACITY + GUARD:
        writer.append({0: 0})
    sampler, drawn = UniformSampler(writer.replay, 1, depth=3), []
    gather = writer.replay.gather

    def gather_beside_a_writer(index: np.ndarray, **rest: object) -> object:
        if not drawn:
            writer.append({0: 0})
        drawn.append(index)
        return gather(index, **rest)  # type: ignore[arg-type]

    monkeypatch.setattr(writer.replay, "gather", gather_beside_a_writer)
    monkeypatch.setattr(sampler, "_draw", lambda count: np.array([writer.replay.oldest + 2]))
    sample = sampler.sample(1, n_step=1, gamma=1.0)
    assert sample is not None
    assert [index.tolist() for index in drawn] == [[GUARD + GUARD + 2], [GUARD + GUARD + 3]]
    assert sample.transitions.observation[0, 0] == writer.replay.oldest


@pytest.mark.parametrize(
    "make_sampler",
    [
        lambda replay: UniformSampler(replay, 7, depth=4),
        lambda replay: PrioritySampler(replay, 7, alpha=0.6, beta=Linear(0.4, 1.0, 100), depth=4),
    ],
    ids=["uniform", "priority"],
)
def test_a_reader_beside_a_writer_never_sees_a_torn_or_foreign_stack(
    make_sampler: Callable[[Replay], UniformSampler],
) -> None:
    """Each frame's values all carry its client and its turn, so a mixture shows at once."""
    clients, turns, values = 16, 4_000, 32
    replay = Replay.in_memory(Layout(MIN_CAPACITY, "float32", values, 1, 0))
    problems: list[str] = []
    samples = 0
    done = threading.Event()

    def write() -> None:
        last = [-1] * clients
        for turn in range(turns):
            numbers = np.array([c * turns + turn for c in range(clients)], np.float32)
            first = replay.append(
                Frames(
                    np.repeat(numbers[:, None], values, axis=1),
                    np.zeros((clients, 1), np.int16),
                    np.zeros((clients, 0), np.float32),
                    [0.0] * clients,
                    [0] * clients,
                    np.zeros(clients, np.uint8),
                    1,
                    last,
                )
            )
            last = list(range(first, first + clients))
        done.set()

    def read() -> None:
        nonlocal samples
        sampler = make_sampler(replay)
        while not done.is_set():
            sample = sampler.sample(128, n_step=2, gamma=1.0)
            if sample is None:
                continue
            samples += 1
            for stacks in (sample.transitions.observation, sample.transitions.next_observation):
                frames = stacks.reshape(128, 4, values)
                if np.any(frames != frames[:, :, :1]):
                    problems.append("torn")
                # A chain of one client: each frame one turn after the one before, or the same
                # again where the ring or the client begins.
                steps = np.diff(frames[:, :, 0], axis=1)
                begun = np.cumsum(steps, axis=1) > 0
                if not np.isin(steps, (0, 1)).all() or np.any(begun & (steps == 0)):
                    problems.append("foreign")

    reader = threading.Thread(target=read)
    reader.start()
    write()
    reader.join()
    assert problems == []
    assert samples > 0
    assert replay.head > 10 * (MIN_CAPACITY - GUARD)
