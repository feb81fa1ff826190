"""What a machine offers: its inputs and its RAM, as MAME lists them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_SWITCH = re.compile(r"(P\d+_)?(START|SELECT|COIN|SERVICE|TILT)\d*|OTHER|CONFIG|DIPSWITCH|ADJUSTER")
# What starts a game, in the order in which it is pressed: MAME's token, or the console's own name.
_STARTERS = (("COIN1", ""), ("START1", ""), ("P1_START", ""), ("OTHER", "Reset Game"))


class InventoryError(ValueError):
    """Something a machine does not have; the message names what it has."""


@dataclass(frozen=True, slots=True)
class Input:
    """One input of a machine."""

    port: str
    name: str
    analog: bool
    mask: int
    low: int
    high: int
    default: int
    group: str  # MAME's class of inputs: controller, misc, config, keyboard, ...
    player: int  # from 1
    token: str  # MAME's name for what it is for

    @property
    def title(self) -> str:
        """Name it as people write it on the command line: ':SWB/Reset Game'."""
        return f"{self.port}/{self.name}"

    @property
    def is_control(self) -> bool:
        """Whether a player plays with it, unlike coins, start buttons and switches."""
        return self.group == "controller" and not _SWITCH.fullmatch(self.token)


@dataclass(frozen=True, slots=True)
class Control:
    """What a player does with one finger: an analog input, a button, or a pair of directions."""

    name: str
    inputs: tuple[Input, ...]

    @property
    def analog(self) -> bool:
        """Whether it has a value from a range, rather than one of some choices."""
        return self.inputs[0].analog


@dataclass(frozen=True, slots=True)
class Inventory:
    """All inputs of a machine, and where its RAM lies."""

    inputs: tuple[Input, ...]
    ram: tuple[tuple[int, int], ...]  # first and last address of each range

    def controls(self) -> list[Input]:
        """Give what players play with."""
        return [found for found in self.inputs if found.is_control]

    def starters(self) -> list[Input]:
        """Give what usually starts a game, in the order in which it is pressed."""
        return [
            found
            for token, name in _STARTERS
            for found in self.inputs
            if found.token == token and name in ("", found.name)
        ]

    def find(self, title: str) -> Input:
        """Give an input by 'port/name', or say which there are."""
        for found in self.inputs:
            if found.title == title:
                return found
        known = ", ".join(f'"{found.title}"' for found in self.inputs)
        raise InventoryError(f"the machine has no input {title!r}; it has {known}")


def grouped(inputs: Iterable[Input]) -> list[Control]:
    """Make controls of inputs: nobody holds a stick to the left and to the right at once."""
    groups: dict[tuple[str, str], list[Input]] = {}
    for found in inputs:
        groups.setdefault((f"{found.port}{found.player}", _control_name(found)), []).append(found)
    names = [name for _, name in groups]
    return [
        Control(name if names.count(name) == 1 else f"{name}_p{group[0].player}", tuple(group))
        for (_, name), group in groups.items()
    ]


def _control_name(found: Input) -> str:
    """Give a name that is good on the wire: 'horizontal', 'button_1', 'paddle_2'."""
    side = re.search(r"_(LEFT|RIGHT|UP|DOWN)$", found.token)
    if side is None or found.analog:
        plain = re.sub(r"^P\d+ ", "", found.name)
        return re.sub(r"[^a-z0-9]+", "_", plain.lower()).strip("_") or "input"
    axis = "horizontal" if side[1] in ("LEFT", "RIGHT") else "vertical"
    stick = re.search(r"JOYSTICK(LEFT|RIGHT)_", found.token)  # a machine with two sticks
    return f"{stick[1].lower()}_{axis}" if stick else axis


def read(text: str) -> Inventory:
    """Read the lines that client_lua/mame_inventory.lua wrote."""
    rows = [line.split("\t") for line in text.splitlines() if line]
    inputs = [_input(row[1:]) for row in rows if row[0] == "input"]
    ram = [(int(row[1]), int(row[2])) for row in rows if row[0] == "ram"]
    inputs.sort(key=lambda found: (not found.is_control, found.player, found.port, found.mask))
    return Inventory(tuple(inputs), merged(ram))


def _input(fields: list[str]) -> Input:
    port, name, kind, mask, low, high, default, group, player, token = fields
    analog = kind == "analog"
    return Input(
        port=port,
        name=name,
        analog=analog,
        mask=int(mask),
        low=int(low or 0) if analog else 0,
        high=int(high or mask) if analog else 1,
        default=int(default or 0),
        group=group,
        player=int(player),
        token=token,
    )


def merged(ranges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Join ranges that touch or overlap, in the order of their addresses."""
    result: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if result and first <= result[-1][1] + 1:
            result[-1] = (result[-1][0], max(last, result[-1][1]))
        else:
            result.append((first, last))
    return tuple(result)
