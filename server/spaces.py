"""What a game shows and what it lets a player do: the spaces a client announces."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from reprlib import repr as short  # a stranger's value may be huge
from typing import Any

MAX_VALUES = 1 << 20  # of one observation
MAX_CONTROLS = 64
MAX_CHOICES = 4096  # of one control, and of all controls of a joint head together
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_ITEM_BYTES = {"float32": 4, "uint8": 1}


class SpaceError(ValueError):
    """Spaces that cannot be used; the message says which part and why."""


@dataclass(frozen=True, slots=True)
class Observation:
    """The shape of what a player sees: a vector or an image."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def values(self) -> int:
        """Number of values in one observation."""
        return math.prod(self.shape)

    @property
    def size_bytes(self) -> int:
        """Number of bytes of one observation on the wire."""
        return self.values * _ITEM_BYTES[self.dtype]

    def describe(self) -> str:
        """Say it in words: '128 uint8', '84x84x1 uint8'."""
        return f"{'x'.join(map(str, self.shape))} {self.dtype}"


@dataclass(frozen=True, slots=True)
class Discrete:
    """A control with a number of choices, such as a joystick."""

    name: str
    choices: int


@dataclass(frozen=True, slots=True)
class Continuous:
    """A control with a range, such as a paddle."""

    name: str
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Actions:
    """All controls of a player; joint means one value for each combination of choices."""

    discrete: tuple[Discrete, ...]
    continuous: tuple[Continuous, ...]
    joint: bool = False

    @property
    def heads(self) -> tuple[int, ...]:
        """Number of values in each head of the network.

        A game without discrete controls has one head of one value: the worth of the state.
        """
        if not self.discrete:
            return (1,)
        sizes = tuple(control.choices for control in self.discrete)
        return (math.prod(sizes),) if self.joint else sizes

    def describe(self) -> str:
        """Say it in words: 'stick(6)+paddle[0..1]'."""
        parts = [f"{c.name}({c.choices})" for c in self.discrete]
        parts += [f"{c.name}[{c.low:g}..{c.high:g}]" for c in self.continuous]
        return "+".join(parts) + (" joint" if self.joint else "")


@dataclass(frozen=True, slots=True)
class Spaces:
    """Observation, actions and reward components of one game."""

    observation: Observation
    actions: Actions
    rewards: tuple[str, ...]

    def describe(self) -> str:
        """Say it in words, for a person who has to compare two."""
        return (
            f"{self.observation.describe()} values, actions {self.actions.describe()}, "
            f"rewards {'+'.join(self.rewards)}"
        )

    def to_plain(self) -> dict[str, Any]:
        """Give the plain maps and lists that go on the wire and into a checkpoint."""
        return {
            "observation": {
                "dtype": self.observation.dtype,
                "shape": list(self.observation.shape),
            },
            "actions": {
                "discrete": [[c.name, c.choices] for c in self.actions.discrete],
                "continuous": [[c.name, c.low, c.high] for c in self.actions.continuous],
                "joint": self.actions.joint,
            },
            "rewards": list(self.rewards),
        }


def check_name(what: str, value: Any) -> str:
    """Return a name that is safe in a path and on a screen, or say why it is not."""
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise SpaceError(
            f"{what} = {short(value)} must be 1 to 64 letters, digits, '.', '_' or '-', "
            "starting with a letter or digit"
        )
    return value


def from_plain(plain: Any) -> Spaces:
    """Read spaces from plain maps and lists, checking everything."""
    plain = _mapping("spaces", plain)
    return Spaces(
        _observation(_mapping("observation", plain.get("observation"))),
        _actions(_mapping("actions", plain.get("actions"))),
        _rewards(plain.get("rewards")),
    )


def _observation(plain: dict[str, Any]) -> Observation:
    dtype, shape = plain.get("dtype"), plain.get("shape")
    if not isinstance(dtype, str) or dtype not in _ITEM_BYTES:
        raise SpaceError(f"observation dtype = {short(dtype)} must be 'float32' or 'uint8'")
    if not isinstance(shape, list) or len(shape) not in (1, 2, 3):
        raise SpaceError(f"observation shape = {short(shape)} must be a list of 1 to 3 sizes")
    if not all(_is_int(size) and size >= 1 for size in shape) or math.prod(shape) > MAX_VALUES:
        raise SpaceError(f"observation shape = {short(shape)} must hold 1 to {MAX_VALUES} values")
    if len(shape) > 1 and dtype != "uint8":
        raise SpaceError("an image observation (2 or 3 sizes) must be 'uint8'")
    return Observation(dtype, tuple(shape))


def _actions(plain: dict[str, Any]) -> Actions:
    joint = plain.get("joint", False)
    if not isinstance(joint, bool):
        raise SpaceError(f"actions joint = {short(joint)} must be true or false")
    discrete = tuple(_discrete(item) for item in _controls("discrete", plain))
    continuous = tuple(_continuous(item) for item in _controls("continuous", plain))
    if not discrete and not continuous:
        raise SpaceError("actions must name at least one discrete or continuous control")
    actions = Actions(discrete, continuous, joint)
    if max(actions.heads) > MAX_CHOICES:
        raise SpaceError(
            f"a joint head of {max(actions.heads)} combinations is over the limit of "
            f"{MAX_CHOICES}; announce joint = false"
        )
    return actions


def _controls(kind: str, plain: dict[str, Any]) -> list[Any]:
    controls = plain.get(kind, [])
    if not isinstance(controls, list) or len(controls) > MAX_CONTROLS:
        raise SpaceError(f"actions {kind} must be a list of at most {MAX_CONTROLS} controls")
    return controls


def _discrete(item: Any) -> Discrete:
    if not isinstance(item, list) or len(item) != 2:
        raise SpaceError(f"a discrete control must be [name, choices], not {short(item)}")
    name, choices = check_name("control name", item[0]), item[1]
    if not _is_int(choices) or not 1 <= choices <= MAX_CHOICES:
        raise SpaceError(
            f"control {name!r} must have 1 to {MAX_CHOICES} choices, not {short(choices)}"
        )
    return Discrete(name, choices)


def _continuous(item: Any) -> Continuous:
    if not isinstance(item, list) or len(item) != 3:
        raise SpaceError(f"a continuous control must be [name, low, high], not {short(item)}")
    name, low, high = check_name("control name", item[0]), item[1], item[2]
    if not _is_finite(low) or not _is_finite(high) or not low < high:
        raise SpaceError(
            f"control {name!r} needs finite low < high, not {short(low)} and {short(high)}"
        )
    return Continuous(name, float(low), float(high))


def _rewards(names: Any) -> tuple[str, ...]:
    if not isinstance(names, list) or not 1 <= len(names) <= 32:
        raise SpaceError(f"rewards = {short(names)} must be a list of 1 to 32 component names")
    return tuple(check_name("reward name", name) for name in names)


def _mapping(what: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise SpaceError(f"{what} must be a map, not {short(value)}")
    return value


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_finite(value: Any) -> bool:
    # Ranges must survive the trip through float32, where the network lives.
    return (_is_int(value) or isinstance(value, float)) and abs(value) <= 1e30
