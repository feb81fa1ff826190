"""What an input does to a byte: the same moment of the game with the input held and without."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

import numpy as np

from tools.exploring.trace import Column, Hold, Recording, Trace, moves

# Frames after the first difference to look at, the fewest that suffice: the longer an input is
# held, the more the whole game has become another one.
_WINDOWS = (8, 16, 32)
_MOVING_STEPS = 3  # a thing that moves does it more than once or twice
_ONE_WAY = 0.75  # share of the way that goes in the same direction
_SETTLED = 3  # the last third of a trace: an analog input has done its work by then
_LEVELS = 3  # different values that show a byte following an analog input


class Way(Enum):
    """How a byte answers to an input, the most telling first."""

    FOLLOWS = "follows"
    REVERSED = "follows, reversed"
    UP = "goes up"
    DOWN = "goes down"
    SWITCH = "on while held"
    CHANGES = "changes"


@dataclass(frozen=True, slots=True)
class Effect:
    """What one input does to one byte."""

    control: int
    column: int
    way: Way
    delay: int  # frames until the first difference, at best
    moments: int  # at how many moments of the game it showed


def find(recording: Recording) -> list[Effect]:
    """Give all effects: input by input, the most telling first, of equals the quickest."""
    effects: list[Effect] = []
    for control, analog in enumerate(recording.analog):
        holds = [hold for hold in recording.holds if hold.control == control]
        search = _analog if analog else _digital
        for column in _touched(recording, holds):
            effects.append(search(recording, control, column, holds))
    order = list(Way)
    return sorted(effects, key=lambda e: (e.control, order.index(e.way), e.delay, e.column))


def _touched(recording: Recording, holds: Iterable[Hold]) -> list[int]:
    """Give the columns that are ever another with the input held than without."""
    touched = np.zeros(len(recording.addresses), dtype=bool)
    for hold in holds:
        touched |= (hold.trace != recording.baselines[hold.moment]).any(axis=0)
    return [int(column) for column in np.nonzero(touched)[0]]


def _delay(hold: Trace, baseline: Trace, column: int) -> int | None:
    """Give the first frame that differs, or None."""
    different = hold[:, column] != baseline[:, column]
    return int(different.argmax()) if different.any() else None


# --- buttons ------------------------------------------------------------------------------------


def _digital(recording: Recording, control: int, column: int, holds: list[Hold]) -> Effect:
    pairs = [(hold.trace[:, [column]], _baseline(recording, hold, column)) for hold in holds]
    delays = {place: d for place, pair in enumerate(pairs) if (d := _delay(*pair, 0)) is not None}
    extras = [
        (moves(pairs[place][0]) - moves(pairs[place][1]))[max(0, delay - 1) : recording.release, 0]
        for place, delay in delays.items()
    ]
    way = _direction(extras)
    if way is None:
        switches = [_is_switch(*pairs[place], recording.release) for place in delays]
        way = Way.SWITCH if all(switches) else Way.CHANGES
    return Effect(control, column, way, min(delays.values()), len(delays))


def _baseline(recording: Recording, hold: Hold, column: int) -> Trace:
    return recording.baselines[hold.moment][:, [column]]


def _direction(extras: list[Column]) -> Way | None:
    """Tell up from down by how much further than without the input a byte moved, at each moment."""
    for window in _WINDOWS:
        seen = [extra[:window] for extra in extras]
        if max(np.count_nonzero(extra) for extra in seen) >= _MOVING_STEPS:
            way = sum(int(extra.sum()) for extra in seen)
            travel = sum(int(np.abs(extra).sum()) for extra in seen)
            if abs(way) < _ONE_WAY * travel:
                return None
            return Way.UP if way > 0 else Way.DOWN
    return None


def _is_switch(hold: Trace, baseline: Trace, release: int) -> bool:
    """Say whether the byte has one other value while the input is held, and its own after."""
    held = hold[:release]
    other = held[held != baseline[:release]]
    return len(np.unique(other)) == 1 and bool(hold[-1] == baseline[-1])


# --- dials and paddles --------------------------------------------------------------------------


def _analog(recording: Recording, control: int, column: int, holds: list[Hold]) -> Effect:
    up = down = 0
    delays: dict[int, int] = {}
    for moment, baseline in enumerate(recording.baselines):
        here = sorted((h for h in holds if h.moment == moment), key=lambda hold: hold.value)
        found = [_delay(hold.trace, baseline, column) for hold in here]
        known = [delay for delay in found if delay is not None]
        if not known:
            continue
        delays[moment] = min(known)
        settled = np.array([_settled(hold.trace[:, column]) for hold in here])
        if len(np.unique(settled)) >= _LEVELS:
            steps = np.diff(settled)
            up += bool((steps >= 0).all())
            down += bool((steps <= 0).all())
    way = Way.CHANGES
    if max(up, down) >= _ONE_WAY * len(delays):
        way = Way.FOLLOWS if up > down else Way.REVERSED
    return Effect(control, column, way, min(delays.values()), len(delays))


def _settled(column: Trace) -> float:
    return float(np.median(column[-(len(column) // _SETTLED) :]))
