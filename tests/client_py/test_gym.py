"""Every kind of Gymnasium space, there and back."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from client_py.gym import GymGame
from client_py.player import GameError
from server.net.wire import Choice, Preview
from server.spaces import Continuous, Discrete

pytestmark = pytest.mark.timeout(20)

ANY_ACTION = spaces.Discrete(2)
ANY_VIEW = spaces.Box(-1, 1, (2,), np.float32)


class Stub(gymnasium.Env[Any, Any]):
    """Shows what it is told and keeps what was done to it."""

    def __init__(self, view: Any = ANY_VIEW, actions: Any = ANY_ACTION, shown: Any = None) -> None:
        self.observation_space, self.action_space = view, actions
        self.shown = view.sample() if shown is None else shown
        self.done: list[Any] = []
        self.reward: float = 1.5

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self.shown, {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        self.done.append(action)
        return self.shown, self.reward, len(self.done) >= 6, False, {}


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Any:
    def make(**parts: Any) -> tuple[GymGame, Stub]:
        skip = parts.pop("frame_skip", 1)
        stub = Stub(**parts)
        monkeypatch.setattr(gymnasium, "make", lambda *_, **__: stub)
        return GymGame("Stub-v0", frame_skip=skip), stub

    return make


class Artist(Stub):
    """An environment that draws itself in one colour, if it was made for that."""

    metadata = {"render_modes": ["human", "rgb_array"], "render_fps": 30}  # noqa: RUF012

    def __init__(self, render_mode: str | None) -> None:
        super().__init__()
        self.render_mode = render_mode
        self.closed = False

    def render(self) -> Any:
        return np.full((400, 600, 3), (1, 2, 3), np.uint8)

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def artists(monkeypatch: pytest.MonkeyPatch) -> list[Artist]:
    made: list[Artist] = []

    def make(_: str, render_mode: str | None = None, **__: Any) -> Artist:
        made.append(Artist(render_mode))
        return made[-1]

    monkeypatch.setattr(gymnasium, "make", make)
    return made


def test_what_an_environment_draws_is_shown_from_the_next_episode_on(artists: list[Artist]) -> None:
    game = GymGame("Artist-v0")
    game.reset(0)
    assert [artist.render_mode for artist in artists] == [None]  # off costs nothing
    assert game.picture() is None and game.picture() is None
    game.step(Choice([0], []))
    assert [len(artist.done) for artist in artists] == [1, 0]
    game.reset(1)
    picture = game.picture()
    assert picture == Preview(160, 107, bytes([1, 2, 3]) * (160 * 107))
    assert [artist.closed for artist in artists] == [True, False]
    game.step(Choice([0], []))
    assert [len(artist.done) for artist in artists] == [1, 1]
    game.close()
    assert artists[1].closed


def test_an_environment_that_was_made_to_draw_in_vain_is_closed(artists: list[Artist]) -> None:
    game = GymGame("Artist-v0")
    game.reset(0)
    game.picture()
    game.close()
    assert [artist.closed for artist in artists] == [True, True]


def test_an_environment_that_fails_to_draw_is_named(
    artists: list[Artist], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Artist) -> Any:
        raise gymnasium.error.DependencyNotInstalled("pygame is not installed")

    monkeypatch.setattr(Artist, "render", fail)
    game = GymGame("Artist-v0")
    game.reset(0)
    game.picture()
    game.reset(1)
    with pytest.raises(GameError, match="Artist-v0 cannot be drawn: pygame is not installed"):
        game.picture()
    game.step(Choice([0], []))


def test_an_environment_that_never_draws_is_named(play: Any) -> None:
    game, _ = play()
    game.reset(0)
    with pytest.raises(GameError, match="Stub-v0 cannot be drawn: it knows no rgb_array"):
        game.picture()


@pytest.mark.parametrize("shape", [(30, 20, 3), (30, 20, 1), (30, 20)])
def test_an_image_that_is_seen_is_shown(play: Any, shape: tuple[int, ...]) -> None:
    shown = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    game, _ = play(view=spaces.Box(0, 255, shape, np.uint8), shown=shown)
    game.reset(0)
    game.step(Choice([0], []))
    picture = game.picture()
    assert (picture.width, picture.height) == (20, 30)
    got = np.frombuffer(picture.pixels, np.uint8).reshape(30, 20, 3)
    assert (got == shown.reshape(30, 20, -1)).all()


@pytest.mark.parametrize(
    ("view", "shown", "described", "data"),
    [
        (
            spaces.Box(-9, 9, (2, 2), np.float64),
            np.array([[1.0, 2.0], [3.0, 4.5]]),
            "4 float32",
            np.array([1, 2, 3, 4.5], "<f4").tobytes(),
        ),
        (
            spaces.Box(0, 255, (3,), np.uint8),
            np.array([1, 2, 255], np.uint8),
            "3 uint8",
            b"\1\2\xff",
        ),
        (
            spaces.Box(0, 255, (2, 3), np.uint8),
            np.arange(6, dtype=np.uint8).reshape(2, 3),
            "2x3 uint8",
            bytes(range(6)),
        ),
        (
            spaces.Box(0, 255, (2, 1, 3), np.uint8),
            np.arange(6, dtype=np.uint8).reshape(2, 1, 3),
            "2x1x3 uint8",
            bytes(range(6)),
        ),
        (
            spaces.Discrete(4, start=1),
            np.int64(3),
            "4 float32",
            np.array([0, 0, 1, 0], "<f4").tobytes(),
        ),
        (
            spaces.MultiBinary(3),
            np.array([1, 0, 1], np.int8),
            "3 float32",
            np.array([1, 0, 1], "<f4").tobytes(),
        ),
        (
            spaces.Tuple((spaces.Discrete(2), spaces.Box(-1, 1, (1,), np.float32))),
            (1, np.array([0.5], np.float32)),
            "3 float32",
            np.array([0, 1, 0.5], "<f4").tobytes(),
        ),
    ],
    ids=["float64", "uint8", "grey image", "colour image", "discrete", "binary", "tuple"],
)
def test_observations(play: Any, view: Any, shown: Any, described: str, data: bytes) -> None:
    game, _ = play(view=view, shown=shown)
    assert game.spaces.observation.describe() == described
    assert game.reset(0) == data
    assert game.step(Choice([0], [])).observation == data


@pytest.mark.parametrize(
    ("actions", "controls", "choice", "expected"),
    [
        (spaces.Discrete(3, start=-1), [("action", 3)], Choice([2], []), 1),
        (
            spaces.MultiDiscrete([2, 5]),
            [("action-0", 2), ("action-1", 5)],
            Choice([1, 4], []),
            [1, 4],
        ),
        (
            spaces.MultiDiscrete([2, 5], start=[0, 10]),
            [("action-0", 2), ("action-1", 5)],
            Choice([1, 4], []),
            [1, 14],
        ),
        (
            spaces.MultiBinary((2, 1)),
            [("action-0", 2), ("action-1", 2)],
            Choice([0, 1], []),
            [[0], [1]],
        ),
        (
            spaces.Box(-2, 2, (1,), np.float32),
            [("action", -2.0, 2.0)],
            Choice([], [0.5]),
            [0.5],
        ),
        (
            spaces.Box(np.array([0, -1]), np.array([1, 1]), dtype=np.float64),
            [("action-0", 0.0, 1.0), ("action-1", -1.0, 1.0)],
            Choice([], [0.5, -0.25]),
            [0.5, -0.25],
        ),
        (
            spaces.Box(0, 9, (1,), np.int64),
            [("action", 0.0, 9.0)],
            Choice([], [6.7]),
            [7],
        ),
        (
            spaces.Tuple((spaces.Box(0, 1, (1,), np.float32), spaces.Discrete(2))),
            [("action-1", 2), ("action-0", 0.0, 1.0)],
            Choice([1], [0.5]),
            ([0.5], 1),
        ),
        (
            spaces.Dict({"gas!": spaces.Box(0, 1, (1,), np.float32), "gear": spaces.Discrete(5)}),
            [("gear", 5), ("gas-", 0.0, 1.0)],
            Choice([4], [0.25]),
            {"gas!": [0.25], "gear": 4},
        ),
    ],
)
def test_actions(play: Any, actions: Any, controls: Any, choice: Choice, expected: Any) -> None:
    game, stub = play(actions=actions)
    announced: list[Any] = []
    for control in (*game.spaces.actions.discrete, *game.spaces.actions.continuous):
        match control:
            case Discrete(name, choices):
                announced.append((name, choices))
            case Continuous(name, low, high):
                announced.append((name, low, high))
    assert announced == controls
    game.reset(0)
    game.step(choice)
    assert _plain(stub.done[0]) == expected


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    return tuple(_plain(part) for part in value) if isinstance(value, tuple) else value


def test_frame_skip_adds_up_and_stops_at_the_end(play: Any) -> None:
    game, stub = play(frame_skip=4)
    game.reset(0)
    first, second = game.step(Choice([1], [])), game.step(Choice([1], []))
    assert (first.rewards, first.terminal, first.info) == ([6.0], False, {})
    assert (second.rewards, second.terminal, second.info) == ([3.0], True, {"score": 9.0})
    assert len(stub.done) == 6


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_is_an_error(play: Any, bad: float) -> None:
    game, _ = play(shown=np.array([0.0, bad], np.float32))
    with pytest.raises(GameError, match="Stub-v0 gave an observation that is not finite"):
        game.reset(0)
    game, stub = play()
    stub.reward = bad
    game.reset(0)
    with pytest.raises(GameError, match="reward that is not a finite"):
        game.step(Choice([0], []))


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"actions": spaces.Box(-np.inf, np.inf, (1,))}, "endless"),
        ({"actions": spaces.Text(5)}, "not supported"),
        ({"view": spaces.Sequence(spaces.Discrete(2))}, "no fixed size"),
        ({"actions": spaces.MultiBinary(100)}, "at most 64 controls"),
    ],
)
def test_spaces_that_cannot_be_used_say_why(play: Any, parts: Any, message: str) -> None:
    with pytest.raises(GameError, match=message):
        play(**parts)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def make(*_: Any, **__: Any) -> Any:
        raise gymnasium.error.DependencyNotInstalled("Box2D is not installed,\n  run pip")

    monkeypatch.setattr(gymnasium, "make", make)
    with pytest.raises(GameError, match=r"Stub-v0 needs .* Box2D is not installed, run pip"):
        GymGame("Stub-v0")


def test_an_unknown_environment_is_named() -> None:
    with pytest.raises(GameError, match="CartPol"):
        GymGame("CartPol-v1")


def test_the_same_seed_gives_the_same_episode() -> None:
    def episode() -> list[bytes]:
        game = GymGame("CartPole-v1")
        seen = [game.reset(3)]
        for number in range(20):
            step = game.step(Choice([number % 2], []))
            seen.append(step.observation)
            if step.terminal:
                break
        game.close()
        return seen

    assert episode() == episode()
