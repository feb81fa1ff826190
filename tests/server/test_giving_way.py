"""Training gives way in a real server: what is to be held, what is told, what training gets."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from live import PATIENCE_S, Server, Steady

from server.governor import Hold
from server.train.trainer import TrainerState
from tools.control import Line, find

Start = Callable[..., Server]
EAGER = ("--min-replay", "100", "--batch-size", "16", "--training-steps-per-sample", "1")
LOOKS_S = 5.0  # long enough for a verdict: one look a second
# A learner's process may take so long to start that the rest is over before it trains: the next
# one comes when the governor forgets, after 40 looks.
NEXT_REST_S = 75.0

# Each step keeps the event loop busy for half a second: no machine is so fast that the games would
# not suffer, nor so slow that they would without training.
HOGGING = """
import asyncio, sys, threading, time, main
from server.app import App
from server.learn.learner import Learner

startup, step, loops = App.startup, Learner.step, []

async def remember(self):
    loops.append(asyncio.get_running_loop())
    await startup(self)

def hog(over):
    time.sleep(0.5)
    over.set()

def disturb(self, parts):
    over = threading.Event()
    loops[0].call_soon_threadsafe(hog, over)
    over.wait(5)
    return step(self, parts)

App.startup, Learner.step = remember, disturb
sys.exit(main.main(sys.argv[1:]))
"""
# Clients wait for the server for a good part of their time, with training or without.
SLOW = """
import sys, time, main
from server.lane import Lane
from server.learn.policy import Policy

act_one = Policy.act_one

def think(self, *rest):
    time.sleep(0.01)
    return act_one(self, *rest)

Lane.of, Policy.act_one = lambda *rest: None, think
sys.exit(main.main(sys.argv[1:]))
"""


class Watched:
    """A server with a client, and what it says of itself from now on."""

    def __init__(self, server: Server, runs: Path) -> None:
        self._player = Steady(server.port)
        self._line = Line(find(runs, ""))
        self._seen: Iterator[dict[str, Any]] = self._line.watch(0.05)
        self.until(lambda now: now["agents"] and now["agents"][0]["steps"] > 0)

    def until(
        self, holds: Callable[[dict[str, Any]], Any], patience_s: float = PATIENCE_S
    ) -> dict[str, Any]:
        """Give the first snapshot of which something holds, and wait for it not for ever."""
        deadline = time.monotonic() + patience_s
        for now in self._seen:
            if holds(now):
                return now
            assert time.monotonic() < deadline, (now["governed"], now["agents"])
        raise AssertionError("the server is gone")

    def during(self, seconds: float) -> list[dict[str, Any]]:
        """Give what it says in some seconds."""
        seen: list[dict[str, Any]] = []
        self.until(lambda now: seen.append(now) or now["uptime_s"] > seen[0]["uptime_s"] + seconds)
        return seen

    def __enter__(self) -> Watched:
        return self

    def __exit__(self, *_: object) -> None:
        self._line.__exit__()
        self._player.finish()


def told(state: Hold) -> Callable[[dict[str, Any]], bool]:
    return lambda now: now["governed"]["state"] == state.value


def is_resting(now: dict[str, Any]) -> bool:
    return bool(now["agents"][0]["state"] == TrainerState.YIELDING.value)


def test_what_is_reached_anyway_costs_training_nothing(start: Start, tmp_path: Path) -> None:
    server = start(*EAGER, "--hold-fps", "1", "--hold-p99-ms", "100000")
    with Watched(server, tmp_path / "runs") as watched:
        seen = watched.during(LOOKS_S)
    assert seen[0]["governed"]["goal"] == "1 fps, 100000 ms p99"
    assert all(map(told(Hold.HOLDING), seen))
    assert {now["governed"]["training_share"] for now in seen} == {1.0}
    assert not any(map(is_resting, seen))
    assert server.stop() == 0, server.text


@pytest.mark.parametrize("home", ["thread", "workers", "process"])
@pytest.mark.parametrize("goal", [("--hold-fps", "1e9"), ("--hold-p99-ms", "0.001")])
def test_what_nobody_could_reach_is_not_blamed_on_training(
    start: Start, tmp_path: Path, goal: tuple[str, str], home: str
) -> None:
    server = start(*EAGER, *goal, "--trainer", home, script=SLOW)
    with Watched(server, tmp_path / "runs") as watched:
        assert not told(Hold.HOLDING)(watched.until(is_resting, NEXT_REST_S))
        rested = watched.until(told(Hold.BEYOND))
        steps = rested["agents"][0]["steps"]
        watched.until(lambda now: now["agents"][0]["steps"] > steps)  # it was worth no more rest
    assert server.stop() == 0, server.text


@pytest.mark.parametrize("goal", [("--hold-fps", "20"), ("--hold-p99-ms", "250")])
def test_training_gives_way_until_the_goal_is_held(
    start: Start, tmp_path: Path, goal: tuple[str, str]
) -> None:
    server = start(*EAGER, *goal, script=HOGGING)
    with Watched(server, tmp_path / "runs") as watched:
        watched.until(told(Hold.MISSED))
        watched.until(is_resting)
        watched.until(lambda now: 0 < now["governed"]["training_share"] < 1)
        watched.until(
            lambda now: told(Hold.HOLDING)(now) and 0 < now["governed"]["training_share"] < 1
        )
    assert server.stop() == 0, server.text
