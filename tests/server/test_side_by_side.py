"""Two games at once: each agent has parts of its own, and none waits for another's learner."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from live import Client, Server, Steady, until

from server.controls import Command, Verb
from server.learn import checkpoint as checkpoints
from server.net import wire
from server.request import RequestError
from server.stats import AgentView
from tools.control import Line, find

Start = Callable[..., Server]
CARTPOLE, ACROBOT = "CartPole-v1", "Acrobot-v1"
EAGER = ("--min-replay", "200", "--batch-size", "16", "--heartbeat-s", "0.2")
GAMES = ("--launch", f"gym:{CARTPOLE}", "--launch", f"gym:{ACROBOT}", "--eval-interval-s", "0")

# The learner of Acrobot, which has six values, hangs in the middle of a sample while a file exists.
HANGING = """
import os, sys, time, main
from server.learn.learner import Learner
train = Learner.train
def hang(self, *rest):
    while self._spaces.observation.values == 6 and os.path.exists(os.environ["HANG"]):
        time.sleep(0.02)
    return train(self, *rest)
Learner.train = hang
sys.exit(main.main(sys.argv[1:]))
"""


def views(line: Line) -> dict[str, AgentView]:
    return {agent.name: agent for agent in line.status().agents}


def test_two_games_train_side_by_side_and_a_hanging_learner_stops_only_its_own(
    start: Start, tmp_path: Path
) -> None:
    hang = tmp_path / "hang"
    server = start(*EAGER, *GAMES, script=HANGING, HANG=str(hang))
    assert server.port
    with Line(find(tmp_path / "runs", "")) as line:
        until(lambda: len(views(line)) == 2)
        until(lambda: all(view.steps > 20 for view in views(line).values()))
        for view in views(line).values():  # each has a schedule of its own
            assert view.epsilon == pytest.approx(1 - 0.98 * view.frames / 60_000, abs=0.01)
            assert view.replay_size > 200
        hang.touch()
        stuck = -1
        while stuck != (now := views(line)[ACROBOT].steps):
            stuck = now
            time.sleep(0.5)
        before = views(line)
        goal = {name: view.frames + 300 for name, view in before.items()}
        until(lambda: all(views(line)[name].frames > frames for name, frames in goal.items()))
        until(lambda: views(line)[CARTPOLE].steps > before[CARTPOLE].steps + 20)
        # New weights come into play for the one whose learner is well.
        version = before[CARTPOLE].weights_version
        until(lambda: views(line)[CARTPOLE].weights_version > version + 2)
        after = views(line)
        assert after[ACROBOT].steps == stuck
        assert after[ACROBOT].weights_version <= before[ACROBOT].weights_version + 1
        newcomer = Steady(server.port)  # and a third one is let in and answered
        newcomer.plays_on(50)
        newcomer.finish()
        with pytest.raises(RequestError, match="the learner of agent Acrobot-v1 is busy"):
            line.obey(Command(Verb.SYNC), "test")
        hang.unlink()
        until(lambda: views(line)[ACROBOT].steps > stuck)
        until(lambda: views(line)[ACROBOT].weights_version > before[ACROBOT].weights_version + 2)
    assert server.stop() == 0, server.text
    for name, values in ((CARTPOLE, 4), (ACROBOT, 6)):
        directory = tmp_path / "runs" / "default" / "agents" / name
        assert (directory / "replay.bin").exists()
        saved = checkpoints.read(directory / checkpoints.NAME)
        assert saved.tensors["online.trunk.0.weight"].shape == (32, values)
        assert saved.plain["learner"]["steps"] > 20
    curves = (tmp_path / "runs" / "default" / "curves.jsonl").read_text().splitlines()
    assert {json.loads(text)["agent"] for text in curves} == {CARTPOLE, ACROBOT, "game"}


def test_two_agents_of_one_game_share_nothing_and_a_third_is_one_too_many(
    start: Start, tmp_path: Path
) -> None:
    server = start(*EAGER, "--max-agents", "2")
    players = {name: Steady(server.port, agent=name) for name in ("left", "right")}
    with Line(find(tmp_path / "runs", "")) as line:
        until(lambda: len(views(line)) == 2)
        until(lambda: all(view.steps > 8 for view in views(line).values()))
        third = Client(server.port).hello(agent="third")
        assert isinstance(third, wire.Reject)
        assert third.reason == (
            "agent 'third' would be one more than the 2 this server trains (--max-agents)"
        )
        players["left"].finish()
        alone = views(line)["left"].frames
        players["right"].plays_on(200)
        assert views(line)["left"].frames - alone <= 1
        players["right"].finish()
    assert server.stop() == 0, server.text
    saved = [
        checkpoints.read(tmp_path / "runs" / "default" / "agents" / name / checkpoints.NAME)
        for name in players
    ]
    assert [one.plain["game"] for one in saved] == ["game", "game"]
    assert saved[0].plain["frames"] <= alone + 1
    weights = [one.tensors["online.trunk.0.weight"] for one in saved]
    assert not weights[0].equal(weights[1])
