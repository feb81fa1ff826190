"""The Atari game: its three views, its episodes, its errors."""

from __future__ import annotations

import random

import numpy as np
import pytest

from client_py import ale as ale_module
from client_py.ale import AleGame, area_weights, default_observation
from client_py.player import GameError
from server.net.wire import Choice

pytestmark = pytest.mark.timeout(30)


def trail(game: AleGame, seed: int, decisions: int = 60) -> list[tuple[bytes, float]]:
    rng = random.Random(1)
    choices = game.spaces.actions.discrete[0].choices
    seen = [(game.reset(seed), 0.0)]
    for _ in range(decisions):
        step = game.step(Choice([rng.randrange(choices)], []))
        seen.append((step.observation, step.rewards[0]))
    return seen


def test_ram_is_the_emulators() -> None:
    game = AleGame("space_invaders", observation="ram")
    assert game.spaces.observation.describe() == "128 uint8"
    assert game.spaces.actions.describe() == "stick(6)"
    assert game.spaces.rewards == ("score",)
    assert game.reset(0) == game._ale.getRAM().tobytes()
    for number in range(30):
        step = game.step(Choice([number % 6], []))
        assert step.observation == game._ale.getRAM().tobytes()


@pytest.mark.parametrize(("name", "size"), [("pong", 10), ("breakout", 28)])
def test_features_are_finite_and_bounded(name: str, size: int) -> None:
    game = AleGame(name)
    assert game.spaces.observation.describe() == f"{size} float32"
    assert game.spaces.actions.describe() == "stick(3)"
    for observation, _ in trail(game, 0, 300):
        values = np.frombuffer(observation, "<f4")
        assert len(values) == size
        assert np.isfinite(values).all() and np.abs(values).max() <= 1.5


@pytest.mark.parametrize("frame_skip", [1, 4])
def test_image_is_the_screen_made_small(frame_skip: int) -> None:
    game = AleGame("pong", observation="image", frame_skip=frame_skip)
    assert game.spaces.observation.describe() == "84x84x1 uint8"
    before = AleGame("pong", observation="ram", frame_skip=1)
    game.reset(0)
    before.reset(0)
    for _ in range(12):
        image = game.step(Choice([1], [])).observation
        for _ in range(frame_skip):
            last = before._ale.getScreenGrayscale()
            before.step(Choice([1], []))
    both = np.maximum(last, before._ale.getScreenGrayscale()).astype(np.float64)
    small = area_weights(210, 84).astype(np.float64) @ both @ area_weights(160, 84).T
    got = np.frombuffer(image, np.uint8).reshape(84, 84)
    assert np.abs(got - small).max() <= 0.6


@pytest.mark.parametrize("view", ["features", "ram", "image"])
def test_a_picture_is_the_screen_in_colour(view: str) -> None:
    game = AleGame("pong", observation=view)
    game.reset(0)
    for _ in range(40):
        game.step(Choice([1], []))
    picture = game.picture()
    assert picture is not None
    assert (picture.width, picture.height) == (160, 120)
    screen = game._ale.getScreenRGB()
    got = np.frombuffer(picture.pixels, np.uint8).reshape(120, 160, 3)
    assert (got == screen[((np.arange(120) + 0.5) * 210 / 120).astype(int)]).all()
    assert len(np.unique(got.reshape(-1, 3), axis=0)) >= 3  # both paddles and the field


def test_area_weights_keep_the_mean() -> None:
    weights = area_weights(210, 84)
    assert weights.shape == (84, 210)
    assert np.allclose(weights.sum(axis=1), 1) and np.allclose(weights.sum(axis=0), 84 / 210)


@pytest.mark.parametrize("view", ["features", "ram", "image"])
def test_the_same_seed_gives_the_same_episode(view: str) -> None:
    one, other = AleGame("breakout", observation=view), AleGame("breakout", observation=view)
    assert trail(one, 5) == trail(other, 5)
    assert trail(one, 5) == trail(other, 5)  # not only the first of a process


def test_seeds_give_four_different_episodes_of_breakout() -> None:
    game = AleGame("breakout")
    assert len({tuple(trail(game, seed)) for seed in range(12)}) == 4


def test_sticky_actions_give_as_many_as_there_are_seeds() -> None:
    trails = set()
    for seed in range(8):
        game = AleGame("breakout", seed=seed, repeat_action_probability=0.25)
        trails.add(tuple(trail(game, 0)))
    assert len(trails) == 8


def test_sticky_actions_follow_the_games_seed() -> None:
    def sticky(seed: int) -> list[tuple[bytes, float]]:
        return trail(AleGame("pong", seed=seed, repeat_action_probability=0.5), 0)

    assert sticky(1) == sticky(1) != sticky(2)


def test_breakout_is_served_by_the_client() -> None:
    game = AleGame("breakout", observation="ram")
    ram = game.reset(0)
    assert ram[101] != 0
    lives = [ram[57]]
    for _ in range(3000):
        step = game.step(Choice([0], []))
        if step.terminal:
            break
        assert step.observation[101] != 0
        if step.observation[57] != lives[-1]:
            lives.append(step.observation[57])
        assert step.info["lives"] == lives[-1]
    assert lives == [5, 4, 3, 2, 1]
    assert step.terminal and not step.truncated


def test_an_image_shows_the_ball_that_was_just_served() -> None:
    game = AleGame("breakout", observation="image")
    game.reset(0)
    lives = game._info["lives"]
    while game._info["lives"] == lives:
        step = game.step(Choice([0], []))
    assert game._ram[101] != 0
    screen = game._ale.getScreenGrayscale().astype(np.float64)
    small = area_weights(210, 84).astype(np.float64) @ screen @ area_weights(160, 84).T
    got = np.frombuffer(step.observation, np.uint8).reshape(84, 84)
    assert np.abs(got - small).max() <= 0.6


def test_a_long_episode_is_truncated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ale_module, "MAX_EPISODE_FRAMES", 40)
    game = AleGame("pong", frame_skip=4)
    for _ in range(2):
        game.reset(0)
        ends = [game.step(Choice([0], [])).truncated for _ in range(10)]
        assert ends == [False] * 9 + [True]


def test_an_unknown_game_gets_near_names() -> None:
    with pytest.raises(GameError, match=r"'space-invader'; did you mean space_invaders"):
        AleGame("space-invader")
    with pytest.raises(GameError, match=r"no game named 'zzzzzz'$"):
        AleGame("zzzzzz")


def test_features_of_a_game_without_any() -> None:
    assert default_observation("pong") == "features"
    assert default_observation("seaquest") == "ram"
    with pytest.raises(GameError, match="no features are known of seaquest"):
        AleGame("seaquest", observation="features")
