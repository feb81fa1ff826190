"""An agent's figures from known events."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from server import agent as agent_module
from server.agent import LearningAgent, Schedules
from server.controls import Controls
from server.learn import checkpoint as checkpoints
from server.learn.checkpoint import CheckpointError
from server.learn.learner import Learner, Rules
from server.learn.network import (
    HybridNetwork,
    Shape,
    Weights,
    flatten_parameters,
    make_inference,
)
from server.learn.policy import Coding, Mix, Policy
from server.learn.replay import Layout, Replay
from server.learn.sampler import UniformSampler
from server.learn.schedule import Linear
from server.net.wire import START, TERMINAL, Choice, Executed, Frame, Hello, Source
from server.session import Session
from server.spaces import Actions, Continuous, Discrete, Observation, Spaces
from server.stats import RETURN_WINDOW
from server.train.thread import TrainingThread
from server.train.trainer import LearnerError

SPACES = Spaces(Observation("float32", (2,)), Actions((Discrete("s", 2),), ()), ("r",))
SHAPE = Shape((8,))


def make_agent(directory: Path, shape: Shape = SHAPE) -> LearningAgent:
    replay = Replay.in_memory(Layout.of(SPACES, 4096))
    turns: list[Callable[[], None]] = []
    learner = Learner(
        spaces=SPACES,
        shape=shape,
        rules=Rules(batch_size=4, steps_per_sample=2),
        sampler=UniformSampler(replay, 1),
    )
    agent = LearningAgent(
        name="a",
        game="g",
        spaces=SPACES,
        shape=shape,
        directory=directory,
        replay=replay,
        trainer=TrainingThread(
            name="a",
            learner=learner,
            replay=replay,
            min_replay=10,
            max_replay_ratio=0.0,
            controls=Controls(training=False),
            on_death=lambda error: None,
        ),
        policy=Policy(make_inference(SPACES, shape, "cpu"), Coding(SPACES.actions), 1),
        schedules=Schedules(Linear(1.0, 0.0, 1000), Linear(0.5, 0.1, 1000), Linear(0.8, 0.0, 100)),
        controls=Controls(training=False),
        min_replay=10,
        schedule_call=turns.append,
    )
    agent.start()
    return agent


@pytest.fixture
def agent(tmp_path: Path) -> LearningAgent:
    return make_agent(tmp_path)


def feed(agent: LearningAgent, returns: list[float]) -> None:
    """Play episodes of two frames with these returns."""
    session = Session(session_id="s", hello=Hello("t", "1", "g", "a", SPACES))
    sequence = 0
    for value in returns:
        for flags, reward in ((START, 9.0), (TERMINAL, value)):
            observation = np.zeros(2, np.float32).tobytes()
            agent.batcher.add(session, Frame(sequence, flags, [reward], observation))
            agent.batcher.flush()
            sequence += 1


def train_one_sample(agent: LearningAgent) -> None:
    """Have the trainer, which is paused, train once."""
    trainer = agent.trainer
    assert isinstance(trainer, TrainingThread)
    assert trainer.call(trainer._learner.train).result(5)  # type: ignore[call-arg]


def test_frames_episodes_and_returns(agent: LearningAgent) -> None:
    feed(agent, [float(n) for n in range(30)])
    view = agent.view()
    assert (view.frames, view.replay_size, view.episodes) == (60, 60, 30)
    assert view.return_last == 29.0
    assert view.returns == tuple(float(n) for n in range(30))
    assert RETURN_WINDOW == 20
    assert view.return_mean == pytest.approx(sum(range(10, 30)) / 20)
    assert view.return_best == pytest.approx(sum(range(10, 30)) / 20)
    assert view.batch_mean == 1.0
    assert view.latency_p50_ms is not None
    assert view.latency_p50_ms <= view.latency_p99_ms  # type: ignore[operator]


def play(agent: LearningAgent, episodes: list[list[tuple[float, Executed | None]]]) -> None:
    """Play episodes frame by frame, each with its reward and what was really done before it."""
    session = Session(session_id="s", hello=Hello("t", "1", "g", "a", SPACES))
    sequence = 0
    for episode in episodes:
        for number, (reward, executed) in enumerate(episode):
            last = number == len(episode) - 1
            flags = (0 if number else START) | (TERMINAL if last else 0)
            observation = np.zeros(2, np.float32).tobytes()
            frame = Frame(sequence, flags, [reward], observation, executed, Choice([1], []))
            agent.batcher.add(session, frame)
            agent.batcher.flush()
            sequence += 1


HUMAN = Executed(Source.HUMAN, Choice([0], []))
SCRIPT = Executed(Source.SCRIPT, Choice([0], []))


def test_episodes_that_others_had_a_hand_in_are_counted_apart(agent: LearningAgent) -> None:
    agent.set_controls(Controls(training=False, epsilon=0.0, expert_ratio=0.0))
    own = [(0.0, None), (2.0, None), (3.0, None)]
    play(agent, [own, [(0.0, None), (50.0, HUMAN), (0.0, None)], own, [(0.0, None), (9.0, SCRIPT)]])
    view = agent.view()
    assert (view.episodes, view.return_mean, view.returns) == (2, 5.0, (5.0, 5.0))
    assert (view.guided_episodes, view.guided_return_mean) == (2, 29.5)


def test_an_episode_with_the_experts_actions_is_no_score_of_the_agent(agent: LearningAgent) -> None:
    agent.set_controls(Controls(training=False, epsilon=0.0, expert_ratio=1.0))
    play(agent, [[(0.0, None), (7.0, None)]])
    agent.set_controls(Controls(training=False, epsilon=0.0, expert_ratio=0.0))
    play(agent, [[(0.0, None), (1.0, None)]])
    view = agent.view()
    assert (view.episodes, view.return_last) == (1, 1.0)
    assert (view.guided_episodes, view.guided_return_mean) == (1, 7.0)


def test_an_answer_that_is_never_carried_out_makes_no_guided_episode(agent: LearningAgent) -> None:
    """The expert's answer to an episode's last frame comes too late to matter."""
    session = Session(session_id="s", hello=Hello("t", "1", "g", "a", SPACES))
    nothing = np.zeros(2, np.float32).tobytes()
    for sequence in range(4):
        start = sequence % 2 == 0
        ratio = 0.0 if start else 1.0
        agent.set_controls(Controls(training=False, epsilon=0.0, expert_ratio=ratio))
        flags = START if start else TERMINAL
        expert = Choice([1], [])
        agent.batcher.add(session, Frame(sequence, flags, [1.0], nothing, None, expert))
        agent.batcher.flush()
    assert session.sources[Source.EXPERT] == 2
    assert (agent.view().episodes, agent.view().guided_episodes) == (2, 0)


def test_agreement_is_the_share_of_proposals_that_the_network_would_choose(
    agent: LearningAgent,
) -> None:
    assert agent.view().agreement is None
    flat = np.zeros_like(agent.trainer.weights().result(5).flat)
    flat[-2:] = (0.0, 1.0)  # the last biases: choice 1 is worth more, whatever is seen
    assert agent._policy.load(Weights(9, 1, 0.0, flat))
    # Whoever plays, it is the network that is compared.
    agent.set_controls(Controls(training=False, epsilon=1.0, expert_ratio=0.5))
    session = Session(session_id="s", hello=Hello("t", "1", "g", "a", SPACES))
    nothing = np.zeros(2, np.float32).tobytes()
    for sequence, proposed in enumerate([1, 1, 0, 1, None, None]):
        expert = None if proposed is None else Choice([proposed], [])
        agent.batcher.add(session, Frame(sequence, 0, [0.0], nothing, None, expert))
        agent.batcher.flush()
    assert agent.view().agreement == 0.75


@pytest.mark.parametrize(("bins", "agreed"), [(0, 2), (5, 3)])
def test_a_continuous_control_agrees_where_it_could_not_be_nearer(bins: int, agreed: int) -> None:
    """Before any noise, for one frame and for a batch alike; of few bins the nearest agrees."""
    spaces = Spaces(
        Observation("float32", (2,)), Actions((), (Continuous("paddle", 0.0, 10.0),)), ("r",)
    )
    shape = Shape((8,), bins=bins)
    inference = make_inference(spaces, shape, "cpu", None)
    network = HybridNetwork(spaces, shape)
    flat, _ = flatten_parameters(network)
    flat.zero_()  # a number of 0, or the first bin; the second bias from the end of five is 0.5
    if bins:
        flat[-2] = 1.0
    place = 0.5 if bins else 0.0
    policy = Policy(inference, Coding(spaces.actions), 0)
    assert policy.load(Weights(1, 0, 0.0, flat.numpy()))
    # On the scale of -1..1: equal, near, a bin's half away, further.
    experts = [Choice([], [5 + 5 * (place + off)]) for off in (0.0, -0.09, 0.25, 0.3)]
    mix = Mix(epsilon=0.5, noise=2.0, expert_ratio=0.5)
    for expert in experts:
        policy.act_one(np.zeros(2, np.float32).tobytes(), expert, mix)
    assert (policy.compared, policy.agreed) == (4, agreed)
    policy.act(np.zeros((5, 2), np.float32), [*experts, None], mix)
    assert (policy.compared, policy.agreed) == (8, 2 * agreed)


def test_windows_hold_the_agents_own_episodes_of_the_last_frames(agent: LearningAgent) -> None:
    agent.set_controls(Controls(training=False, epsilon=0.0, expert_ratio=0.0))
    feed(agent, [1.0, 2.0, 3.0])  # each is two frames: half a point a frame
    play(agent, [[(0.0, None), (50.0, HUMAN), (0.0, None)]])
    windows = agent.view().return_windows
    assert [window.frames for window in windows] == [100_000, 1_000_000, 5_000_000]
    for window in windows:
        assert (window.episodes, window.mean) == (3, 2.0)
        assert window.slope == pytest.approx(500_000)
    agent._frames_before = 150_000  # as if it had played on for long
    assert [window.episodes for window in agent.view().return_windows] == [0, 3, 3]


def test_the_best_mean_stays_when_the_returns_fall(agent: LearningAgent) -> None:
    feed(agent, [5.0] * 20 + [0.0] * 20)
    view = agent.view()
    assert (view.return_mean, view.return_best) == (0.0, 5.0)


def test_there_is_no_best_before_a_full_window(agent: LearningAgent) -> None:
    feed(agent, [5.0] * 19)
    assert agent.view().return_best is None


def test_schedules_follow_the_frames_and_overrides_win(agent: LearningAgent) -> None:
    feed(agent, [0.0] * 25)
    assert agent.mix() == Mix(0.95, 0.48, pytest.approx(0.4))
    agent.set_controls(Controls(training=False, epsilon=0.25, expert_ratio=0.0))
    assert agent.mix() == Mix(0.25, 0.48, 0.0)
    assert (agent.view().epsilon, agent.view().epsilon_natural) == (0.25, False)
    agent.set_controls(Controls(training=False, greedy=True))
    assert agent.mix() == Mix()
    assert agent.naturals()["epsilon"] == 0.95
    agent.set_controls(Controls(training=False, expert=True))
    assert agent.mix() == Mix(expert_ratio=1.0)
    assert not agent.view().expert_natural
    agent.set_controls(Controls(training=False, exploring=False, epsilon=0.25))
    assert agent.mix() == Mix(0.0, 0.0, pytest.approx(0.4))
    assert not agent.view().epsilon_natural


@pytest.mark.parametrize(
    "paused", [Controls(exploring=False), Controls(greedy=True), Controls(expert=True)]
)
@pytest.mark.parametrize("shape", [Shape((8,), noisy=True), Shape((8,), True, noisy=True)])
def test_noisy_layers_are_still_while_nothing_is_explored(
    tmp_path: Path, paused: Controls, shape: Shape
) -> None:
    agent = make_agent(tmp_path, shape)
    quiet = make_inference(SPACES, shape, "cpu", None)
    assert agent.weights is not None
    quiet.load(agent.weights)
    seen = np.random.default_rng(3).random((16, 2), np.float32)

    def noisy() -> bool:
        return not np.allclose(agent._policy._inference(seen).values, quiet(seen).values, atol=1e-4)

    assert noisy()
    agent.set_controls(paused)
    assert not noisy()
    assert asyncio.run(agent.refresh_policy())  # a heartbeat later, too
    assert not noisy()
    agent.set_controls(Controls(training=False))
    assert noisy()
    agent.trainer.stop(5.0)


def test_steps_are_counted_once_and_weights_are_as_old_as_their_copy(agent: LearningAgent) -> None:
    feed(agent, [1.0] * 20)
    train_one_sample(agent)
    view = agent.view()
    assert (view.steps, view.samples, view.skipped_steps) == (2, 1, 0)
    assert agent.trainer.report.transitions == 8
    assert agent.awaits_first_weights()
    assert asyncio.run(agent.refresh_policy())
    assert not agent.awaits_first_weights()
    view = agent.view()
    assert view.weights_version == 2
    assert view.weights_age_s is not None
    assert 0 <= view.weights_age_s < 5


def test_what_is_saved_is_restored(agent: LearningAgent, tmp_path: Path) -> None:
    feed(agent, [2.0] * 25)
    play(agent, [[(0.0, None), (50.0, HUMAN)]])
    train_one_sample(agent)
    asyncio.run(agent.save())
    checkpoint, note = checkpoints.load(tmp_path)
    assert checkpoint is not None
    assert note == ""
    other = make_agent(tmp_path)
    other.trainer.stop(5.0)
    other.restore(checkpoint)
    before, after = agent.view(), other.view()
    for name in (
        "frames",
        "steps",
        "samples",
        "episodes",
        "return_mean",
        "return_best",
        "return_windows",
        "guided_episodes",
    ):
        assert getattr(after, name) == getattr(before, name), name


def test_weights_that_come_late_are_played_with_as_soon_as_they_are_there(
    agent: LearningAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_module, "_PATIENCE_S", 0.01)
    given: Future[Weights] = Future()
    late = agent.trainer.weights().result()
    monkeypatch.setattr(agent.trainer, "weights", lambda: given)

    async def beats() -> None:
        assert await agent.refresh_policy() is None
        assert await agent.refresh_policy() is None  # it is asked once
        given.set_result(late)
        while agent.weights is not late:
            await asyncio.sleep(0.001)

    asyncio.run(asyncio.wait_for(beats(), 10))


def test_a_learner_that_is_gone_is_neither_saved_nor_waited_for(
    agent: LearningAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone: Future[Any] = Future()
    gone.set_exception(LearnerError("it is not there"))
    monkeypatch.setattr(agent.trainer, "weights", lambda: gone)
    monkeypatch.setattr(agent.trainer, "learner_state", lambda: gone)
    assert asyncio.run(agent.refresh_policy()) is None
    with pytest.raises(CheckpointError, match="not saved: it is not there"):
        asyncio.run(agent.save())


def test_weights_that_grow_too_old_raise_an_alarm_until_new_ones_come(agent: LearningAgent) -> None:
    assert agent.watch_weights(60.0) == "" and not agent.view().weights_stale
    time.sleep(0.05)
    assert "agent a plays with weights that are 0 s old" in agent.watch_weights(0.01)
    assert agent.watch_weights(0.01) == ""  # told once
    assert agent.view().weights_stale
    assert asyncio.run(agent.refresh_policy())
    assert agent.watch_weights(60.0) == "agent a plays with new weights again"
    assert not agent.view().weights_stale


def test_a_ruined_learner_goes_back_by_itself_and_is_not_saved_before(agent: LearningAgent) -> None:
    feed(agent, [1.0] * 60)
    train_one_sample(agent)
    asyncio.run(agent.save())
    learner: Learner = agent.trainer._learner  # type: ignore[attr-defined]
    learner._flat.fill_(float("inf"))  # as an optimizer that blew up leaves them
    train_one_sample(agent)
    assert agent.trainer.report.bad and agent.watch_learner() == ""
    with pytest.raises(CheckpointError, match="agent a is not saved while its steps are not fin"):
        asyncio.run(agent.save())
    while not agent.trainer.report.restored:
        train_one_sample(agent)
    assert "went back to its last good checkpoint" in agent.watch_learner()
    assert agent.watch_learner() == ""
    assert np.isfinite(learner.weights().flat).all()
    train_one_sample(agent)
    assert agent.trainer.report.bad == 0
    asyncio.run(agent.save())


def test_a_single_bad_step_does_not_keep_an_agent_from_being_saved(agent: LearningAgent) -> None:
    feed(agent, [1.0] * 60)
    train_one_sample(agent)
    learner: Learner = agent.trainer._learner  # type: ignore[attr-defined]
    learner.report = replace(learner.report, bad=1)
    asyncio.run(agent.save())
    assert checkpoints.read(agent.directory / checkpoints.NAME).plain["agent"] == "a"
