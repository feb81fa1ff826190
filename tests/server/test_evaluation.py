"""Evaluations: greedy, with weights that stay, apart from all training; the best is kept."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from live import PATIENCE_S, ROOT, SPACES, Client, Server
from test_agent import SHAPE, make_agent
from test_agent import SPACES as SMALL

from client_py.ale import AleGame
from server.evaluation import SEED, Evaluation
from server.examiner import Examiner, _Turn
from server.fleet import Emulator
from server.learn import checkpoint as checkpoints
from server.learn.checkpoint import Checkpoint
from server.learn.network import HybridNetwork, Shape, Weights, make_inference, to_flat
from server.net import wire
from server.net.wire import START, TERMINAL, TRUNCATED, Frame, Hello, Source, Welcome
from server.spaces import Actions, Discrete, Observation, Spaces
from server.stats import EventLog, Result, Score

Start = Callable[..., Server]


class Recorder:
    """A connection that keeps what is said."""

    def __init__(self) -> None:
        self.actions: list[wire.Action] = []
        self.closed: list[Any] = []

    def welcome(self, welcome: Welcome, spaces: Spaces, on_frame: Any, on_lost: Any) -> None:
        self.frame, self.lost = on_frame, on_lost

    def write(self, data: bytes) -> None:
        self.actions.append(wire.read_action(wire.unpack(data[4:])))

    def close(self, farewell: Any) -> None:
        self.closed.append(farewell)


def choosing(choice: int) -> Weights:
    """Give weights that choose the same, whatever is seen: the last biases say so."""
    agent_size = 2 * 8 + 8 + 8 * 2 + 2
    flat = np.zeros(agent_size, np.float32)
    flat[-2 + choice] = 1.0
    return Weights(3, 40, 0.0, flat)


def begin(
    episodes: int = 0, choice: int = 1, shape: Shape = SHAPE, weights: Weights | None = None
) -> tuple[Evaluation, Recorder, list[str]]:
    ends: list[str] = []
    evaluation = Evaluation(
        spaces=SMALL,
        shape=shape,
        device="cpu",
        weights=weights or choosing(choice),
        frames=700,
        episodes=episodes,
        on_episode=lambda evaluation: None,
        on_end=lambda evaluation, reason: ends.append(reason),
    )
    connection: Any = Recorder()
    hello = Hello("t", "1", "g", "a", SMALL, evaluate=True)
    evaluation.attend(connection, hello, Welcome("s", 1.0, 1000))
    return evaluation, connection, ends


def show(connection: Recorder, episode: list[tuple[int, float]], value: float = 0.0) -> None:
    """Show frames, given as flags and rewards."""
    for flags, reward in episode:
        number = len(connection.actions)
        observation = np.array([number, value], np.float32).tobytes()
        connection.frame(Frame(number, flags, [reward], observation))


def test_every_answer_is_the_networks_best_choice() -> None:
    for choice in (0, 1):
        _, connection, _ = begin(choice=choice)
        show(connection, [(START, 0.0)] + [(0, 0.0)] * 50)
        assert {tuple(action.discrete) for action in connection.actions} == {(choice,)}
        assert {action.source for action in connection.actions} == {Source.POLICY}


def test_returns_are_those_of_whole_episodes_and_a_start_frames_reward_is_left_out() -> None:
    evaluation, connection, _ = begin()
    show(connection, [(START, 99.0), (0, 1.0), (TERMINAL, 2.0)])
    show(connection, [(START, 99.0), (TRUNCATED, -5.0)])
    show(connection, [(START, 0.0), (0, 50.0)])  # not finished
    assert [result[:2] for result in evaluation.results] == [(3.0, 3), (-5.0, 2)]
    score = evaluation.score()
    assert (score.episodes, score.mean, score.frames, score.steps) == (2, -1.0, 700, 40)


def test_a_frame_that_is_sent_again_earns_nothing_again() -> None:
    evaluation, connection, _ = begin()
    observation = np.zeros(2, np.float32).tobytes()
    connection.frame(Frame(0, START, [0.0], observation))
    for _ in range(3):
        connection.frame(Frame(1, 0, [4.0], observation))
    connection.frame(Frame(2, TERMINAL, [1.0], observation))
    assert [result.total for result in evaluation.results] == [5.0]
    assert [action.sequence for action in connection.actions] == [0, 1, 1, 1, 2]


def test_it_ends_when_it_has_seen_enough() -> None:
    evaluation, connection, ends = begin(episodes=2)
    for _ in range(3):
        show(connection, [(START, 0.0), (TERMINAL, 1.0)])
    assert [type(farewell) for farewell in connection.closed] == [wire.Bye]
    assert evaluation.complete
    assert len(evaluation.results) == 2
    connection.lost("gone")
    assert ends == ["gone"]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_value_that_is_not_finite_ends_it(bad: float) -> None:
    evaluation, connection, _ = begin()
    show(connection, [(START, 0.0)], value=bad)
    assert [type(farewell) for farewell in connection.closed] == [wire.Error]
    assert not connection.actions
    assert not evaluation.results


def test_the_same_episode_twice_counts_as_one_that_differs() -> None:
    results = [Result(5.0, 10, 111), Result(5.0, 10, 222), Result(5.0, 10, 111)]
    assert Score.of(results, frames=0, steps=0).distinct == 2
    evaluation, connection, _ = begin()
    sequence = 0
    for idle, value in ((1, 1.0), (4, 1.0), (2, 2.0)):
        # However long nothing happens before the first reward: what follows tells them apart.
        frames = [(START, 0.0, 0.0), *[(0, 0.0, 0.0)] * idle, (0, 1.0, value), (TERMINAL, 0, value)]
        for flags, reward, seen in frames:
            observation = np.array([seen, 0.0], np.float32).tobytes()
            connection.frame(Frame(sequence, flags, [reward], observation))
            sequence += 1
    assert len(evaluation.results) == 3
    assert evaluation.score().distinct == 2


def test_each_four_episodes_begin_an_atari_game_in_all_four_ways() -> None:
    game = AleGame("pong", frame_skip=1)
    starts = []
    for episode in range(20):
        game.reset(SEED + episode)
        starts.append(game._ale.getEpisodeFrameNumber() % 4)
    assert all(sorted(starts[at : at + 4]) == [0, 1, 2, 3] for at in range(0, 20, 4))


def test_the_evaluated_weights_are_the_ones_that_can_be_kept() -> None:
    evaluation, _, _ = begin()
    named = {name.removeprefix("online."): t for name, t in evaluation.tensors().items()}
    assert np.array_equal(to_flat(SMALL, SHAPE, named), choosing(1).flat)


# --- the examiner -------------------------------------------------------------------------------


def test_an_evaluation_stacks_the_frames_of_its_own_episode() -> None:
    shape = Shape((8,), frame_stack=3)
    tensors = HybridNetwork(SMALL, shape).state_dict()
    weights = Weights(1, 0, 0.0, to_flat(SMALL, shape, tensors))
    evaluation, connection, _ = begin(shape=shape, weights=weights)
    seen: list[bytes] = []
    act_one = evaluation._policy.act_one
    evaluation._policy.act_one = lambda stack, *rest: seen.append(stack) or act_one(stack, *rest)
    plays = [(0, START, (0, 0, 0)), (1, 0, (0, 0, 1)), (2, 0, (0, 1, 2)), (3, TERMINAL, (1, 2, 3))]
    plays += [(4, START, (4, 4, 4)), (5, 0, (4, 4, 5))]
    for number, flags, _ in plays:
        observation = np.array([number, -number], np.float32).tobytes()
        evaluation.add(Frame(number, flags, [0.0], observation))
    stacks = [np.array([(n, -n) for n in stack], np.float32).tobytes() for _, _, stack in plays]
    assert seen == stacks
    inference = make_inference(SMALL, shape, "cpu", None)
    inference.load(weights)
    chosen = [inference.best(stack)[0] for stack in stacks]
    assert [action.discrete for action in connection.actions] == chosen


def examiner(
    agents: dict[str, Any], events: EventLog, sticky: float = 0.0, episodes: int = 1
) -> Examiner:
    return Examiner(
        agents=agents,
        interval_s=0.0,
        episodes=episodes,
        sticky=sticky,
        stall_s=0.0,
        device="cpu",
        find_launch=lambda agent: None,
        on_score=lambda *found: None,
        events=events,
    )


def conclude(agent: Any, events: EventLog, value: float, *, scheduled: bool = True) -> None:
    evaluation, connection, _ = begin()
    show(connection, [(START, 0.0), (TERMINAL, value)])
    exam = examiner({"a": agent}, events)
    asyncio.run(exam._conclude(agent, evaluation, scheduled=scheduled))


def test_a_long_evaluation_is_followed_by_a_longer_rest(tmp_path: Path) -> None:
    now, agent = [1000.0], make_agent(tmp_path)
    exam = examiner({"a": agent}, EventLog())
    exam._interval_s, exam._clock = 60.0, lambda: now[0]
    for took_s, rest_s in ((2.0, 60.0), (200.0, 1800.0)):
        exam._turn = _Turn(agent, _Nobody(), began_s=now[0], over=True)
        now[0] += took_s
        asyncio.run(exam.tend())
        assert exam._due_s["a"] == now[0] + rest_s


class _Nobody(Emulator):
    """An emulator that has ended."""

    def __init__(self) -> None:
        pass

    def signal(self, number: int) -> None:
        pass

    def end(self, patience_s: float) -> None:
        pass


def test_the_best_is_kept_and_a_later_start_knows_its_score(tmp_path: Path) -> None:
    agent, events = make_agent(tmp_path), EventLog()
    for value in (3.0, 8.0, 5.0):
        conclude(agent, events, value)
    conclude(agent, events, 100.0, scheduled=False)  # by hand: told, never kept
    assert agent.evaluation_best is not None
    assert agent.evaluation is not None
    assert (agent.evaluation_best.mean, agent.evaluation.mean) == (8.0, 100.0)
    best = checkpoints.read(tmp_path / "best.safetensors")
    assert best.plain["evaluation"]["mean"] == 8.0
    assert (best.plain["frames"], best.plain["steps"]) == (700, 40)
    assert best.plain["spaces"] == SMALL.to_plain()
    assert ["best so far" in event.text for event in events.newest(4)] == [True, True, False, False]

    again = make_agent(tmp_path)
    examiner({"a": again}, events).take_up(again)
    assert again.evaluation_best == agent.evaluation_best
    conclude(again, events, 7.0)
    assert checkpoints.read(tmp_path / "best.safetensors").plain["evaluation"]["mean"] == 8.0


def test_a_best_of_another_kind_of_evaluation_is_no_match(tmp_path: Path) -> None:
    agent, events = make_agent(tmp_path), EventLog()
    conclude(agent, events, 8.0)
    again = make_agent(tmp_path)
    examiner({"a": again}, events, sticky=0.25).take_up(again)
    assert again.evaluation_best is None
    assert "with sticky actions of 0, now it is 1 with 0.25" in events.newest(1)[0].text
    examiner({"a": again}, events, episodes=20).take_up(again)  # a mean of few is luck
    assert again.evaluation_best is None
    assert "over 1 episodes with sticky actions of 0, now it is 20" in events.newest(1)[0].text


def test_a_damaged_best_is_told_and_the_next_takes_its_place(tmp_path: Path) -> None:
    agent, events = make_agent(tmp_path), EventLog()
    (tmp_path / "best.safetensors").write_bytes(b"nothing")
    examiner({"a": agent}, events).take_up(agent)
    assert "best.safetensors is damaged" in events.newest(1)[0].text
    conclude(agent, events, 1.0)
    best, _ = checkpoints.load(tmp_path, checkpoints.BEST)
    assert isinstance(best, Checkpoint)


def test_a_best_that_cannot_be_written_is_told_and_not_believed(tmp_path: Path) -> None:
    agent, events = make_agent(tmp_path), EventLog()
    (tmp_path / "best.safetensors.new").mkdir()
    conclude(agent, events, 1.0)
    assert agent.evaluation_best is None
    assert any("cannot write the checkpoint" in event.text for event in events.newest(2))


# --- over real sockets --------------------------------------------------------------------------


def curve(tmp_path: Path, kind: str) -> list[dict[str, Any]]:
    text = (tmp_path / "runs" / "default" / "curves.jsonl").read_text()
    found = [json.loads(line) for line in text.splitlines()]
    return [line for line in found if line["kind"] == kind]


def test_nothing_of_an_evaluation_is_stored_or_counted(start: Start, tmp_path: Path) -> None:
    server = start("--no-training", "--epsilon-start", "1")
    player, examinee = Client(server.port), Client(server.port)
    player.hello()
    player.play(37)
    welcome = examinee.hello(evaluate=True, client="exam")
    assert isinstance(welcome, wire.Welcome)
    observation = np.full(4, 0.5, np.float32).tobytes()
    answers = set()
    for rewards in ((0.0, 1.0, 2.0), (0.0, 5.0)):
        for number, reward in enumerate(rewards):
            end = TERMINAL if number == len(rewards) - 1 else 0
            examinee.frame(observation, START if number == 0 else end, reward)
            answer = examinee.receive()
            assert answer.source == Source.POLICY
            answers.add(tuple(answer.discrete))
    assert len(answers) == 1  # epsilon is 1 for those who train
    examinee.send(wire.encode(wire.Bye("done")))
    server.wait_for(r"agent game evaluated: mean 4 \(median 4, 3 to 5\) over 2 greedy episodes")
    player.play(3)
    assert server.stop() == 0
    agent = tmp_path / "runs" / "default" / "agents" / "game"
    saved = checkpoints.read(agent / checkpoints.NAME).plain
    assert (saved["frames"], saved["episodes"], saved["returns"]) == (40, 0, [])
    assert not (agent / "best.safetensors").exists()
    (line,) = curve(tmp_path, "evaluation")
    assert (line["mean"], line["scheduled"], line["frames"]) == (4.0, False, 37)


def test_who_cannot_be_evaluated_is_told_why(start: Start) -> None:
    server = start("--no-training")
    answer = Client(server.port).hello(evaluate=True)
    assert answer == wire.Reject("there is no agent 'game' to evaluate; there are: none")
    player = Client(server.port)
    player.hello()
    other = Spaces(Observation("uint8", (3,)), Actions((Discrete("s", 2),), ()), ("r",))
    answer = Client(server.port).hello(other, evaluate=True)
    assert "agent 'game' expects 4 float32 values" in answer.reason
    broken = Client(server.port)
    assert isinstance(broken.hello(SPACES, evaluate=True), wire.Welcome)
    broken.close()
    server.wait_for("an evaluation of agent game broke off after 0 episodes")
    player.play(1)
    assert server.stop() == 0


def test_the_schedule_evaluates_keeps_the_best_and_writes_the_curve(
    start: Start, tmp_path: Path
) -> None:
    options = ("--launch", "gym:CartPole-v1", "--min-replay", "100", "--heartbeat-s", "0.5")
    options += ("--eval-interval-s", "1", "--eval-episodes", "3", "--curve-interval-s", "0.5")
    server = start(*options)
    server.wait_for(r"(?s)(evaluated: mean .*){2}")
    assert server.stop() == 0
    assert "broke off" not in server.text
    found = curve(tmp_path, "evaluation")
    assert all((line["episodes"], line["scheduled"]) == (3, True) for line in found)
    kept = [line for line in found if line["best"]]
    assert kept[0] is found[0]
    directory = tmp_path / "runs" / "default" / "agents" / "CartPole-v1"
    best = checkpoints.read(directory / "best.safetensors").plain
    assert best["evaluation"]["mean"] == kept[-1]["mean"] == max(line["mean"] for line in found)
    intervals = curve(tmp_path, "interval")
    frames = [line["frames"] for line in intervals]
    assert frames == sorted(frames)
    assert len(frames) > 2

    server = start(*options, "--seed", "5")
    server.wait_for("resumed")
    assert server.stop() == 0
    assert [line["seed"] for line in curve(tmp_path, "start")] == [1, 5]
    assert curve(tmp_path, "start")[1]["frames"] >= frames[-1]
    starts = (tmp_path / "runs" / "default" / "starts.jsonl").read_text().splitlines()
    assert [json.loads(line)["seed"] for line in starts] == [1, 5]
    assert json.loads(starts[0])["versions"]["ale-py"]


def ctl_eval(tmp_path: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "main.py"), "ctl", "--runs-dir", str(tmp_path / "runs")]
    return subprocess.run(
        [*command, "eval"], capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False
    )


def test_an_evaluation_can_be_asked_for_without_any_schedule(start: Start, tmp_path: Path) -> None:
    options = ("--eval-interval-s", "0", "--eval-episodes", "3", "--no-training")
    server = start("--launch", "gym:CartPole-v1", *options)
    server.wait_for("joined agent CartPole-v1")
    for _ in range(2):  # the same weights once more: asked is asked
        found = ctl_eval(tmp_path)
        assert found.returncode == 0, found.stderr
        first, *_, last = found.stdout.splitlines()
        assert first == "evaluating CartPole-v1: 3 episodes"
        assert last.startswith("CartPole-v1: mean ") and "over 3 greedy episodes" in last
    assert server.stop() == 0
    first, second = curve(tmp_path, "evaluation")
    assert first["scheduled"] and first["best"] and not second["best"]
    assert first["mean"] == second["mean"]


def test_an_evaluation_that_cannot_be_is_refused_with_the_reason(
    start: Start, tmp_path: Path
) -> None:
    server = start("--no-training")
    assert server.port
    found = ctl_eval(tmp_path)
    assert (found.returncode, found.stderr) == (1, "ctl: there is no agent to evaluate yet\n")
    player = Client(server.port)
    player.hello()
    found = ctl_eval(tmp_path)
    assert found.returncode == 1
    assert "none of its clients was started by this server" in found.stderr
    player.play(1)
    assert server.stop() == 0
