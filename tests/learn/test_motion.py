"""What only a stack shows, the way things move, is learned: from images and from vectors."""

from __future__ import annotations

import random

import numpy as np
import pytest

from server.learn.learner import Learner, Rules
from server.learn.network import Shape, make_inference
from server.learn.replay import Layout, Replay
from server.learn.sampler import UniformSampler
from server.net.wire import START, TERMINAL
from server.spaces import Actions, Discrete, Observation, Spaces

SIDE = 36
NO_CONTROLS = np.zeros(0, np.float32)


def seen(place: int, image: bool) -> np.ndarray:
    """Show a bar somewhere: of an image that many columns, of a vector that many values."""
    picture = np.zeros((SIDE, SIDE) if image else (1, SIDE), np.uint8)
    picture[:, place : place + 4] = 255
    return picture.reshape(-1)


@pytest.mark.parametrize("image", [False, True], ids=["vector", "image"])
def test_the_way_a_bar_moves_is_learned_from_stacks(image: bool) -> None:
    observation = Observation("uint8", (SIDE, SIDE) if image else (SIDE,))
    spaces = Spaces(observation, Actions((Discrete("way", 2),), ()), ("r",))
    shape = Shape((32,), frame_stack=2)
    replay = Replay.in_memory(Layout.of(spaces, 4096))
    dice = random.Random(1)
    for _ in range(700):  # a bar, where it moved to, and whether that way was chosen
        place, way, choice = dice.randrange(8, 24), dice.randrange(2), dice.randrange(2)
        moved = place + (4 if way else -4)
        first = replay.append_one(
            seen(place, image).tobytes(), [0], NO_CONTROLS, 0.0, START, 0, 1, -1
        )
        then = replay.append_one(
            seen(moved, image).tobytes(), [choice], NO_CONTROLS, 0.0, 0, 0, 1, first
        )
        won = 1.0 if choice == way else -1.0
        replay.append_one(seen(moved, image).tobytes(), [0], NO_CONTROLS, won, TERMINAL, 0, 1, then)
    learner = Learner(
        spaces=spaces,
        shape=shape,
        rules=Rules(batch_size=64, learning_rate=3e-3, n_step=1),
        sampler=UniformSampler(replay, 1, depth=2),
        seed=1,
    )
    for _ in range(60):
        learner.train()
    inference = make_inference(spaces, shape, "cpu")
    inference.load(learner.weights())
    right = 0
    for trial in range(100):
        place, way = dice.randrange(8, 24), trial % 2
        before = replay.append_one(
            seen(place, image).tobytes(), [0], NO_CONTROLS, 0.0, START, 0, 1, -1
        )
        now = seen(place + (4 if way else -4), image)
        stack = replay.stacked(now[None], [before], 2)
        right += int(inference(stack).values[0].argmax()) == way
    # One frame alone says almost nothing: half of the guesses would be right.
    assert right >= 90
