"""What was found, as tables for people and as JSON for programs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tools.exploring.effect import Effect, Way
from tools.exploring.inventory import Input, Inventory
from tools.exploring.number import Number
from tools.exploring.ram import Byte, Kind, Study

QUICK = 6  # frames: what an input does later it does by way of the game
_MOST_EFFECTS = 4  # of one input in its row
_ARROWS = {Way.UP: "up", Way.DOWN: "down", Way.SWITCH: "on", Way.CHANGES: "changes"}
_ARROWS |= {Way.FOLLOWS: "follows", Way.REVERSED: "follows, reversed"}
_REST = {
    Kind.COUNTDOWN: "set now and then, then counting down: a pause, a sound, a punch",
    Kind.STATE: "a few values: states, flags, directions, pictures",
    Kind.INPUT: "copies of the inputs",
    Kind.RANDOM: "jumping about: random numbers, positions in the console's own code",
    Kind.OTHER: "anything else that changes",
    Kind.CONSTANT: "never changed",
}


@dataclass(frozen=True, slots=True)
class Findings:
    """Everything there is to tell of one game."""

    title: str
    inventory: Inventory
    probed: tuple[Input, ...]  # in the order of the study's controls
    ram: tuple[tuple[int, int], ...]
    study: Study
    frames: int

    def name(self, address: int) -> str:
        """Name a byte: its address, and how far from the RAM's start it lies."""
        first = self.ram[0][0]
        return f"0x{address:02X} ({address - first})" if first else f"0x{address:04X}"

    def effects_of(self, control: int) -> list[Effect]:
        """Give what an input does soon, without the copies of what it does."""
        return [
            found
            for found in self.study.effects
            if found.control == control
            and found.delay <= QUICK
            and self.study.bytes[found.column].copy_of is None
        ]

    def movers_of(self, byte: Byte) -> list[tuple[Input, Way]]:
        """Give the inputs that move a byte soon, and which way."""
        soon = [e for e in byte.effects if e.delay <= QUICK and e.way is not Way.CHANGES]
        return [(self.probed[found.control], found.way) for found in soon]


def render(findings: Findings) -> RenderableType:
    """Draw everything."""
    parts: list[RenderableType] = [_head(findings), "", _inputs(findings)]
    for draw in (_numbers, _clocks, _places, _once):
        table = draw(findings)
        parts += ["", table] if table.row_count else []
    return Group(*parts, "", _rest(findings))


def _head(findings: Findings) -> Text:
    ranges = ", ".join(f"0x{first:02X} to 0x{last:02X}" for first, last in findings.ram)
    size = sum(last - first + 1 for first, last in findings.ram)
    text = Text(findings.title, "bold")
    inputs = f"{len(findings.probed)} inputs tried"
    return text.append(f": {size} bytes of RAM, {ranges}; {inputs}, {findings.frames:,} frames", "")


def _table(*columns: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column, no_wrap=column in ("byte", "bytes"))
    return table


def _inputs(findings: Findings) -> Table:
    table = _table("input", "kind", "mask", "what it does")
    for found in findings.inventory.inputs:
        does = "not tried"
        if found in findings.probed:
            effects = findings.effects_of(findings.probed.index(found))
            does = _listed(findings, effects) or "nothing"
        elif found in findings.inventory.starters():
            does = "starts the game"
        kind = f"{found.low} to {found.high}" if found.analog else "button"
        table.add_row(found.title, kind, f"{found.mask:X}", does)
    return table


def _listed(findings: Findings, effects: Sequence[Effect]) -> str:
    shown = [
        f"{findings.name(findings.study.bytes[e.column].address)} {_ARROWS[e.way]}"
        for e in effects[:_MOST_EFFECTS]
    ]
    more = len(effects) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _numbers(findings: Findings) -> Table:
    table = _table("bytes", "perhaps", "why")
    for what, numbers in (("score", findings.study.scores), ("lives", findings.study.lives)):
        for number in numbers:
            twins = f"; with it: {_joined(findings, number.twins)}" if number.twins else ""
            told = number.describe() + twins
            sure = what if number.sure else f"{what}, if at all"
            table.add_row(_joined(findings, number.columns), sure, told)
    if not table.row_count:
        table.add_row("none", "", "nothing counted up or down now and then; try more --frames")
    return table


def _joined(findings: Findings, columns: Iterable[int]) -> str:
    return " ".join(findings.name(findings.study.bytes[column].address) for column in columns)


def _clocks(findings: Findings) -> Table:
    table = _table("byte", "changes with time alone")
    for byte in findings.study.bytes:
        if byte.kind is Kind.CLOCK:
            digits = "X" if "BCD" in byte.detail else "d"
            values = f"{byte.low:{digits}} to {byte.high:{digits}}"
            table.add_row(findings.name(byte.address), f"{byte.detail}, {values}")
    return table


def _places(findings: Findings) -> Table:
    table = _table("byte", "from", "to", "what moves it")
    for byte in findings.study.bytes:
        if byte.kind is Kind.PLACE and byte.copy_of is None:
            movers = [f"{found.name} {_ARROWS[way]}" for found, way in findings.movers_of(byte)]
            why = ", ".join(movers) or ("by itself" if byte.free else "the game")
            copies = [b.address for b in findings.study.bytes if b.copy_of == byte.address]
            alike = f"; copies: {_spans(copies)}" if copies else ""
            name = findings.name(byte.address)
            table.add_row(name, str(byte.low), str(byte.high), why + alike)
    return table


def _once(findings: Findings) -> Table:
    table = _table("byte", "changed once in a run: perhaps the game's end")
    for byte in findings.study.bytes:
        if byte.kind is Kind.ONCE:
            table.add_row(findings.name(byte.address), byte.detail)
    return table


def _rest(findings: Findings) -> Table:
    table = _table("other bytes", "what they are")
    for kind, about in _REST.items():
        addresses = [
            b.address for b in findings.study.bytes if b.kind is kind and b.copy_of is None
        ]
        if addresses:
            table.add_row(_spans(addresses), about)
    return table


def _spans(addresses: Sequence[int]) -> str:
    """Write addresses briefly: '0x80-83 0x90'."""
    spans: list[list[int]] = []
    for address in addresses:
        if spans and address == spans[-1][1] + 1:
            spans[-1][1] = address
        else:
            spans.append([address, address])
    return " ".join(
        f"0x{first:02X}" if first == last else f"0x{first:02X}-{last:02X}" for first, last in spans
    )


def to_json(findings: Findings) -> dict[str, Any]:
    """Give everything as plain values."""
    study = findings.study

    def number(found: Number) -> dict[str, Any]:
        plain = dataclasses.asdict(found)
        for name in ("columns", "twins"):
            plain[name] = [study.bytes[column].address for column in plain[name]]
        plain["bytes"] = plain.pop("columns")
        return plain

    return {
        "title": findings.title,
        "frames": findings.frames,
        "ram": [list(pair) for pair in findings.ram],
        "inputs": [
            {**dataclasses.asdict(found), "tried": found in findings.probed}
            for found in findings.inventory.inputs
        ],
        "scores": [number(found) for found in study.scores],
        "lives": [number(found) for found in study.lives],
        "bytes": [_plain_byte(findings, byte) for byte in study.bytes],
    }


def _plain_byte(findings: Findings, byte: Byte) -> dict[str, Any]:
    return {
        "address": byte.address,
        "kind": byte.kind.value,
        "detail": byte.detail,
        "low": byte.low,
        "high": byte.high,
        "free": byte.free,
        "copy_of": byte.copy_of,
        "effects": [
            {
                "input": findings.probed[found.control].title,
                "way": found.way.value,
                "delay_frames": found.delay,
                "moments": found.moments,
            }
            for found in byte.effects
        ],
    }
