"""A small deterministic game over real sockets: the return must rise beyond what luck reaches."""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest
from live import Server

from client_py.link import Link
from server.net.wire import START, TERMINAL, Frame, Hello
from server.spaces import Actions, Discrete, Observation, Spaces

WIDTH, HEIGHT = 7, 7
SPACES = Spaces(
    Observation("float32", (2 * WIDTH + 1,)), Actions((Discrete("paddle", 3),), ()), ("caught",)
)
WINDOW = 60
PATIENCE_S = 60.0
RANDOM_EPISODES = 20_000
# A paddle that moves at random catches at most half of the balls: a mean return of about -0.3.
# 0.8 means 54 of 60 balls caught; with even odds for each, luck gives that once in 10^10 tries.
THRESHOLD = 0.8


class Catch:
    """A ball falls one row a frame; the paddle below moves one column a frame."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self.start()

    def start(self) -> None:
        self.ball, self.row = self._dice.randrange(WIDTH), 0
        self.paddle = self._dice.randrange(WIDTH)

    def observation(self) -> bytes:
        values = np.zeros(2 * WIDTH + 1, np.float32)
        values[self.ball] = values[WIDTH + self.paddle] = 1.0
        values[-1] = self.row / HEIGHT
        return values.tobytes()

    def move(self, choice: int) -> tuple[float, bool]:
        self.paddle = min(WIDTH - 1, max(0, self.paddle + choice - 1))
        self.row += 1
        if self.row < HEIGHT:
            return 0.0, False
        return (1.0 if self.paddle == self.ball else -1.0), True


def play(port: int, seed: int, returns: list[float], done: threading.Event) -> None:
    """Play episodes through a real connection and note their returns."""
    link = Link("127.0.0.1", port, timeout_s=30, connect_timeout_s=30)
    link.greet(Hello(f"catch-{seed}", "1", "catch", "catch", SPACES))
    game, sequence = Catch(seed), 0
    while not done.is_set():
        game.start()
        flags, reward = START, 0.0
        while True:
            answer = link.exchange(Frame(sequence, flags, [reward], game.observation()))
            sequence += 1
            if flags & TERMINAL:
                returns.append(reward)
                break
            reward, over = game.move(answer.discrete[0])
            flags = TERMINAL if over else 0
    link.close("done")


def random_policy(seed: int) -> float:
    """Give the best mean over a window that random play reaches in a great many episodes."""
    dice, game, returns = random.Random(seed), Catch(seed), []
    for _ in range(RANDOM_EPISODES):
        game.start()
        over = False
        while not over:
            reward, over = game.move(dice.randrange(3))
        returns.append(reward)
    sums = np.convolve(returns, np.ones(WINDOW), mode="valid")
    return float(sums.max()) / WINDOW


def test_the_return_rises_above_what_random_play_reaches(start: Callable[..., Server]) -> None:
    assert random_policy(1) < THRESHOLD / 2
    server = start(
        *("--min-replay", "300", "--batch-size", "64", "--learning-rate", "0.001"),
        *("--hidden-sizes", "64,64", "--epsilon-frames", "2500", "--epsilon-end", "0"),
        *("--heartbeat-s", "0.3", "--target-tau", "0.02", "--gamma", "0.95"),
    )
    returns: list[float] = []
    done = threading.Event()
    players = [
        threading.Thread(target=play, args=(server.port, seed, returns, done), daemon=True)
        for seed in range(2)
    ]
    for player in players:
        player.start()
    deadline = time.monotonic() + PATIENCE_S
    while len(returns) < WINDOW or np.mean(returns[-WINDOW:]) < THRESHOLD:
        assert time.monotonic() < deadline, f"{np.mean(returns[-WINDOW:])}\n{server.text}"
        time.sleep(0.1)
    done.set()
    for player in players:
        player.join(10)
    assert np.mean(returns[:WINDOW]) < THRESHOLD / 2  # it was learned, not there from the start
    assert server.stop() == 0


# A mean over 20 episodes. A pole that is pushed at random falls after 22 frames, and hardly ever
# stands for 80; a full episode has 500.
POLE_THRESHOLD = 120.0


@pytest.mark.timeout(240)
def test_a_pole_of_gymnasium_stays_up_longer_and_longer(start: Callable[..., Server]) -> None:
    server = start(
        *("--launch", "gym:CartPole-v1=2", "--min-replay", "1000", "--epsilon-frames", "10000"),
        *("--eval-interval-s", "0"),
    )
    first, best, deadline = 0.0, 0.0, time.monotonic() + 180
    while best < POLE_THRESHOLD:
        assert time.monotonic() < deadline, server.text
        time.sleep(0.2)
        told = [float(text) for text in re.findall(r"return +([\d.]+) \(best", server.text)]
        if told:
            first, best = told[0], max(told)
    assert first < POLE_THRESHOLD / 2  # it was learned, not there from the start
    assert server.stop() == 0
