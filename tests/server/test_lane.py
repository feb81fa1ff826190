"""The lane in C: the same answers, frames and counts as Python's, and replies that go out whole."""

from __future__ import annotations

import ctypes
import socket
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server import batcher as batchers
from server import native
from server.batcher import Batcher
from server.lane import Lane
from server.learn.network import HybridNetwork, Shape, Weights, flatten_parameters, make_inference
from server.learn.policy import Coding, Mix, Policy
from server.learn.replay import Layout, Replay
from server.net import wire
from server.net.protocol import Protocol
from server.net.wire import START, TERMINAL, TRUNCATED, Frame, Source
from server.session import Session
from server.spaces import Actions, Continuous, Discrete, Observation, Spaces

pytestmark = pytest.mark.skipif(native.library() is None, reason="no C compiler here")

STICK = Discrete("stick", 3)
BUTTONS = (STICK, Discrete("fire", 200))
PADDLES = (Continuous("x", -2.0, 255.0), Continuous("y", 0.0, 0.3))
FEATURES = Spaces(Observation("float32", (3,)), Actions((STICK,), ()), ("score", "bonus"))
KINDS = {
    "features": FEATURES,
    "ram": Spaces(Observation("uint8", (128,)), Actions((Discrete("key", 18),), ()), ("score",)),
    "heads": Spaces(Observation("float32", (70,)), Actions(BUTTONS, ()), ("score",)),
    "paddle": Spaces(Observation("float32", (9,)), Actions((), PADDLES[:1]), ("score",)),
    "hybrid": Spaces(Observation("uint8", (9,)), Actions(BUTTONS, PADDLES), ("score", "bonus")),
    "joint": Spaces(Observation("uint8", (300,)), Actions(BUTTONS, (), joint=True), ("score",)),
}
FIRST = 65_533  # a sequence number that soon takes four bytes


class Stage:
    """A batcher, with a lane or without, and clients whose replies are kept."""

    def __init__(
        self, spaces: Spaces, in_c: bool, clients: int = 3, *, by_socket: bool = False
    ) -> None:
        self.spaces = spaces
        self._by_socket = by_socket
        shape = Shape((8,), bins=6)
        network = HybridNetwork(spaces, shape)
        flat, _ = flatten_parameters(network)
        weights = np.random.default_rng(5).normal(size=flat.shape).astype(np.float32)
        self.policy = Policy(make_inference(spaces, shape, "cpu"), Coding(spaces.actions), 1)
        self.policy.load(Weights(7, 0, 0.0, weights))
        self.replay = Replay.in_memory(Layout.of(spaces, 4096))
        self.episodes: list[tuple[str, float]] = []
        self.appended: list[int] = []
        self.batcher = Batcher(
            policy=self.policy,
            replay=self.replay,
            lane=Lane.of(spaces, self.policy, self.replay, 1) if in_c else None,
            schedule=lambda call: None,
            on_appended=self.appended.append,
            on_episode=lambda session, value: self.episodes.append((session.id, value)),
        )
        self.batcher.players = 100
        self.batcher.mix = Mix(epsilon=0.3)
        self.written: list[list[bytes]] = []
        self.closed: dict[str, str] = {}
        self.sessions = [self._join(number) for number in range(clients)]
        self.send = [self._sender(session) for session in self.sessions]

    def _join(self, number: int) -> Session:
        session = Session(session_id=str(number), hello=wire.Hello("t", "1", "g", "g", self.spaces))
        session.last_sequence = FIRST - 1
        written: list[bytes] = []
        self.written.append(written)
        read_frame = wire.FrameReader(self.spaces)

        def read(data: bytes) -> None:
            self.batcher.add(session, read_frame(wire.unpack(data[4:])))

        session.attach(
            "here", written.append, lambda why: self.closed.update({session.id: why}), read
        )
        return session

    def _sender(self, session: Session) -> Callable[[bytes], None]:
        sizes = wire.FrameReader(self.spaces).usual_sizes
        taker = self.batcher.taker(session)

        def by_message(data: bytes) -> None:
            if taker is not None and len(data) in sizes.values():
                taker.message(data)
            else:
                session.read(data)

        def by_socket(data: bytes) -> None:
            near, far = socket.socketpair()
            near.setblocking(False)
            with closing(near), closing(far):
                far.sendall(data)
                if session.turn == self.batcher._turn:
                    assert taker.socket(near.fileno()) is None  # who waits is answered first
                given_back = taker.socket(near.fileno())
                if given_back is not None:
                    assert given_back == data
                    session.read(given_back)

        return by_socket if self._by_socket else by_message

    def told(self) -> dict[str, object]:
        """Everything that a lane could get wrong."""
        columns = {
            name: self.replay.column(name)[: self.replay.head].tobytes()
            for name in self.replay.layout.columns()
        }
        sessions = [
            (
                session.frames,
                list(session.sources),
                session.last_sequence,
                session.last_index,
                session.last_reply,
                session.episode_return,
                session.last_return,
                session.episodes,
                session.guided,
                session.guided_before,
            )
            for session in self.sessions
        ]
        return {
            "columns": columns,
            "sessions": sessions,
            "head": self.replay.head,
            "written": self.written,
            "closed": self.closed,
            "episodes": self.episodes,
            "frames": self.batcher.frames,
        }


def message(spaces: Spaces, sequence: int, flags: int = 0, reward: float = 0.0, seed: int = 0):
    dice = np.random.default_rng(seed)
    values = spaces.observation.values
    if spaces.observation.dtype == "uint8":
        observation = dice.integers(0, 256, values).astype(np.uint8)
    else:
        observation = dice.normal(size=values).astype(np.float32)
        if seed == 13:
            observation[-1] = np.nan
    rewards = [reward] + [0.25] * (len(spaces.rewards) - 1)
    return wire.encode_frame(Frame(sequence, flags, rewards, observation.tobytes()))


FLAGS = st.sampled_from([0, 0, 0, 0, START, TERMINAL, TRUNCATED, START | TERMINAL])
REWARDS = st.sampled_from([0.0, 1.0, -2.5, 1e30, 1e39, float("inf"), float("nan")])
SAID = st.tuples(
    st.sampled_from([1, 1, 1, 1, 1, 2, 0, -1]),  # how much further the sequence number is
    FLAGS,
    st.one_of(st.just(0.5), REWARDS),
    st.integers(0, 20),  # the observation's seed; 13 is not finite
    st.sampled_from([1, 100]),  # players: a lone one is answered at once
)
TURNS = st.lists(st.dictionaries(st.integers(0, 2), SAID, min_size=1), max_size=12)


@contextmanager
def together() -> Iterator[None]:
    """Have Python take batches of every size together, as the lane does: the same dice."""
    with mock.patch.object(batchers, "_FEW", 0):
        yield


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25)
@given(turns=TURNS)
def test_it_does_what_python_does(kind: str, turns: list[dict[int, tuple]]) -> None:
    spaces = KINDS[kind]
    stages = [Stage(spaces, False), Stage(spaces, True), Stage(spaces, True, by_socket=True)]
    for stage in stages:
        stage.batcher.mix = Mix(epsilon=0.3, noise=0.2)
    sequences = [FIRST - 1] * 3
    for turn in turns:
        for client, (further, flags, reward, seed, players) in turn.items():
            sequences[client] += further
            data = message(spaces, sequences[client], flags, reward, seed)
            for stage in stages:
                stage.batcher.players = players
                if str(client) not in stage.closed:
                    stage.send[client](data)
        for stage in stages:
            stage.batcher.flush()
    python, lane, straight = (stage.told() for stage in stages)
    assert lane == python
    assert straight == python


@pytest.mark.parametrize("kind", KINDS)
def test_its_dice_are_pythons(kind: str) -> None:
    spaces = KINDS[kind]
    stages = [Stage(spaces, False), Stage(spaces, True), Stage(spaces, True, by_socket=True)]
    for number, mix in enumerate(
        [Mix(0.5, 0.3), Mix(0.2, 1.0), Mix(0.01), Mix(0.9), Mix(0.1, 0.1)] * 6
    ):
        for stage in stages:
            stage.batcher.mix = mix
            stage.batcher.players = 1
            stage.send[number % 3](message(spaces, FIRST + number, seed=number % 10))
    python, lane, straight = (stage.told() for stage in stages)
    assert lane == python
    assert straight == python
    assert all(session.sources[Source.EXPLORATION] for session in stages[1].sessions)


def test_it_goes_round_the_ring_as_python_does() -> None:
    stages = [Stage(FEATURES, in_c, clients=7) for in_c in (False, True)]
    with together():
        for number in range(1200):  # twice round
            flags = START if number % 50 == 0 else TERMINAL if number % 50 == 49 else 0
            for client in range(7):
                data = message(FEATURES, FIRST + number, flags, seed=number % 11)
                for stage in stages:
                    stage.send[client](data)
            for stage in stages:
                stage.batcher.flush()
    python, lane = (stage.told() for stage in stages)
    assert lane == python
    assert stages[1].replay.head == 8400
    stages[1].replay.check_valid()
    assert stages[1].batcher.batches == 1200


@pytest.mark.parametrize("players", [0, 2, 3, 4])
@pytest.mark.parametrize("few", [1, 2, 3])
def test_when_it_answers(few: int, players: int) -> None:
    """At once where few play or everybody's frame is there; else at the end of the turn."""
    stage = Stage(FEATURES, in_c=True)
    calls: list[Callable[[], None]] = []
    stage.batcher._schedule = calls.append
    stage.batcher.players = players
    for client in range(few):
        stage.send[client](message(FEATURES, FIRST))
    at_once = players <= 2 or few >= players
    assert stage.replay.head == (few if at_once else 0)
    assert bool(calls) is (players > 2)
    for call in calls:
        call()
    assert stage.replay.head == few


def test_a_client_that_does_not_wait_is_answered_in_order() -> None:
    stage = Stage(FEATURES, in_c=True)
    for number in range(3):
        stage.send[0](message(FEATURES, FIRST + number))
    stage.batcher.flush()
    assert stage.replay.head == 3
    answers = [wire.read_action(wire.unpack(data[4:])) for data in stage.written[0]]
    assert [answer.sequence for answer in answers] == [FIRST, FIRST + 1, FIRST + 2]


def test_settings_are_told_by_python_and_only_once() -> None:
    stage = Stage(FEATURES, in_c=True)
    stage.batcher.players = 1
    stage.sessions[0].settings = {"level": 3}
    for number in range(2):
        stage.send[0](message(FEATURES, FIRST + number))
    first, second = (wire.read_action(wire.unpack(data[4:])) for data in stage.written[0])
    assert (first.settings, second.settings) == ({"level": 3}, None)


def test_a_frame_that_is_sent_again_gets_the_same_answer() -> None:
    stage = Stage(FEATURES, in_c=True)
    stage.batcher.players = 1
    for _ in range(3):
        stage.send[0](message(FEATURES, FIRST))
    assert stage.replay.head == 1
    assert len(set(stage.written[0])) == 1
    assert len(stage.written[0]) == 3


def test_one_bad_frame_spoils_nobody_elses() -> None:
    stage = Stage(FEATURES, in_c=True)
    stage.send[0](message(FEATURES, FIRST))
    stage.send[1](message(FEATURES, FIRST, seed=13))
    stage.send[2](message(FEATURES, FIRST))
    stage.batcher.flush()
    assert "not finite" in stage.closed["1"]
    assert [len(written) for written in stage.written] == [1, 0, 1]
    assert stage.replay.head == 2


@pytest.mark.parametrize("players", [1, 100])
@pytest.mark.parametrize("waits", [False, True])
def test_what_is_no_usual_frame_comes_back_from_the_socket(players: int, waits: bool) -> None:
    stage = Stage(FEATURES, in_c=True)
    session, other = stage.sessions[:2]
    if waits:
        stage.send[1](message(FEATURES, FIRST))
    stage.batcher.players = players
    taker = stage.batcher.taker(session)
    assert taker is not None
    frame = message(FEATURES, FIRST)
    near, far = socket.socketpair()
    with closing(near), closing(far):
        near.setblocking(False)
        assert taker.socket(near.fileno()) is None  # nothing has come
        for said in (frame + frame, frame[:-1], wire.encode(wire.Ping()), bytes(60_000)):
            far.sendall(said)
            assert taker.socket(near.fileno()) == said
        session.settings = {"level": 3}
        far.sendall(frame)
        assert taker.socket(near.fileno()) == frame  # Python tells settings
        far.close()
        assert taker.socket(near.fileno()) == b""
    assert taker.socket(near.fileno()) == b""  # -1
    assert (session.frames, other.frames) == (0, 0)
    assert stage.replay.head == 0


def test_replies_go_out_by_the_outlet_and_the_rest_by_python() -> None:
    stage = Stage(FEATURES, in_c=True)
    stage.batcher.players = 1
    near, far = socket.socketpair()
    with closing(near), closing(far):
        near.setblocking(False)
        session = stage.sessions[0]
        outlet = ctypes.c_int32(near.fileno())
        session.attach("here", stage.written[0].append, lambda why: None, session.read, outlet)
        stage.send[0](message(FEATURES, FIRST))
        assert far.recv(100) == session.last_reply
        assert not stage.written[0]
        # With no room, Python gets what did not go out, and the client all of it in order.
        filled = 0
        with pytest.raises(BlockingIOError):
            while True:
                filled += near.send(b"x" * 1000)
        stage.send[0](message(FEATURES, FIRST + 1))
        assert stage.written[0] == [session.last_reply]
        # After the last word nothing goes out.
        outlet.value = -1
        stage.send[0](message(FEATURES, FIRST + 2))
        assert len(stage.written[0]) == 2
        session.detach(0.0)
        stage.send[0](message(FEATURES, FIRST + 3))
        assert len(stage.written[0]) == 2
        assert stage.replay.head == 4
        assert session.latency_s > 0


BIG = st.binary(max_size=80)


@settings(max_examples=100)
@given(cut=st.integers(0, 60), junk=BIG)
def test_bytes_of_the_right_length_may_be_anything(cut: int, junk: bytes) -> None:
    """Whatever they are, the lane does nothing, and Python says what is wrong."""
    stage = Stage(FEATURES, in_c=True)
    good = message(FEATURES, FIRST)
    said = (good[:cut] + junk)[: len(good)].ljust(len(good), b"\0")
    lane = stage.batcher._lane
    assert lane is not None
    waits = lane.put(stage.sessions[0], said)
    left = lane.answer(Mix(), 1) if waits else None
    frame = wire.FrameReader(FEATURES).usual(said)
    sound = frame is not None and (
        frame.sequence >= FIRST
        and abs(sum(frame.rewards)) <= 3e38
        and bool(np.all(np.abs(np.frombuffer(frame.observation, np.float32)) <= 1e18))
    )
    assert (left is not None) == sound
    assert stage.replay.head == int(sound)


def test_no_agent_that_needs_python_has_one() -> None:
    replay = Replay.in_memory(Layout.of(FEATURES, 4096))
    regressed = KINDS["paddle"]
    many = Spaces(Observation("float32", (3,)), Actions((), PADDLES * 4), ("score",))
    for spaces, shape, stack in (
        (regressed, Shape((8,), bins=0), 1),
        (many, Shape((8,), bins=6), 1),
        (FEATURES, Shape((8,), layer_norm=True), 1),
        (FEATURES, Shape((8,)), 2),
    ):
        inference = make_inference(spaces, shape, "cpu")
        policy = Policy(inference, Coding(spaces.actions), 1)
        assert Lane.of(spaces, policy, replay, stack) is None


def test_only_a_lone_message_of_a_playing_client_may_be_usual() -> None:
    protocol = Protocol(max_message_bytes=1 << 16)
    data = message(FEATURES, FIRST)
    assert not protocol.may_be_usual(data)
    hello = wire.Hello("t", "1", "g", "g", FEATURES)
    list(protocol.receive(wire.encode(hello)))
    protocol.welcome(wire.Welcome("s", 10.0, 1 << 16, {}), FEATURES)
    assert protocol.may_be_usual(data)
    assert not protocol.may_be_usual(data + data)
    list(protocol.receive(data[:5]))  # the rest must not be taken for a message
    assert not protocol.may_be_usual(data)
    protocol.close(wire.Bye("enough"))
    assert not protocol.may_be_usual(data)


def test_the_numbers_of_both_languages_agree() -> None:
    assert len(Source) == 5
    assert (Source.EXPERT, Source.EXPLORATION) == (2, 1)
    assert (TERMINAL | TRUNCATED, START) == (3, 4)
