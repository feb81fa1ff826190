"""Numbers that games count with: scores, which go up now and then, and lives, which go down."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tools.exploring.trace import Bytes, Column, Trace

_RARE_FRAMES = 20  # on average between two changes
_SURE_RISES = 3  # of a score within one run
_GAME_RISES = 3  # of a score, at least, before it may begin again
_CARRIES = (64, 128, 256, 512)  # frames between the carries of a clock that counts frames
_MOSTLY = 0.8  # share of the intervals that are such a carry
_SURE_CARRIES = 6  # more than happen at such an interval by accident
_TOGETHER_FRAMES = 2  # a score may reach the screen a frame or two later
_MOST_BYTES = 4  # of one number
_NEIGHBOURS = (-1, 1, -2, 2)  # from a byte to the next higher one; some games interleave two scores
_FEWEST_LIVES = 2  # one that comes and goes is a switch
_MOST_LIVES = 9
_MOST_GAMES = 3  # that one run holds, each with lives of its own


@dataclass(frozen=True, slots=True)
class Number:
    """A number of one or more bytes that goes up, as a score does, or down, as lives do."""

    columns: tuple[int, ...]  # the most significant first
    bcd: bool
    changes: int  # in play
    idle_changes: int  # with nobody playing
    low: int
    high: int
    sure: bool
    twins: tuple[int, ...] = ()  # columns that change at the very same frames, such as its digits

    def describe(self) -> str:
        """Say it in words: 'BCD, 0 to 21, changed 12 times in play, never without'."""
        code = "BCD, " if self.bcd else ""
        idle = f"{self.idle_changes} times" if self.idle_changes else "never"
        return (
            f"{code}{self.low} to {self.high}, changed {self.changes} times in play, {idle} without"
        )


def decoded(column: Bytes, *, bcd: bool) -> Column:
    """Give a byte's values as numbers."""
    values = column.astype(np.int64)
    return values // 16 * 10 + values % 16 if bcd else values


def is_bcd(columns: Iterable[Bytes]) -> bool:
    """Say whether the values are decimal digits, and would make no sense otherwise."""
    values = np.unique(np.concatenate(list(columns)))
    digits = bool(((values & 15) <= 9).all() and ((values >> 4) <= 9).all())
    return digits and bool(values.max() > 9)


# --- scores and lives ---------------------------------------------------------------------------


def scores(idle: Trace, plays: Sequence[Trace], columns: Sequence[int]) -> list[Number]:
    """Give what may be a score, the likeliest first: it goes up now and then, and never down."""
    found = [_score(idle, plays, column) for column in columns]
    numbers = _without_twins([number for number in found if number is not None], plays)
    sure = {column for number in numbers if number.sure for column in number.columns}
    # Two players' scores lie side by side: next to a sure one, a single point is enough.
    numbers = [
        replace(n, sure=n.sure or any(c + d in sure for c in n.columns for d in (-1, 1)))
        for n in numbers
    ]
    return sorted(numbers, key=lambda n: (not n.sure, -n.changes, n.columns))


def _score(idle: Trace, plays: Sequence[Trace], column: int) -> Number | None:
    """Recognise the lowest byte of a score, and take in the bytes that it carries into."""
    runs = [idle, *plays]
    if not any(np.ptp(run[:, column]) for run in runs):
        return None
    bcd = is_bcd(run[:, column] for run in runs)
    columns = _with_carries(runs, column, bcd=bcd)
    values = _values(runs, columns, bcd=bcd)
    if not _rises_only(values):
        return None
    changes = [int(np.count_nonzero(np.diff(v))) for v in values]
    if sum(changes) * _RARE_FRAMES > sum(len(v) for v in values) or _is_carried(values[1:]):
        return None
    low, high = min(int(v.min()) for v in values), max(int(v.max()) for v in values)
    twice = max(changes) > 1  # a switch goes up once in every run
    sure = max(changes) >= _SURE_RISES or (twice and sum(changes) > _SURE_RISES)
    return Number(columns, bcd, sum(changes[1:]), changes[0], low, high, sure)


def _is_carried(values: Sequence[Column]) -> bool:
    """Say whether a clock carries into a number in some run, such as after the game is over."""
    for value in values:
        intervals = np.diff(np.nonzero(np.diff(value))[0])
        for carry in _CARRIES if len(intervals) >= _SURE_CARRIES else ():
            if (np.abs(intervals - carry) <= 1).mean() >= _MOSTLY:
                return True
    return False


def _values(runs: Sequence[Trace], columns: tuple[int, ...], *, bcd: bool) -> list[Column]:
    """Give the number that some bytes make, in every run."""
    base = 100 if bcd else 256
    results = []
    for run in runs:
        value = np.zeros(len(run), dtype=np.int64)
        for column in columns:
            value = value * base + decoded(run[:, column], bcd=bcd)
        results.append(value)
    return results


def _rises_only(values: Sequence[Column]) -> bool:
    """Say whether a number goes up, except where it begins again with a new game."""
    rises = 0
    for value in values:
        steps = np.diff(value)
        falls = np.nonzero(steps < 0)[0]
        games = [int((game > 0).sum()) for game in np.split(steps, falls)]
        if not (value[falls + 1] == value[0]).all() or any(
            rose < _GAME_RISES for rose in games[:-1]
        ):
            return False
        rises += sum(games)
    return rises > 0


def _with_carries(runs: Sequence[Trace], column: int, *, bcd: bool) -> tuple[int, ...]:
    """Give the bytes of a number by its lowest one: what goes up whenever the rest falls."""
    columns: tuple[int, ...] = (column,)
    for step in _NEIGHBOURS:
        longer = columns
        while len(longer) < _MOST_BYTES and _carries(runs, longer, longer[0] + step, bcd=bcd):
            longer = (longer[0] + step, *longer)
        columns = max(columns, longer, key=len)
    return columns


def _carries(runs: Sequence[Trace], columns: tuple[int, ...], higher: int, *, bcd: bool) -> bool:
    """Say whether a byte goes up by one whenever a number falls, and never down by itself."""
    if not 0 <= higher < runs[0].shape[1]:
        return False
    falls, base = 0, 100 if bcd else 256
    for run, value in zip(runs, _values(runs, columns, bcd=bcd), strict=True):
        high = decoded(run[:, higher], bcd=bcd)
        steps, falling = np.diff(high), np.diff(value) < 0
        restart = (high[1:] == high[0]) & (value[1:] == value[0])
        carry = falling & (steps % base == 1)
        if (falling & ~carry & ~restart).any() or ((steps < 0) & ~carry & ~restart).any():
            return False
        falls += int(carry.sum())
    return falls > 0


def lives(idle: Trace, plays: Sequence[Trace], columns: Sequence[int]) -> list[Number]:
    """Give what may be lives: a few at the start, one less now and then, down to none."""
    numbers = []
    for column in columns:
        values = _values([idle, *plays], (column,), bcd=False)
        steps = np.concatenate([np.diff(value) for value in values])
        falls = steps[steps < 0]
        first = {int(value[0]) for value in values}
        if not len(falls) or len(first) > 1 or not _FEWEST_LIVES <= max(first) <= _MOST_LIVES:
            continue
        if not (falls == -1).all() or not _falls_are_rare(values):
            continue
        if 2 * _gains(values) > len(falls):
            continue
        changes = [int(np.count_nonzero(np.diff(value))) for value in values]
        low, high = min(int(v.min()) for v in values), max(int(v.max()) for v in values)
        sure = max(changes) > 1
        numbers.append(Number((column,), False, sum(changes[1:]), changes[0], low, high, sure))
    found = _without_twins(numbers, plays)
    return sorted(found, key=lambda n: (not n.sure, -n.changes, n.columns))


def _gains(values: Sequence[Column]) -> int:
    """Count how often it goes up other than by beginning again: an extra life, say."""
    every = [value[1:][np.diff(value) > 0] != value[0] for value in values]
    return sum(int(gain.sum()) for gain in every)


def _falls_are_rare(values: Sequence[Column]) -> bool:
    """Say whether lives are lost now and then, and no more than there were."""
    changes, frames = 0, 0
    for value in values:
        steps = np.diff(value)
        begun = 1 + np.count_nonzero(steps > 0)
        if np.count_nonzero(steps < 0) > value[0] * begun or begun > _MOST_GAMES:
            return False
        changes += int(np.count_nonzero(steps))
        frames += len(value)
    return changes * _RARE_FRAMES <= frames


def _without_twins(numbers: list[Number], plays: Sequence[Trace]) -> list[Number]:
    """Fold what only changes together with another into that: a score and its digits on screen."""
    leaders: list[tuple[Number, Column]] = []
    twins: dict[tuple[int, ...], list[int]] = {}
    for number in sorted(numbers, key=lambda n: (-n.changes, n.low != 0, n.high - n.low)):
        frames = _change_frames(number, plays)
        for leader, others in leaders:
            if len(frames) and _all_near(frames, others):
                twins.setdefault(leader.columns, []).extend(number.columns)
                break
        else:
            leaders.append((number, frames))
    return [
        replace(n, twins=tuple(sorted(set(twins.get(n.columns, [])) - set(n.columns))))
        for n, _ in leaders
    ]


def _change_frames(number: Number, plays: Sequence[Trace]) -> Column:
    """Give the frames at which a number changes in play, the runs one after another."""
    found, before = [], 0
    for play in plays:
        changed = (np.diff(play[:, list(number.columns)], axis=0) != 0).any(axis=1)
        found.append(np.nonzero(changed)[0] + before)
        before += len(play) + _TOGETHER_FRAMES
    return np.concatenate(found)


def _all_near(frames: Column, others: Column) -> bool:
    """Say whether each frame is close to one of the others."""
    distances = np.abs(frames[:, None] - others[None, :])  # both are few
    return bool((distances.min(axis=1, initial=_TOGETHER_FRAMES + 1) <= _TOGETHER_FRAMES).all())
