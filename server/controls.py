"""What people change while the server runs: commands, and the one value that they lead to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any


class Command(Enum):
    """One thing a person can ask for."""

    QUIT = auto()
    SAVE = auto()
    TRAINING = auto()
    EPSILON_DOWN = auto()
    EPSILON_NATURAL = auto()
    EPSILON_UP = auto()
    EXPERT_DOWN = auto()
    EXPERT_NATURAL = auto()
    EXPERT_UP = auto()
    GREEDY = auto()
    HELP = auto()


@dataclass(frozen=True, slots=True)
class Controls:
    """All live settings at one moment; None means natural, what the schedule says."""

    training: bool = True
    greedy: bool = False
    epsilon: float | None = None
    expert_ratio: float | None = None


STEP = 0.05  # of a share, for one press of a key


def apply(controls: Controls, command: Command, *, epsilon: float, expert_ratio: float) -> Controls:
    """Give the controls after a command; the shares in force are what up and down start from."""
    match command:
        case Command.TRAINING:
            return replace(controls, training=not controls.training)
        case Command.GREEDY:
            return replace(controls, greedy=not controls.greedy)
        case Command.EPSILON_DOWN:
            return replace(controls, epsilon=_stepped(epsilon, -STEP))
        case Command.EPSILON_NATURAL:
            return replace(controls, epsilon=None)
        case Command.EPSILON_UP:
            return replace(controls, epsilon=_stepped(epsilon, STEP))
        case Command.EXPERT_DOWN:
            return replace(controls, expert_ratio=_stepped(expert_ratio, -STEP))
        case Command.EXPERT_NATURAL:
            return replace(controls, expert_ratio=None)
        case Command.EXPERT_UP:
            return replace(controls, expert_ratio=_stepped(expert_ratio, STEP))
        case _:
            return controls


def _stepped(share: float, step: float) -> float:
    return round(min(1.0, max(0.0, share + step)), 4)


def changes(before: Controls, after: Controls) -> dict[str, tuple[Any, Any]]:
    """Give what was changed: each control's value before and after."""
    pairs = {name: (getattr(before, name), getattr(after, name)) for name in Controls.__slots__}
    return {name: (old, new) for name, (old, new) in pairs.items() if old != new}


def describe_change(before: Controls, after: Controls) -> str:
    """Say in words what a command changed."""
    told = [
        f"{name.replace('_', ' ')} {_shown(old)} → {_shown(new)}"
        for name, (old, new) in changes(before, after).items()
    ]
    return ", ".join(told) or "nothing changed"


def _shown(value: bool | float | None) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "natural" if value is None else f"{value:g}"
