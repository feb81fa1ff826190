"""The games in real MAME: random play into a real server, and rules that play by the features."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from live import Server
from mame import Start, needs_mame
from pilot import Pilot, Rule, values

from server.learn.replay import Layout, Replay
from server.net.wire import START, TERMINAL, Frame

pytestmark = [needs_mame, pytest.mark.timeout(300)]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """Give a server that only plays at random."""
    running = Server(tmp_path / "runs", "--epsilon-end", "1")
    yield running
    running.kill()


def random_play(
    server: Server, mame: Start, tmp_path: Path, game: str, frames: int, layout: Layout
) -> Replay:
    """Give what so many frames of random play left in the replay."""
    process = mame(server.port, frames, plays=game)
    text, _ = process.communicate(timeout=240)
    assert process.returncode == 0, text
    server.wait_for("mame at .* left: done")
    assert server.stop() == 0
    path = tmp_path / "runs" / "default" / "agents" / game / "replay.bin"
    replay = Replay.to_read(path, layout)
    assert replay.head == int(text.split(" decisions")[0].split()[-1])
    replay.check_valid()
    return replay


def linked(replay: Replay) -> tuple[Any, Any]:
    """Give the places of frames and those of the frames that follow them."""
    follows = replay.column("next")[: replay.head]
    first = np.flatnonzero(follows >= 0)
    return first, follows[first]


def count(replay: Replay, flag: int) -> int:
    return int(np.count_nonzero(replay.column("flags")[: replay.head] & flag))


def fly(mame: Start, game: str, decisions: int, rule: Rule) -> list[Frame]:
    """Give the frames of a game that is played by a rule."""
    with Pilot() as pilot:
        mame(pilot.port, plays=game, once="1")
        return pilot.play(decisions, rule)


def earned(frames: list[Frame]) -> Any:
    """Give the sum of each reward component."""
    return np.sum([frame.rewards for frame in frames], axis=0)


def info(frames: list[Frame]) -> dict[str, Any]:
    """Give what the client last said beside its frames: it says so only when it is news."""
    return [frame.info for frame in frames if frame.info is not None][-1]


# --- Breakout ---------------------------------------------------------------------------------


def test_breakout_at_random(server: Server, mame: Start, tmp_path: Path) -> None:
    layout = Layout(20_000, "float32", 16, 1, 1)
    replay = random_play(server, mame, tmp_path, "breakout2600", 4000, layout)
    assert replay.head > 800
    first, second = linked(replay)
    observation = replay.column("observation")
    # The paddle goes nearly as far as it is turned, but for the walls.
    went, turned = observation[second, 5], replay.column("continuous")[first, 0]
    assert np.mean(np.abs(went - turned) < 0.15) > 0.8
    # Balls are served and lost, bricks are hit, and after five balls a new game begins.
    assert np.mean(observation[: replay.head, 8]) < 0.2
    ends = count(replay, TERMINAL)
    assert ends >= 1
    assert count(replay, START) == ends + 1
    rewards = replay.column("reward")[: replay.head]
    assert np.count_nonzero(rewards == -1) >= 5 * ends
    assert rewards.max() >= 1


def test_breakout_by_following_the_ball(mame: Start) -> None:
    def follow(frame: Frame) -> tuple[list[int], list[float]]:
        return [], [float(np.clip(values(frame)[7] * 40, -24, 24))]

    frames = fly(mame, "breakout2600", 700, follow)
    score, balls = earned(frames)
    assert score > 15
    assert balls >= -2
    last = frames[-1]
    assert info(frames) == {"score": score, "lives": 5 + balls}
    # Each point of the lowest rows is a brick less.
    gone = 18 * (1 - values(last)[10:])
    assert gone @ [1, 1, 4, 4, 7, 7] == pytest.approx(score)


# --- Space Invaders ---------------------------------------------------------------------------


def test_space_invaders_at_random(server: Server, mame: Start, tmp_path: Path) -> None:
    layout = Layout(20_000, "float32", 33, 2, 0)
    replay = random_play(server, mame, tmp_path, "spaceinvaders2600", 4000, layout)
    assert replay.head > 500  # the game plays on alone after each hit
    first, second = linked(replay)
    observation = replay.column("observation")
    move, fire = replay.column("choice")[first].T
    assert {*move} == {0, 1, 2}
    assert {*fire} == {0, 1}
    speed = observation[second, 1]
    assert speed[move == 1].mean() > 0.05
    assert speed[move == 2].mean() < -0.05
    assert abs(speed[move == 0].mean()) < 0.05
    # Fire starts shots, no fire starts nearly none.
    idle, shot = observation[first, 9] == 0, observation[second, 9]
    assert shot[idle & (fire == 1)].mean() > 0.15
    assert shot[idle & (fire == 0)].mean() < 0.05
    rewards = replay.column("reward")[: replay.head]
    ends = count(replay, TERMINAL)
    assert ends >= 1
    # Three lives in each; the shot that is under way at a hit may outweigh it with points.
    assert np.count_nonzero(rewards < 0) >= 2 * ends
    assert rewards[rewards > 0].sum() > 2
    assert count(replay, START) == ends + 1


def test_space_invaders_by_aiming_and_dodging(mame: Start) -> None:
    def hunt(frame: Frame) -> tuple[list[int], list[float]]:
        seen = values(frame)
        flying, aside, low = seen[12:15]
        columns = seen[18:30].reshape(6, 2)
        alive = columns[columns[:, 1] > 0, 0]
        way = alive[np.abs(alive).argmin()] if len(alive) else 0.0
        if flying and low > 0.5 and abs(aside) < 0.2:
            way = -1.0 if aside > 0 and seen[0] > -0.9 else 1.0
        return [1 if way > 0.05 else 2 if way < -0.05 else 0, 1], []

    frames = fly(mame, "spaceinvaders2600", 600, hunt)
    first = next((i for i, f in enumerate(frames[1:], 1) if f.flags & START), len(frames))
    score = earned(frames[:first])[0] * 10
    assert score > 150
    assert info(frames[:first])["score"] == score


# --- Pong, the arcade machine -----------------------------------------------------------------


def test_arcade_pong_at_random(server: Server, mame: Start, tmp_path: Path) -> None:
    layout = Layout(20_000, "float32", 10, 1, 1)
    replay = random_play(server, mame, tmp_path, "pongarcade", 1400, layout)
    assert replay.head > 300
    first, second = linked(replay)
    went = replay.column("observation")[second, 6]
    turned = replay.column("continuous")[first, 0]
    assert np.corrcoef(went, turned)[0, 1] > 0.8
    rewards = replay.column("reward")[: replay.head]
    assert {*np.unique(rewards)} <= {-1, 0, 1}
    assert np.count_nonzero(rewards) >= 3


def test_the_opponent_of_arcade_pong_can_be_beaten(mame: Start) -> None:
    def follow(frame: Frame) -> tuple[list[int], list[float]]:
        below, absent = values(frame)[8:10]
        return [], [0.0 if absent else float(np.clip(below * 50, -24, 24))]

    frames = fly(mame, "pongarcade", 320, follow)
    points = np.array([frame.rewards[0] for frame in frames])
    assert np.count_nonzero(points == 1) > np.count_nonzero(points == -1)
    assert info(frames) == {
        "score": np.count_nonzero(points == 1),
        "enemy": np.count_nonzero(points == -1),
    }
    # Four frames are four frames: the ball flies 8, 12 or 16 pixels in each of them.
    seen = np.array([values(frame) for frame in frames])
    flown = np.abs(np.round(seen[seen[:, 4] != 0, 4] * 64))
    assert len(flown) > 100
    assert np.mean(np.isin(flown, [32, 48, 64])) > 0.8


def test_arcade_pong_ends_at_eleven_and_begins_again(mame: Start) -> None:
    def park(frame: Frame) -> tuple[list[int], list[float]]:
        return [], [24.0]

    with Pilot() as pilot:
        mame(pilot.port, plays="pongarcade", once="1")
        frames: list[Frame] = []
        while not (frames and frames[-1].flags & TERMINAL):
            frames += pilot.play(1, park)
            assert len(frames) < 2500
        again = pilot.play(20, park)
    assert info(frames)["enemy"] == 11
    assert earned(frames)[0] == info(frames)["score"] - 11
    assert again[0].flags == START
    assert again[0].info == {"score": 0, "enemy": 0}
    # The state that was kept at the start: paddles back in their places, nothing won or lost.
    assert values(again[0])[1] == pytest.approx(values(frames[0])[1], abs=0.02)
    assert not any(frame.flags for frame in again[1:])
