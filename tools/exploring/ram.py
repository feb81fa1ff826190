"""What each byte of a RAM is, as far as recorded traces tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

from tools.exploring import clock, effect, number
from tools.exploring.effect import Effect, Way
from tools.exploring.number import Number
from tools.exploring.trace import Bytes, Recording, moves

_SMALL_STEP = 8  # what moves on a screen seldom goes further in a frame
_SMOOTH = 0.8  # share of steps that are small
_STATES = 8  # at most, of something that switches
_WILD_STEP = 16  # median step of random numbers
_WILD_VALUES = 32
_ENOUGH_CHANGES = 10
_AT_ONCE = 3  # frames in which a copy of a button answers
_SAME = 0.97  # correlation of a byte with its copy
_MOST_ROWS = 4000  # that the search for copies looks at


class Kind(Enum):
    """What a byte is."""

    CONSTANT = "constant"
    CLOCK = "clock"
    SCORE = "score"
    LIVES = "lives"
    COUNTDOWN = "countdown"
    PLACE = "place"
    INPUT = "input"
    RANDOM = "random"
    ONCE = "once"
    STATE = "state"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Byte:
    """One byte: what it is, and what moves it."""

    address: int
    kind: Kind
    detail: str
    low: int
    high: int
    effects: tuple[Effect, ...]
    free: bool  # nothing that was tried changes it, so time alone does
    copy_of: int | None  # the address of a byte that moves with it and answers earlier


@dataclass(frozen=True, slots=True)
class Study:
    """What a recording tells."""

    bytes: tuple[Byte, ...]
    scores: tuple[Number, ...]
    lives: tuple[Number, ...]
    effects: tuple[Effect, ...]


def study(recording: Recording) -> Study:
    """Find out what each byte is."""
    runs = [recording.idle, *recording.plays]
    effects = effect.find(recording)
    changing = [int(c) for c in np.nonzero(_changes(recording))[0]]
    columns = {column: [run[:, column] for run in runs] for column in changing}
    clocks = {c: found for c in changing if (found := clock.find(columns[c])) is not None}
    rest = [column for column in changing if column not in clocks]
    scores = number.scores(recording.idle, recording.plays, rest)
    lives = number.lives(recording.idle, recording.plays, rest)
    kinds: dict[int, tuple[Kind, str]] = {}
    for column in rest:
        kinds[column] = _input_kind(recording, column, effects) or _kind(columns[column])
    for kind, numbers in ((Kind.LIVES, lives), (Kind.SCORE, scores)):
        for sure in (found for found in numbers if found.sure):
            kinds.update({column: (kind, sure.describe()) for column in sure.columns})
    kinds.update({column: (Kind.CLOCK, found.describe()) for column, found in clocks.items()})
    copies = _copies(recording, effects, [c for c in rest if kinds[c][0] is not Kind.SCORE])
    return Study(
        tuple(_byte(recording, c, kinds, effects, copies) for c in range(len(recording.addresses))),
        tuple(scores),
        tuple(lives),
        tuple(effects),
    )


def _byte(
    recording: Recording,
    column: int,
    kinds: dict[int, tuple[Kind, str]],
    effects: list[Effect],
    copies: dict[int, int],
) -> Byte:
    values = [trace[:, column] for trace in (recording.idle, *recording.plays)]
    kind, detail = kinds.get(column, (Kind.CONSTANT, ""))
    length = min(map(len, values))
    own = tuple(found for found in effects if found.column == column)
    same = all((value[:length] == values[0][:length]).all() for value in values)
    return Byte(
        address=recording.addresses[column],
        kind=kind,
        detail=detail,
        low=min(int(value.min()) for value in values),
        high=max(int(value.max()) for value in values),
        effects=own,
        free=same and not own,
        copy_of=recording.addresses[copies[column]] if column in copies else None,
    )


def _changes(recording: Recording) -> npt.NDArray[np.bool_]:
    """Say of each byte whether it ever changed."""
    changed = np.zeros(len(recording.addresses), dtype=bool)
    for trace in (recording.idle, *recording.plays):
        changed |= (trace != recording.idle[0]).any(axis=0)
    for hold in recording.holds:
        changed |= (hold.trace != hold.trace[0]).any(axis=0)
    return changed


def _input_kind(
    recording: Recording, column: int, effects: list[Effect]
) -> tuple[Kind, str] | None:
    """Recognise a byte that is moved by an analog input, or is a copy of buttons."""
    own = [found for found in effects if found.column == column]
    ways = {found.way for found in own}
    if ways & {Way.FOLLOWS, Way.REVERSED}:
        return Kind.PLACE, "follows an input"
    at_once = all(found.delay <= _AT_ONCE for found in own)
    if ways == {Way.SWITCH} and at_once and not np.ptp(recording.idle[:, column]):
        return Kind.INPUT, "on while something is held"
    return None


def _kind(values: Sequence[Bytes]) -> tuple[Kind, str]:
    """Tell by its values alone what a byte is that neither is a clock nor counts points."""
    every = np.concatenate(values)
    steps = np.concatenate([moves(value) for value in values])
    steps = np.abs(steps[steps != 0])
    different = len(np.unique(every))
    if clock.is_countdown(values):
        return Kind.COUNTDOWN, "set now and then, counts down"
    if (once := _single_change(values)) is not None:
        return Kind.ONCE, once
    if different <= _STATES:
        return Kind.STATE, " ".join(f"{value:02X}" for value in np.unique(every))
    if len(steps) >= _ENOUGH_CHANGES and (steps <= _SMALL_STEP).mean() >= _SMOOTH:
        return Kind.PLACE, "moves in small steps"
    if different >= _WILD_VALUES and np.median(steps) >= _WILD_STEP:
        return Kind.RANDOM, "jumps about"
    return Kind.OTHER, f"{different} values"


def _single_change(values: Sequence[Bytes]) -> str | None:
    """Tell of a byte that changes once in some runs, always in the same way, if it is one."""
    frames = [np.nonzero(np.diff(value))[0] for value in values]
    ways = {
        (int(value[at[0]]), int(value[at[0] + 1]))
        for value, at in zip(values, frames, strict=True)
        if len(at)
    }
    if len(ways) != 1 or max(map(len, frames)) > 1 or sum(map(len, frames)) < 2:
        return None
    ((before, after),) = ways
    when = ", ".join("never" if not len(at) else f"{at[0] + 1:,}" for at in frames)
    return f"{before:02X} to {after:02X} at frame {when}"


def _copies(recording: Recording, effects: list[Effect], columns: list[int]) -> dict[int, int]:
    """Give for each byte the one it is a copy of: the first to answer to an input leads."""
    plays = np.concatenate(recording.plays)
    rows = plays[:: max(1, len(plays) // _MOST_ROWS)][:, columns].astype(np.float32)
    rows -= rows.mean(axis=0)
    sizes = np.sqrt((rows**2).sum(axis=0))
    sizes[sizes == 0] = np.inf
    likeness = (rows / sizes).T @ (rows / sizes)  # (columns, columns)
    delays = _first_answers(effects)
    ranks = [(delays.get(column, np.inf), column) for column in columns]
    copies: dict[int, int] = {}
    for place, column in enumerate(columns):
        same = [p for p in np.nonzero(likeness[place] >= _SAME)[0] if ranks[p] < ranks[place]]
        if same and len(np.unique(plays[:, column])) > _STATES:
            copies[column] = columns[min(same, key=lambda p: ranks[p])]
    return copies


def _first_answers(effects: list[Effect]) -> dict[int, int]:
    """Give how soon each byte that inputs move answers to one of them."""
    delays: dict[int, int] = {}
    for found in effects:
        if found.way not in (Way.SWITCH, Way.CHANGES):
            delays[found.column] = min(found.delay, delays.get(found.column, found.delay))
    return delays
