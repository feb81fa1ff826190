"""A loop turn's frames: stored once, linked right, answered each."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from server import batcher
from server.batcher import Batcher
from server.learn.network import (
    HybridNetwork,
    Shape,
    Weights,
    flatten_parameters,
    make_inference,
)
from server.learn.policy import Coding, Mix, Policy
from server.learn.replay import Layout, Replay
from server.net import wire
from server.net.wire import START, TERMINAL, TRUNCATED, Choice, Executed, Frame, Source
from server.session import Session
from server.spaces import Actions, Continuous, Discrete, Observation, Spaces

SPACES = Spaces(
    Observation("float32", (2,)),
    Actions((Discrete("stick", 3),), (Continuous("x", 0.0, 10.0),)),
    ("score", "bonus"),
)


class Stage:
    """A batcher with real policy and replay, and sessions whose replies are kept."""

    idle_players = 3  # connected clients that send nothing

    def __init__(self, frame_stack: int = 1) -> None:
        shape = Shape((8,), frame_stack=frame_stack)
        flat, _ = flatten_parameters(HybridNetwork(SPACES, shape))
        self.inference = make_inference(SPACES, shape, "cpu")
        policy = Policy(self.inference, Coding(SPACES.actions), 1)
        policy.load(Weights(7, 0, 0.0, flat.detach().numpy().copy()))
        self.replay = Replay.in_memory(Layout.of(SPACES, 4096))
        self.scheduled: list[Callable[[], None]] = []
        self.appended: list[int] = []
        self.episodes: list[tuple[str, float]] = []
        self.replies: dict[str, list[wire.Action]] = {}
        self.closed: dict[str, str] = {}
        self.batcher = Batcher(
            policy=policy,
            replay=self.replay,
            frame_stack=frame_stack,
            schedule=self.scheduled.append,
            on_appended=self.appended.append,
            on_episode=lambda session, value: self.episodes.append((session.id, value)),
        )
        self.batcher.players = self.idle_players

    def session(self, name: str) -> Session:
        session = Session(session_id=name, hello=wire.Hello("t", "1", "g", "g", SPACES))
        replies = self.replies[name] = []
        self.batcher.players += 1
        session.attach(
            "here",
            lambda data: replies.append(wire.read_action(wire.unpack(data[4:]))),
            lambda why: self.closed.update({name: why}),
        )
        return session

    def turn(self) -> None:
        for flush in self.scheduled:
            flush()
        self.scheduled.clear()

    def column(self, name: str) -> list[object]:
        values: list[object] = self.replay.column(name)[: self.replay.head].tolist()
        return values


def frame(
    sequence: int, flags: int = 0, reward: float = 0.0, value: float = 0.5, **rest: object
) -> Frame:
    observation = np.array([value, sequence], np.float32).tobytes()
    return Frame(sequence, flags, [reward, 0.25], observation, **rest)  # type: ignore[arg-type]


@pytest.fixture(autouse=True, params=[3, 0], ids=["in company", "alone"])
def company(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Answer at the end of a turn, and at once where everyone's frame is there: together."""
    monkeypatch.setattr(Stage, "idle_players", request.param)
    monkeypatch.setattr(batcher, "_FEW", 1)
    players: int = request.param
    return players


def test_one_turn_is_one_batch_one_append_and_one_reply_each(company: int) -> None:
    stage = Stage()
    sessions = [stage.session(name) for name in "abcd"]
    for session in sessions[:3]:
        stage.batcher.add(session, frame(0, START))
    assert len(stage.scheduled) == 1
    assert stage.replay.head == 0
    stage.batcher.add(sessions[3], frame(0, START))
    # With everyone's frame there, nobody waits for the turn's end.
    assert stage.replay.head == (0 if company else 4)
    stage.turn()
    assert (stage.replay.head, stage.appended, stage.batcher.batches) == (4, [4], 1)
    assert [len(stage.replies[name]) for name in "abcd"] == [1, 1, 1, 1]
    assert stage.replies["b"][0].sequence == 0
    assert stage.column("version") == [7, 7, 7, 7]
    assert stage.batcher.latency_s.percentiles(50) is not None


def test_few_clients_are_answered_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batcher, "_FEW", 3)
    stage = Stage()
    stage.batcher.players = 0
    for number, name in enumerate("abc", 1):
        stage.batcher.add(stage.session(name), frame(0, START))
        assert (stage.replay.head, stage.batcher.batches) == (number, number)
    assert not stage.scheduled


def test_few_frames_of_many_clients_are_answered_one_by_one_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(batcher, "_FEW", 2)
    stage = Stage()
    stage.batcher.players = 10
    for name in "ab":
        stage.batcher.add(stage.session(name), frame(0, START))
    assert stage.replay.head == 0
    stage.turn()
    assert (stage.replay.head, stage.batcher.batches) == (2, 2)
    assert [len(stage.replies[name]) for name in "ab"] == [1, 1]


def test_interleaved_clients_are_linked_each_to_itself() -> None:
    stage = Stage()
    a, b = stage.session("a"), stage.session("b")
    stage.batcher.add(a, frame(0, START))
    stage.turn()
    stage.batcher.add(b, frame(0, START))
    stage.batcher.add(a, frame(1, reward=1.0))
    stage.turn()
    stage.batcher.add(b, frame(1))
    stage.turn()
    assert stage.column("next") == [2, 3, -1, -1]
    assert stage.column("prev") == [-1, -1, 0, 1]
    assert stage.column("reward") == [0.25, 0.25, 1.25, 0.25]
    stage.replay.check_valid()


@pytest.mark.parametrize("flag", [TERMINAL, TRUNCATED])
def test_nothing_is_linked_after_an_end_even_if_start_is_forgotten(flag: int) -> None:
    stage = Stage()
    a = stage.session("a")
    for sequence, flags in enumerate([START, flag, 0, 0]):
        stage.batcher.add(a, frame(sequence, flags))
        stage.turn()
    assert stage.column("next") == [1, -1, 3, -1]
    stage.replay.check_valid()


def test_a_step_back_in_the_sequence_closes_that_client_alone() -> None:
    stage = Stage()
    a, b = stage.session("a"), stage.session("b")
    for number in (0, 1):
        stage.batcher.add(a, frame(number))
        stage.batcher.add(b, frame(number))
        stage.turn()
    stage.batcher.add(a, frame(0))
    stage.batcher.add(b, frame(2))
    stage.turn()
    assert list(stage.closed) == ["a"]
    assert stage.closed["a"].startswith("frame 0 after frame 1: numbers only go up in a session")
    assert [action.sequence for action in stage.replies["b"]] == [0, 1, 2]
    assert stage.column("next") == [2, 3, -1, 4, -1]  # nothing of it is stored


@pytest.mark.parametrize("sequence", [3, 99])
def test_a_gap_in_the_sequence_cuts_the_chain(sequence: int) -> None:
    stage = Stage()
    a = stage.session("a")
    for number in (0, 1, sequence):
        stage.batcher.add(a, frame(number))
        stage.turn()
    assert stage.column("next") == [1, -1, -1]


def test_a_frame_sent_again_gets_its_answer_again_and_is_stored_once() -> None:
    stage = Stage()
    stage.batcher.mix = Mix(epsilon=1.0)
    a = stage.session("a")
    for number in (0, 1, 1, 1, 2):
        stage.batcher.add(a, frame(number, reward=1.0))
        stage.turn()
    assert [action.sequence for action in stage.replies["a"]] == [0, 1, 1, 1, 2]
    assert stage.replies["a"][1] == stage.replies["a"][2] == stage.replies["a"][3]
    assert stage.column("next") == [1, 2, -1]
    assert a.episode_return == 3 * 1.25


def test_a_frame_sent_again_and_again_is_a_fault_until_the_client_comes_back() -> None:
    stage = Stage()
    a = stage.session("a")
    for _ in range(4):
        stage.batcher.add(a, frame(0))
        stage.turn()
    assert not stage.closed
    stage.batcher.add(a, frame(0))
    assert "frame 0 was sent again and again" in stage.closed["a"]
    assert len(stage.replies["a"]) == 4
    answers: list[bytes] = []
    a.attach("here", answers.append, stage.closed.__delitem__)
    stage.batcher.add(a, frame(0))
    assert len(answers) == 1


def test_a_client_faster_than_lockstep_gets_every_answer_in_order() -> None:
    stage = Stage()
    a, b = stage.session("a"), stage.session("b")
    stage.batcher.add(b, frame(0))
    for number in range(4):
        stage.batcher.add(a, frame(number))
    stage.turn()
    assert [action.sequence for action in stage.replies["a"]] == [0, 1, 2, 3]
    assert [action.sequence for action in stage.replies["b"]] == [0]
    assert stage.column("next") == [-1, 2, 3, 4, -1]


def test_the_action_that_was_executed_is_the_one_stored() -> None:
    stage = Stage()
    a = stage.session("a")
    stage.batcher.add(a, frame(0, START))
    stage.turn()
    done = Executed(Source.HUMAN, Choice([2], [10.0]))
    stage.batcher.add(a, frame(1, executed=done))
    stage.turn()
    assert stage.replay.column("choice")[0, 0] == 2
    assert stage.replay.column("continuous")[0, 0] == 1.0
    assert stage.column("source")[0] == Source.HUMAN
    assert a.sources[Source.HUMAN] == 1
    assert sum(a.sources) == 2


def test_the_expert_is_followed_when_told_to() -> None:
    stage = Stage()
    stage.batcher.mix = Mix(expert_ratio=1.0)
    a, b = stage.session("a"), stage.session("b")
    stage.batcher.add(a, frame(0, expert=Choice([1], [2.5])))
    stage.batcher.add(b, frame(0))
    stage.turn()
    (followed,), (own,) = stage.replies["a"], stage.replies["b"]
    assert (followed.discrete, followed.source) == ([1], Source.EXPERT)
    assert followed.continuous == pytest.approx([2.5])
    assert own.source == Source.POLICY


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("where", ["value", "reward"])
def test_a_value_that_is_not_finite_closes_its_client_alone(bad: float, where: str) -> None:
    stage = Stage()
    sessions = {name: stage.session(name) for name in "abc"}
    stage.batcher.add(sessions["a"], frame(0))
    stage.batcher.add(sessions["b"], frame(0, **{where: bad}))
    stage.batcher.add(sessions["c"], frame(0))
    stage.turn()
    assert list(stage.closed) == ["b"]
    assert "frame 0 has a value that is not finite" in stage.closed["b"]
    assert [len(stage.replies[name]) for name in "abc"] == [1, 0, 1]
    assert stage.replay.head == 2
    assert np.isfinite(stage.replay.column("observation")).all()


def test_a_reward_too_large_for_a_float32_counts_as_not_finite() -> None:
    stage = Stage()
    stage.batcher.add(stage.session("a"), frame(0, reward=1e300))
    stage.turn()
    assert "a" in stage.closed
    assert stage.replay.head == 0


def test_returns_leave_out_the_reward_of_the_start_frame() -> None:
    stage = Stage()
    a = stage.session("a")
    for sequence, (flags, reward) in enumerate([(START, 9.0), (0, 1.0), (TERMINAL, 2.0)]):
        stage.batcher.add(a, frame(sequence, flags, reward))
        stage.turn()
    assert stage.episodes == [("a", 1.25 + 2.25)]
    assert (a.episodes, a.last_return, a.frames) == (1, 3.5, 3)


def test_settings_are_pushed_once() -> None:
    stage = Stage()
    a = stage.session("a")
    a.settings = {"start_level": 5}
    for number in range(2):
        stage.batcher.add(a, frame(number))
        stage.turn()
    assert [action.settings for action in stage.replies["a"]] == [{"start_level": 5}, None]


def test_a_client_that_left_before_the_answer_hurts_nobody() -> None:
    stage = Stage()
    stage.batcher.players = 2  # more than a few, with those below
    a, b = stage.session("a"), stage.session("b")
    stage.batcher.add(a, frame(0))
    a.detach(0.0)
    stage.batcher.add(b, frame(0))
    stage.turn()
    assert (len(stage.replies["a"]), len(stage.replies["b"])) == (0, 1)
    assert stage.replay.head == 2


def test_what_is_seen_is_a_stack_of_the_clients_own_episode() -> None:
    stage = Stage(frame_stack=3)
    sessions = {name: stage.session(name) for name in "ab"}
    plays = {  # the sequence numbers that each frame's stack should hold; b starts over at 2
        "a": [(0, START, (0, 0, 0)), (1, 0, (0, 0, 1)), (2, 0, (0, 1, 2)), (3, 0, (1, 2, 3))],
        "b": [(0, START, (0, 0, 0)), (1, TERMINAL, (0, 0, 1)), (2, START, (2, 2, 2))],
    }
    for number in range(4):
        for name, session in sessions.items():
            for sequence, flags, _ in plays[name][number : number + 1]:
                stage.batcher.add(session, frame(sequence, flags, value=ord(name)))
        stage.turn()
    for name, play in plays.items():
        for (_, _, stack), reply in zip(play, stage.replies[name], strict=True):
            seen = np.array([v for s in stack for v in (ord(name), s)], np.float32)
            expected = stage.inference(seen[None])
            assert reply.discrete == [int(expected.values[0].argmax())]
            assert reply.continuous[0] == pytest.approx(5 + 5 * expected.continuous[0, 0], abs=1e-4)
