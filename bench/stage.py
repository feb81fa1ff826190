"""The parts of one agent as a server has them: a full replay, a learner, a policy, its clients."""

from __future__ import annotations

import asyncio
import gc
import itertools
import random
from collections.abc import Callable, Iterator

import numpy as np

import config
from bench.load import workload
from server.app import prepare_process
from server.batcher import Batcher
from server.lane import Lane
from server.learn.learner import Learner, Rules
from server.learn.network import Shape, Weights, make_inference
from server.learn.policy import Coding, Mix, Policy
from server.learn.replay import Frames, Layout, Replay
from server.learn.sampler import UniformSampler
from server.net import wire
from server.net.listener import Connection, Limits, Listener
from server.session import Session
from server.spaces import Spaces

_FILL = 1000  # frames of one append while the replay is filled
_MIX = Mix(epsilon=0.02)  # as after the first minutes


class Stage:
    """Builds the parts once; each ``*_work`` gives a function to time."""

    def __init__(self, *, values: int, batch_size: int) -> None:
        settings = config.Config()
        prepare_process(settings)
        self.spaces = workload(values)
        self.shape = Shape(settings.network.hidden_sizes)
        self.rules = Rules(batch_size=batch_size)
        self.replay = Replay.in_memory(Layout.usual(self.spaces))
        fill(self.replay, self.replay.layout.capacity)
        self.sampler = UniformSampler(self.replay, seed=1)
        self.learner = Learner(
            spaces=self.spaces,
            shape=self.shape,
            rules=self.rules,
            sampler=self.sampler,
        )
        self.weights = self.learner.weights()
        self.policy = make_policy(self.spaces, self.shape, self.weights)
        self._dice = random.Random(1)
        gc.collect()
        gc.freeze()  # as the server does once everything is built

    def observation(self, rows: int) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
        """Make up a batch of observations."""
        size = rows * self.spaces.observation.values
        return np.frombuffer(self._dice.randbytes(size), np.uint8).reshape(rows, -1)

    def decode_work(self) -> Callable[[], None]:
        """Take the bytes of one frame from a socket: split, unpack, check, hand on."""
        connection = _welcomed(_hello(self.spaces))
        (observation,) = self.observation(1)
        frame = wire.encode_frame(wire.Frame(70_000, 0, [0.0], observation.tobytes()))
        return lambda: connection.data_received(frame)

    def append_work(self, rows: int) -> Callable[[], object]:
        """Store the frames of some clients, each linked to the one before."""
        observation, choices = self.observation(rows), [[3]] * rows
        continuous = np.zeros((rows, self.replay.layout.controls), np.float32)
        rewards, zeros = [0.0] * rows, [0] * rows

        raw = observation.tobytes()

        def lone_work() -> None:
            self.replay.append_one(raw, [3], [], 0.0, 0, 0, 1, self.replay.head - 1)

        def work() -> None:
            head = self.replay.head
            previous = list(range(head - rows, head))
            self.replay.append(
                Frames(observation, choices, continuous, rewards, zeros, zeros, 1, previous)
            )

        return lone_work if rows == 1 else work  # as the batcher does

    def lane_work(self, clients: int) -> Callable[[], None] | None:
        """Answer one message of each client in C; the replies are thrown away."""
        return lane_work(self.spaces, self.policy, self.replay, clients)

    def flush_work(self, clients: int) -> Callable[[], None]:
        """Answer one frame of each client in Python; the replies are thrown away."""
        batcher, sessions = _players(self.spaces, self.policy, self.replay, clients, None)
        observations = [row.tobytes() for row in self.observation(clients)]
        numbers: Iterator[int] = itertools.count()

        def work() -> None:
            number = next(numbers)
            for session, observation in zip(sessions, observations, strict=True):
                batcher.add(session, wire.Frame(number, 0, [0.0], observation))
            batcher.flush()

        return work

    def sample_work(self, count: int) -> Callable[[], object]:
        """Draw and gather some transitions."""
        rules = self.rules
        return lambda: self.sampler.sample(count, n_step=rules.n_step, gamma=rules.gamma)

    def step_work(self) -> Callable[[], object]:
        """Take one gradient step on one batch."""
        rules = self.rules
        batch = self.sampler.sample(rules.batch_size, n_step=rules.n_step, gamma=rules.gamma)
        assert batch is not None
        parts = self.learner.cut(batch, 1)
        return lambda: self.learner.step(parts)


def make_policy(spaces: Spaces, shape: Shape, weights: Weights) -> Policy:
    """Make a policy that plays with these weights."""
    policy = Policy(make_inference(spaces, shape, "cpu"), Coding(spaces.actions), seed=1)
    policy.load(weights)
    return policy


def lane_work(
    spaces: Spaces, policy: Policy, replay: Replay, clients: int
) -> Callable[[], None] | None:
    """Answer one message of each client in C; the replies are thrown away. None without C."""
    lane = Lane.of(spaces, policy, replay, 1)
    if lane is None:
        return None
    batcher, sessions = _players(spaces, policy, replay, clients, lane)
    takers = [taker.message for session in sessions if (taker := batcher.taker(session))]
    dice = random.Random(1)
    messages = [
        wire.encode_frame(wire.Frame(70_000, 0, [0.0], dice.randbytes(replay.layout.values)))
        for _ in range(clients)
    ]

    def work() -> None:
        for session, take, message in zip(sessions, takers, messages, strict=True):
            session.last_sequence = 69_999  # the same message is the next one again
            take(message)
        batcher.flush()

    return work


def _players(
    spaces: Spaces, policy: Policy, replay: Replay, clients: int, lane: Lane | None
) -> tuple[Batcher, list[Session]]:
    batcher = Batcher(
        policy=policy,
        replay=replay,
        lane=lane,
        schedule=lambda call: None,
        on_appended=lambda head: None,
        on_episode=lambda session, earned: None,
    )
    batcher.mix, batcher.players = _MIX, clients
    hello = _hello(spaces)
    return batcher, [Session(session_id=str(number), hello=hello) for number in range(clients)]


def _hello(spaces: Spaces) -> wire.Hello:
    return wire.Hello("bench", "1", "bench", "bench", spaces)


def fill(replay: Replay, frames: int) -> None:
    """Append frames of many clients in endless episodes, so that samples come from all over."""
    layout, rng = replay.layout, np.random.default_rng(1)
    observation = rng.integers(0, 256, (_FILL, layout.values), np.uint8)
    choice = rng.integers(0, 6, (_FILL, layout.heads))
    continuous = np.zeros((_FILL, layout.controls), np.float32)
    nothing = [0] * _FILL
    for _ in range(0, frames, _FILL):
        head = replay.head
        previous = [max(-1, before) for before in range(head - _FILL, head)]
        rewards = rng.choice([-1.0, 0.0, 0.0, 1.0], _FILL).tolist()
        replay.append(
            Frames(observation, choice, continuous, rewards, nothing, nothing, 1, previous)
        )


class _Desk:
    """Welcomes whoever comes and throws the frames away."""

    def greet(self, connection: Connection, hello: wire.Hello) -> None:
        """Let the client play."""
        welcome = wire.Welcome("bench", heartbeat_s=20.0, max_message_bytes=1 << 20)
        connection.welcome(welcome, hello.spaces, lambda frame: None, lambda reason: None)

    def refused(self, connection: Connection, hello: wire.Hello, reason: str) -> None:
        """Refuse nobody: there is no token."""

    def fault(self, connection: Connection, error: Exception) -> None:
        """Let an error of ours end the benchmark."""
        raise error


class _Nowhere(asyncio.Transport):
    """A socket that swallows everything."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send nothing."""

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Buffer nothing."""

    def is_closing(self) -> bool:
        """Stay open."""
        return False


def _welcomed(hello: wire.Hello) -> Connection:
    """Make a connection whose client was let in."""
    connection = Connection(Listener(desk=_Desk(), limits=Limits()))
    connection.connection_made(_Nowhere())
    connection.data_received(wire.encode(hello))
    return connection
