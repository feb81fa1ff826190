"""Any Gymnasium environment as a game, its spaces translated to those of the wire."""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces as gym_spaces

from client_py import picture
from client_py.player import GameError, Step
from server.net.wire import Choice, Preview
from server.spaces import (
    Actions,
    Continuous,
    Discrete,
    Observation,
    SpaceError,
    Spaces,
    from_plain,
)

Space = gymnasium.Space[Any]
Encode = Callable[[Any], bytes]
Decode = Callable[[Iterator[int], Iterator[float]], Any]

_FRAMES_PER_S = 60  # of an environment that names no rate of its own
_MAX_BOUND = 1e30  # beyond it a range is as good as endless


class GymGame:
    """A Gymnasium environment."""

    def __init__(
        self, env_id: str, *, frame_skip: int = 1, seed: int | None = None, render: bool = False
    ) -> None:
        self._id = env_id
        self._skip = frame_skip
        self._env = _make(env_id, "human" if render else None)
        self.decision_s = frame_skip / (self._env.metadata.get("render_fps") or _FRAMES_PER_S)
        if seed is not None:
            self._env.action_space.seed(seed)
        observation, self._encode = _observation(env_id, self._env.observation_space)
        controls = _controls(env_id, "action", self._env.action_space)
        self._decode = controls.decode
        try:
            # The server would refuse the same spaces, but only after the connection.
            self.spaces = from_plain(
                Spaces(
                    observation, Actions(controls.discrete, controls.continuous), ("reward",)
                ).to_plain()
            )
        except SpaceError as error:
            raise GameError(f"{env_id}: {error}") from error
        self._score = 0.0
        self._seen: Any = None  # the newest observation
        self._drawing: gymnasium.Env[Any, Any] | None = None  # takes over at the next reset

    def reset(self, seed: int) -> bytes:
        """Start an episode."""
        self._score = 0.0
        if self._drawing is not None:
            self._env.close()
            self._env, self._drawing = self._drawing, None
        self._seen, _ = self._env.reset(seed=seed)
        return self._encode(self._seen)

    def step(self, choice: Choice) -> Step:
        """Carry out one action, frame_skip times or until the episode ends."""
        action = self._decode(iter(choice.discrete), iter(choice.continuous))
        total = 0.0
        for _ in range(self._skip):
            observation, reward, terminal, truncated, _ = self._env.step(action)
            total += float(reward)
            if terminal or truncated:
                break
        if not math.isfinite(total):
            raise GameError(f"{self._id} gave a reward that is not a finite number: {total}")
        self._score += total
        # Most environments pay in every frame: the score is news at the end only.
        info = {"score": self._score} if terminal or truncated else {}
        self._seen = observation
        return Step(self._encode(observation), [total], bool(terminal), bool(truncated), info)

    def picture(self) -> Preview | None:
        """Show what the player sees, if that is an image, else what the environment draws.

        An environment must know from the start that it is to draw. The first call makes one that
        does, and it takes over with the next episode.
        """
        seen = picture.shrink(self._seen) if isinstance(self._seen, np.ndarray) else None
        if seen is not None:
            return seen
        try:
            if self._env.render_mode == "rgb_array":
                return picture.shrink(np.asarray(self._env.render()))
            if self._env.render_mode is None and self._drawing is None:
                self._drawing = _make_drawing(self._id, self._env)
        except Exception as error:  # foreign code: whatever it meets, the game can go on
            raise GameError(f"{self._id} cannot be drawn: {_line(error)}") from error
        return None

    def close(self) -> None:
        """Close the environment and its window."""
        self._env.close()
        if self._drawing is not None:
            self._drawing.close()


def _make(env_id: str, mode: str | None) -> gymnasium.Env[Any, Any]:
    try:
        if env_id.startswith("ALE/"):
            import ale_py

            gymnasium.register_envs(ale_py)
        if mode == "human":
            importlib.import_module("pygame")  # what Gymnasium's windows are drawn with
        return gymnasium.make(env_id, render_mode=mode, disable_env_checker=True)
    except (gymnasium.error.DependencyNotInstalled, ImportError) as error:
        raise GameError(f"{env_id} needs a package that is missing: {_line(error)}") from error
    except gymnasium.error.Error as error:
        raise GameError(f"cannot make {env_id}: {_line(error)}") from error


def _make_drawing(env_id: str, env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    """Make an environment again, as one that draws itself."""
    modes = env.metadata.get("render_modes") or ()
    if "rgb_array" not in modes:
        raise GameError(f"it knows no rgb_array, only {', '.join(map(str, modes)) or 'nothing'}")
    return _make(env_id, "rgb_array")


# --- observations -----------------------------------------------------------------------------


def _observation(env_id: str, space: Space) -> tuple[Observation, Encode]:
    """Give the wire's observation for a space, and what turns one into bytes."""
    if isinstance(space, gym_spaces.Box) and space.dtype == np.uint8 and len(space.shape) <= 3:
        shape = space.shape or (1,)
        return Observation("uint8", shape), lambda value: np.asarray(value, np.uint8).tobytes()
    try:
        size = gym_spaces.flatdim(space)
    except (ValueError, NotImplementedError) as error:
        raise GameError(f"{env_id}: observations of {space} have no fixed size") from error

    def floats(value: Any) -> bytes:
        vector = np.asarray(value, "<f4")
        if not np.isfinite(vector).all():
            raise GameError(f"{env_id} gave an observation that is not finite: {_line(value)}")
        return vector.tobytes()

    if isinstance(space, gym_spaces.Box):
        return Observation("float32", (size,)), floats
    # Discrete becomes one-hot, a Dict or Tuple one long vector.
    return Observation("float32", (size,)), lambda value: floats(gym_spaces.flatten(space, value))


# --- actions ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Controls:
    """The controls of one action space, and what turns their values into an action."""

    discrete: tuple[Discrete, ...]
    continuous: tuple[Continuous, ...]
    decode: Decode


def _controls(env_id: str, name: str, space: Space) -> _Controls:
    """Translate an action space; nested ones part by part."""
    match space:
        case gym_spaces.Discrete():
            return _single(name, space)
        case gym_spaces.MultiDiscrete():
            return _several(name, space.nvec, space.start, space.dtype)
        case gym_spaces.MultiBinary():
            two = np.full(space.shape, 2)
            return _several(name, two, np.zeros(space.shape, np.int64), space.dtype)
        case gym_spaces.Box():
            return _box(env_id, name, space)
        case gym_spaces.Tuple():
            parts = [
                _controls(env_id, f"{name}-{index}", part)
                for index, part in enumerate(space.spaces)
            ]
            return _joined(parts, tuple)
        case gym_spaces.Dict():
            keys = list(space.spaces)
            parts = [_controls(env_id, _clean(key), part) for key, part in space.spaces.items()]
            return _joined(parts, lambda values: dict(zip(keys, values, strict=True)))
    raise GameError(f"{env_id}: actions of {space} are not supported")


def _single(name: str, space: gym_spaces.Discrete[Any]) -> _Controls:
    start = int(space.start)
    return _Controls(
        (Discrete(name, int(space.n)),), (), lambda discrete, _: next(discrete) + start
    )


def _several(name: str, choices: Any, start: Any, dtype: Any) -> _Controls:
    sizes = [int(size) for size in np.ravel(choices)]
    shape = np.shape(choices)
    controls = tuple(Discrete(f"{name}-{index}", size) for index, size in enumerate(sizes))

    def decode(discrete: Iterator[int], _: Iterator[float]) -> Any:
        numbers = [next(discrete) for _ in sizes]
        return (np.reshape(numbers, shape) + start).astype(dtype)

    return _Controls(controls, (), decode)


def _box(env_id: str, name: str, space: gym_spaces.Box) -> _Controls:
    lows, highs = np.ravel(space.low), np.ravel(space.high)
    if not ((np.abs(lows) < _MAX_BOUND) & (np.abs(highs) < _MAX_BOUND)).all():
        raise GameError(
            f"{env_id}: the range of {name} is endless; wrap the environment in "
            "gymnasium.wrappers.RescaleAction or give its Box finite bounds"
        )
    bounds = list(zip(lows.tolist(), highs.tolist(), strict=True))
    shape, dtype = space.shape, space.dtype
    whole = np.issubdtype(dtype, np.integer)
    controls = tuple(
        Continuous(f"{name}-{index}" if len(bounds) > 1 else name, float(low), float(high))
        for index, (low, high) in enumerate(bounds)
    )

    def decode(_: Iterator[int], continuous: Iterator[float]) -> Any:
        values = np.reshape([next(continuous) for _ in bounds], shape)
        return (np.rint(values) if whole else values).astype(dtype)

    return _Controls((), controls, decode)


def _joined(parts: list[_Controls], build: Callable[[list[Any]], Any]) -> _Controls:
    def decode(discrete: Iterator[int], continuous: Iterator[float]) -> Any:
        return build([part.decode(discrete, continuous) for part in parts])

    return _Controls(
        tuple(control for part in parts for control in part.discrete),
        tuple(control for part in parts for control in part.continuous),
        decode,
    )


def _clean(key: Any) -> str:
    """Make a name that the wire accepts from a key of a Dict."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", str(key)).lstrip("._-")[:48] or "control"


def _line(value: object) -> str:
    return " ".join(str(value).split())
