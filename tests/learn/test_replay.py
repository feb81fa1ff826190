"""The replay against a plain-Python reference, its file, and a writer beside a reader."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.learn.replay import GUARD, MIN_CAPACITY, Frames, Layout, Replay, ReplayError
from server.learn.sampler import PrioritySampler, UniformSampler
from server.learn.schedule import Linear
from server.net.wire import ENDED, START, TERMINAL, TRUNCATED

LAYOUT = Layout(MIN_CAPACITY, "float32", 2, 1, 1)


@dataclass
class Client:
    """One client of the reference: where its newest frame is."""

    last: int = -1


@dataclass
class Reference:
    """What a replay should hold, as plain lists: one entry per frame ever appended."""

    rewards: list[float] = field(default_factory=list)
    flags: list[int] = field(default_factory=list)
    following: list[int] = field(default_factory=list)

    def transition(self, index: int, n_step: int, gamma: float) -> tuple[float, float, int]:
        """Give return, discount and last index of the n-step transition, one step at a time."""
        total, discount, at = 0.0, 1.0, index
        for _ in range(n_step):
            if self.following[at] < 0:
                break
            at = self.following[at]
            total += discount * self.rewards[at]
            discount *= gamma
            if self.flags[at] & TERMINAL:
                return total, 0.0, at
        return total, discount, at


class Writer:
    """Appends to a replay and to the reference in step."""

    def __init__(self, replay: Replay) -> None:
        self.replay = replay
        self.reference = Reference()

    def append(self, rows: list[tuple[Client, float, int]]) -> None:
        """Add one frame of each of some clients."""
        first = len(self.reference.rewards)
        previous = []
        for row, (client, reward, flags) in enumerate(rows):
            before = -1 if flags & START else client.last
            previous.append(before)
            if before >= 0:
                self.reference.following[before] = first + row
            self.reference.rewards.append(reward)
            self.reference.flags.append(flags)
            self.reference.following.append(-1)
            client.last = -1 if flags & ENDED else first + row
        count = len(rows)
        index = np.arange(first, first + count)
        frames = Frames(
            observation=np.stack([index, -index], axis=1).astype(np.float32),
            choice=(index % 7)[:, None],
            continuous=(index[:, None] % 3 - 1).astype(np.float32),
            reward=[reward for _, reward, _ in rows],
            flags=[flags for _, _, flags in rows],
            source=np.zeros(count, np.uint8),
            version=1,
            previous=previous,
        )
        assert self.replay.append(frames) == first


# Each turn: which clients send, and what. Flags 0 most of the time, as in life.
FLAGS = st.sampled_from([0] * 12 + [START, START, TERMINAL, TRUNCATED, START | TERMINAL])
TURNS = st.lists(
    st.dictionaries(
        st.integers(0, 4), st.tuples(st.floats(-2, 2, width=16), FLAGS), min_size=1, max_size=5
    ),
    min_size=1,
    max_size=60,
)


def check_all(writer: Writer, n_step: int, gamma: float) -> int:
    """Compare every transition that can be read; give their number."""
    replay, reference = writer.replay, writer.reference
    replay.check_valid()
    assert replay.head == len(reference.rewards)
    live = np.arange(replay.oldest, replay.head)
    linked = live[replay.linked(live)]
    assert linked.tolist() == [i for i in live.tolist() if reference.following[i] >= 0]
    if not len(linked):
        return 0
    got = replay.gather(linked, n_step=n_step, gamma=gamma)
    for row, index in enumerate(linked.tolist()):
        total, discount, last = reference.transition(index, n_step, gamma)
        assert got.observation[row].tolist() == [index, -index]
        assert got.next_observation[row].tolist() == [last, -last]
        assert got.choice[row, 0] == index % 7
        assert got.reward[row] == pytest.approx(total, abs=1e-5)
        assert got.discount[row] == pytest.approx(discount, abs=1e-6)
    return len(linked)


@given(TURNS, st.integers(1, 8), st.sampled_from([0.0, 0.5, 0.99, 1.0]))
@settings(max_examples=60, deadline=None)
def test_n_step_returns_equal_the_reference(
    turns: list[dict[int, tuple[float, int]]], n_step: int, gamma: float
) -> None:
    writer = Writer(Replay.in_memory(LAYOUT))
    clients = [Client() for _ in range(5)]
    for turn in turns:
        writer.append([(clients[number], *rest) for number, rest in turn.items()])
    check_all(writer, n_step, gamma)


@given(st.integers(0, 10**9), st.integers(1, 5))
@settings(max_examples=5, deadline=None)
def test_wrap_around_and_clients_that_vanish(seed: int, n_step: int) -> None:
    writer = Writer(Replay.in_memory(LAYOUT))
    clients = [Client() for _ in range(8)]
    dice = random.Random(seed).random
    while writer.replay.head < 2.5 * MIN_CAPACITY:
        rows = []
        for number in range(8):
            if dice() < 0.7:
                flags = TERMINAL if dice() < 0.02 else TRUNCATED if dice() < 0.02 else 0
                rows.append((clients[number], dice(), flags))
            if dice() < 0.002:
                clients[number] = Client()  # it vanished mid-episode; another sits down
        if rows:
            writer.append(rows)
    assert check_all(writer, n_step, 0.9) > MIN_CAPACITY / 2


def test_a_frame_whose_predecessor_was_overwritten_begins_a_chain() -> None:
    writer = Writer(Replay.in_memory(LAYOUT))
    slow, fast = Client(), Client()
    writer.append([(slow, 0.0, START)])
    for _ in range(MIN_CAPACITY):
        writer.append([(fast, 0.0, 0)])
    writer.reference.following[0] = -1
    writer.replay.append(Frames(np.zeros((1, 2)), [[0]], np.zeros((1, 1)), [1.0], [0], [0], 1, [0]))
    slot = (writer.replay.head - 1) % MIN_CAPACITY
    assert writer.replay.column("prev")[slot] == -1
    writer.replay.check_valid()


def test_a_batch_larger_than_the_guard_is_whole() -> None:
    writer = Writer(Replay.in_memory(LAYOUT))
    clients = [Client() for _ in range(2 * GUARD + 7)]
    writer.append([(client, 1.0, START) for client in clients])
    writer.append([(client, 2.0, 0) for client in clients])
    writer.replay.check_valid()
    assert writer.replay.head == 2 * len(clients)


def test_a_hand_computed_three_step_return() -> None:
    writer, client = Writer(Replay.in_memory(LAYOUT)), Client()
    for reward, flags in [(9.0, START), (1.0, 0), (2.0, 0), (4.0, 0), (8.0, TERMINAL)]:
        writer.append([(client, reward, flags)])
    got = writer.replay.gather(np.array([0, 1, 2, 3]), n_step=3, gamma=0.5)
    # Frame 0: 1 + 0.5·2 + 0.25·4; the start frame's own reward belongs to nothing.
    assert got.reward.tolist() == [3.0, 2 + 0.5 * 4 + 0.25 * 8, 4 + 0.5 * 8, 8.0]
    assert got.discount.tolist() == [0.125, 0.0, 0.0, 0.0]


def test_a_truncated_episode_keeps_its_value_and_a_chain_under_way_stops_early() -> None:
    writer, client = Writer(Replay.in_memory(LAYOUT)), Client()
    for reward, flags in [(0.0, START), (1.0, 0), (1.0, TRUNCATED), (0.0, START), (5.0, 0)]:
        writer.append([(client, reward, flags)])
    got = writer.replay.gather(np.array([0, 1, 3]), n_step=4, gamma=0.5)
    assert got.reward.tolist() == [1.5, 1.0, 5.0]
    assert got.discount.tolist() == [0.25, 0.5, 0.5]
    assert got.next_observation[:, 0].tolist() == [2, 2, 4]


def test_the_action_executed_replaces_the_one_commanded() -> None:
    writer, client = Writer(Replay.in_memory(LAYOUT)), Client()
    writer.append([(client, 0.0, START)])
    before = writer.replay.correct(0, np.array([3]), np.array([0.25], np.float32), 4)
    writer.append([(client, 1.0, 0)])
    got = writer.replay.gather(np.array([0]), n_step=1, gamma=1.0)
    assert before == 0
    assert (got.choice[0, 0], got.continuous[0, 0], got.source[0]) == (3, 0.25, 4)


def test_check_valid_finds_broken_links() -> None:
    writer, client = Writer(Replay.in_memory(LAYOUT)), Client()
    for flags in (START, 0, 0):
        writer.append([(client, 0.0, flags)])
    writer.replay.column("next")[2] = 0
    with pytest.raises(ReplayError, match="back in time"):
        writer.replay.check_valid()
    writer.replay.column("next")[2] = -1
    writer.replay.column("prev")[1] = 2
    with pytest.raises(ReplayError, match="does not name its predecessor"):
        writer.replay.check_valid()


# --- the file ---------------------------------------------------------------------------------


def test_a_file_is_found_again_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "replay.bin"
    writer, client = Writer(Replay.in_file(path, LAYOUT)), Client()
    for _ in range(100):
        writer.append([(client, 1.0, 0)])
    again = Writer(Replay.in_file(path, LAYOUT))
    again.reference = writer.reference
    assert check_all(again, 3, 0.9) == 99


def test_an_emptied_replay_forgets_what_was_and_stays_empty_in_its_file(tmp_path: Path) -> None:
    path = tmp_path / "replay.bin"
    writer, client = Writer(Replay.in_file(path, LAYOUT)), Client()
    for _ in range(100):
        writer.append([(client, 1.0, 0)])
    writer.replay.flush()
    assert (writer.replay.size, writer.replay.head, writer.replay.oldest) == (0, 100, 100)
    assert UniformSampler(writer.replay, 0).sample(8, n_step=1, gamma=1.0) is None
    for _ in range(10):
        writer.append([(client, 1.0, 0)])  # the same episode goes on
    again = Writer(Replay.in_file(path, LAYOUT))
    again.reference = writer.reference
    assert check_all(again, 3, 0.9) == 9
    sample = UniformSampler(again.replay, 0).sample(500, n_step=3, gamma=1.0)
    assert sample is not None and sample.index.min() == 100
    for _ in range(MIN_CAPACITY + 50):
        again.append([(client, 1.0, 0)])
    assert again.replay.size == MIN_CAPACITY - GUARD  # the ring goes on as ever
    check_all(again, 3, 0.9)


def test_a_floor_that_outlived_its_head_is_lowered(tmp_path: Path) -> None:
    path = tmp_path / "replay.bin"
    replay = Replay.in_file(path, LAYOUT)
    data = path.read_bytes()
    path.write_bytes(data[:72] + (50).to_bytes(8, "little") + data[80:])
    again = Replay.in_file(path, LAYOUT)
    assert (again.oldest, again.size) == (0, 0) == (replay.oldest, replay.size)
    again.check_valid()


def test_a_reader_of_another_process_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "replay.bin"
    writer, client = Writer(Replay.in_file(path, LAYOUT)), Client()
    writer.append([(client, 0.5, START)])
    # Between the two writes of a head, which the writer would take for damage at its next start.
    writer.replay.column("head")[0] = 2
    before = path.read_bytes()
    reader = Replay.to_read(path, LAYOUT)
    assert (reader.head, reader.note) == (2, "")
    assert path.read_bytes() == before
    writer.replay.column("head")[0] = 1
    assert reader.head == 1  # it sees what is written
    with pytest.raises(ValueError, match="read-only"):
        reader.column("reward")[0] = 1.0
    with pytest.raises(FileNotFoundError):
        Replay.to_read(tmp_path / "other.bin", LAYOUT)


def test_a_million_ram_frames_take_at_most_200_mb(tmp_path: Path) -> None:
    layout = Layout(1_000_000, "uint8", 128, 1, 0)
    Replay.in_file(tmp_path / "replay.bin", layout)
    assert (tmp_path / "replay.bin").stat().st_size <= 200e6


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda data: b"X" + data[1:], "no replay's first bytes"),
        (lambda data: data[:140] + b"\xff" + data[141:], "a wrong checksum"),
        (lambda data: data[:50], "damaged"),
        (lambda data: data[:-5000], "bytes instead of"),
        (lambda data: data[:64] + b"\xff" * 8 + data[72:], "negative head"),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, damage: object, words: str) -> None:
    path = tmp_path / "replay.bin"
    Replay.in_file(path, LAYOUT)
    path.write_bytes(damage(path.read_bytes()))  # type: ignore[operator]
    with pytest.raises(ReplayError, match=words) as caught:
        Replay.in_file(path, LAYOUT)
    assert str(path) in str(caught.value)


def test_a_file_of_another_layout_is_refused_with_both_described(tmp_path: Path) -> None:
    Replay.in_file(tmp_path / "replay.bin", LAYOUT)
    other = Layout(2 * MIN_CAPACITY, "uint8", 128, 1, 0)
    with pytest.raises(
        ReplayError, match=r"4,096 frames of 2 float32.*8,192 frames of 128 uint8.*--fresh"
    ):
        Replay.in_file(tmp_path / "replay.bin", other)


def test_a_replay_that_is_too_small_is_refused() -> None:
    with pytest.raises(ReplayError, match="at least 4096 frames, not 64"):
        Replay.in_memory(Layout(64, "uint8", 1, 1, 0))


# --- the sampler ------------------------------------------------------------------------------


def test_an_empty_replay_and_one_without_transitions_give_nothing() -> None:
    replay = Replay.in_memory(LAYOUT)
    sampler = UniformSampler(replay, 0)
    assert sampler.sample(8, n_step=1, gamma=1.0) is None
    writer = Writer(replay)
    for _ in range(50):
        writer.append([(Client(), 0.0, START | TERMINAL)])
    assert sampler.sample(8, n_step=1, gamma=1.0) is None


def test_a_replay_with_hardly_any_transition_is_still_sampled() -> None:
    writer, client = Writer(Replay.in_memory(LAYOUT)), Client()
    for _ in range(1000):
        writer.append([(Client(), 0.0, START | TERMINAL)])
    for _ in range(12):
        writer.append([(client, 0.0, 0)])
    sample = UniformSampler(writer.replay, 3).sample(1024, n_step=1, gamma=1.0)
    assert sample is not None
    assert len(sample.transitions.reward) == 1024
    assert set(sample.transitions.observation[:, 0]) <= set(range(1000, 1011))


def test_every_transition_has_the_same_chance() -> None:
    writer, client = Writer(Replay.in_memory(LAYOUT)), Client()
    for number in range(21):
        writer.append([(client, 0.0, TERMINAL if number % 7 == 6 else 0)])
    sample = UniformSampler(writer.replay, 3).sample(18_000, n_step=1, gamma=1.0)
    assert sample is not None
    counts = np.bincount(sample.transitions.observation[:, 0].astype(int), minlength=21)
    assert counts[[6, 13, 20]].tolist() == [0, 0, 0]
    # 18 transitions, 1,000 draws each on average: six standard deviations.
    assert np.all(np.abs(counts[counts > 0] - 1000) < 200)


@pytest.mark.parametrize(
    "make_sampler",
    [
        lambda replay: UniformSampler(replay, 7),
        lambda replay: PrioritySampler(replay, 7, alpha=0.6, beta=Linear(0.4, 1.0, 100)),
    ],
    ids=["uniform", "priority"],
)
def test_a_reader_beside_a_writer_never_sees_a_torn_or_foreign_transition(
    make_sampler: Callable[[Replay], UniformSampler],
) -> None:
    """Each frame's values all carry its client and count, so a mixture shows at once."""
    clients, turns = 16, 6_000
    replay = Replay.in_memory(Layout(MIN_CAPACITY, "float32", 64, 1, 1))
    problems: list[str] = []
    done = threading.Event()

    def write() -> None:
        last = [-1] * clients
        for turn in range(turns):
            values = np.array([c * turns + turn for c in range(clients)], np.float32)
            first = replay.append(
                Frames(
                    np.repeat(values[:, None], 64, axis=1),
                    np.full((clients, 1), turn % 100),
                    np.zeros((clients, 1), np.float32),
                    [float(turn)] * clients,
                    [0] * clients,
                    np.zeros(clients, np.uint8),
                    1,
                    last,
                )
            )
            last = list(range(first, first + clients))
            if turn % 300 == 299:
                replay.flush()  # at any moment, too
        done.set()

    def read() -> None:
        sampler = make_sampler(replay)
        rng = np.random.default_rng(0)
        while not done.is_set():
            sample = sampler.sample(256, n_step=3, gamma=1.0)
            if sample is None:
                continue
            sampler.learned(sample.index, rng.normal(size=256).astype(np.float32))
            got = sample.transitions
            here, there = got.observation, got.next_observation
            if np.any(here != here[:, :1]) or np.any(there != there[:, :1]):
                problems.append("torn")
            steps = there[:, 0] - here[:, 0]
            turn = here[:, 0] % turns
            expected = sum(
                np.where(steps >= k, turn + k, 0) for k in (1, 2, 3)
            )  # the sum of the next turns' rewards
            if np.any((steps < 1) | (steps > 3)) or np.any(got.reward != expected):
                problems.append("foreign")
            if np.any(got.choice[:, 0] != turn % 100):
                problems.append("action of another frame")

    reader = threading.Thread(target=read)
    reader.start()
    write()
    reader.join()
    assert problems == []
    assert replay.head == clients * turns > 20 * MIN_CAPACITY
    replay.check_valid()
