"""Lets training give way just as much as the games need, and takes the rest for it.

The rules:
- One look a second says how much of what is allowed was used; over 1 is a miss. Looks add up until
  they can hardly be chance: two decide where they are clear, those near the line must be more. So
  one bad second of the machine is not blamed on anybody.
- At a miss training rests until two looks agree: what is reached then is the floor. Nothing can be
  gained below it, so if the floor itself is a miss, training gives way only as far as it makes
  things clearly worse, and people are told that the miss is not training's. Where pauses do not
  help, what is reached with the least of it is the floor.
- Else the share is searched between one that held and one that missed, cut by half at most, and
  every now and then the floor is looked at again: what was training's fault may be somebody else's
  now.
- What was learned is forgotten after a while, and when the load changes. What was seen of the
  share of now is not forgotten with time: a narrow miss is found out in the end.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

from server.agent import Agent
from server.stats import Governed, Rate, Recent, percentiles

Floats = npt.NDArray[np.float64]

LOOK_S = 1.0  # between looks
PROBE_S = 0.01  # between probes of the event loop's lag: its p99 is wanted within a look
_VOTES = 3  # looks of which the median counts
_MISSED = 2.0  # doublings of what is allowed, looks added up, that are no chance
_HELD = 1.0  # halvings, likewise
_LEAST_SHARE = 0.02  # training never stops for long: it would not be seen to recover
_CLOSE = 1.2  # between the share that held and the one that missed: near enough
_GROWTH = 1.5  # of the share, where it is not known which one misses
_CUT = 0.5  # of the share, at most: a false alarm is not to cost much
_WORSE = 1.25  # times the floor: worse than that is training's doing, less may be chance
_ROOM = 0.9  # of what is allowed: below it there is room for more training
_OTHER_LOAD = 1.5  # times the frames/s of the look before
_FRESH_LOOKS = 15  # after which a floor is looked at again before training is cut further
_FORGET_LOOKS = 40
_FPS_POWER = 4  # frames/s of a second are known far better than its p99: less of a miss says more
_GAIN = 0.1  # share of their time that clients wait for us: below it, giving way gains nothing


class Hold(Enum):
    """Whether what is to be held is held."""

    HOLDING = "holding"
    MISSED = "missed"
    BEYOND = "missed anyway"  # with little training or none, too: giving way gains nothing


@dataclass(frozen=True, slots=True)
class Look:
    """What the server did since the look before."""

    frames_per_s: float
    clients: int
    latency_s: Floats  # of frames, from their arrival to their reply
    lag_s: Floats  # of the event loop: how long a frame waits to arrive


def delay_p99_ms(latency_s: Floats, lag_s: Floats, rng: np.random.Generator) -> float:
    """Give the 99th percentile of a frame's delay in the server.

    It waits to arrive and then for its reply; the two are measured apart.
    """
    return 1e3 * percentiles(latency_s + rng.choice(lag_s, len(latency_s)), 99)[0]


class Governor:
    """Decides which share of its time training may use."""

    def __init__(self, *, fps: float, p99_ms: float) -> None:
        self._fps = fps  # 0: not to be held
        self._p99_ms = p99_ms  # the same
        self._rng = np.random.default_rng(0)
        self._rate = Rate(LOOK_S / 2)
        self._seen: dict[str, int] = {}  # frames, by agent
        self._seen_lags = 0
        self._votes: list[float] = []  # how much was used, since the share last changed
        self._over = 0.0  # evidence of a miss: doublings of what is allowed, added up
        self._under = 0.0  # evidence that it is held: halvings
        self._frames_per_s: float | None = None  # of the look before, with the same share
        self._in_between = False  # the share has just changed: some of the look is of the old one
        self.share = 1.0
        self.state = Hold.HOLDING
        self._resting = False
        self._miss = 0.0  # how much was used when the rest began
        self._floor = 0.0  # how much is used with no training, or little; 0 if that is not known
        self._age = 0  # looks since then
        self._held = _LEAST_SHARE  # a share that held, as far as is known
        self._missed: float | None = None  # a share that did not

    def tend(self, agents: Collection[Agent], lag_s: Recent) -> float:
        """Look at what the agents did since the last time; give the share for their training."""
        latencies = [agent.batcher.latency_s.values(self._fresh(agent)) for agent in agents]
        lags, self._seen_lags = lag_s.since(self._seen_lags)
        look = Look(
            frames_per_s=self._rate.update(sum(agent.batcher.frames for agent in agents)),
            clients=sum(agent.batcher.players for agent in agents),
            latency_s=np.concatenate([np.zeros(0), *latencies]),
            lag_s=lags,
        )
        return self.decide(look)

    def decide(self, look: Look) -> float:
        """Give the share of its time that training may use until the next look."""
        given = self._given()
        self._learn(look)
        if self._given() != given:  # what comes now is not to be mixed with what was
            self._begin_anew()
            self._frames_per_s = None
            self._in_between = True
        return self._given()

    def view(self) -> Governed:
        """Give what people see of it."""
        goals = [
            f"{self._fps:,.0f} fps" if self._fps else "",
            f"{self._p99_ms:g} ms p99" if self._p99_ms else "",
        ]
        goal = ", ".join(goal for goal in goals if goal)
        return Governed(goal, self.state.value, self._given())

    # --- the search -------------------------------------------------------------------------

    def _learn(self, look: Look) -> None:
        self._age += 1
        if self._is_other_load(look):
            if look.frames_per_s < (self._frames_per_s or 0.0):
                self.share = 1.0
            self._forget()
            self._held = _LEAST_SHARE
        elif self._age > _FORGET_LOOKS and not self._resting:
            over, under = self._over, self._under
            self._forget()
            # What speaks against the share of now still does: a narrow miss needs many looks.
            self._over, self._under = over, under
        self._frames_per_s = None if self._in_between else look.frames_per_s
        self._in_between = False
        self._votes.append(max(self._used_p99(look), self._used_fps(look)))
        used = statistics.median_low(self._votes[-_VOTES:])
        if self._resting:
            if self._is_agreed():
                self._resting = False
                self._found_floor(used)
            return
        missed = self._verdict(self._votes[-1])
        if missed is not None or len(self._votes) > 1:
            self._judge(used)
        if missed is None:
            return
        if missed and (not self._floor or self._age > _FRESH_LOOKS):
            self.state, self._miss, self._resting = Hold.MISSED, max(used, 1.0), True
        elif missed and self.share <= _CLOSE * _LEAST_SHARE and used > self._floor:
            self._found_floor(used)
        else:
            self._search(used, missed=missed)
        self._begin_anew()

    def _found_floor(self, floor: float) -> None:
        """Go on, knowing how much is used with little training or none."""
        self._floor, self._age = floor, 0
        self._judge(self._miss)
        missed = self._miss >= self._allowed()
        if not missed:  # it was not training's: it gets everything back
            self._missed, self.share = None, 1.0
        self._search(self._miss, missed=missed)

    def _judge(self, used: float) -> None:
        beyond = Hold.BEYOND if self._floor > 1 else Hold.MISSED
        self.state = beyond if used > 1 else Hold.HOLDING

    def _allowed(self) -> float:
        """Give what may be used: all, or where that is out of reach little more than the floor."""
        return _WORSE * self._floor if self._floor > 1 else 1.0

    def _verdict(self, used: float) -> bool | None:
        """Say whether the goal is missed with this share, or None as long as that is not sure."""
        doublings = math.log2(max(used, 0.1) / self._allowed())
        doublings = max(-1.0, min(1.0, doublings))  # one look says no more than that
        self._over = max(0.0, self._over + doublings)
        self._under = max(0.0, self._under - doublings)
        if self._over >= _MISSED:
            return True
        return False if self._under >= _HELD else None

    def _search(self, used: float, *, missed: bool) -> None:
        """Search for the largest share that holds."""
        if missed:
            self._missed = self.share
            if self._held >= self.share:  # it held once, and does no longer
                self._held = _LEAST_SHARE
            if self._missed <= _CLOSE * self._held:
                self.share = self._held
            else:
                between = math.sqrt(self._held * self._missed)
                self.share = max(between, _CUT * self._missed)
        elif used < _ROOM * self._allowed() or self._floor > 1:
            self._held = self.share
            if self._missed is None:
                self.share = min(1.0, _GROWTH * self.share)
            elif self._missed > _CLOSE * self.share:
                self.share = math.sqrt(self.share * self._missed)

    def _given(self) -> float:
        return 0.0 if self._resting else self.share

    def _forget(self) -> None:
        """Begin to learn anew, with the share of now."""
        self._age = 0
        self._floor = 0.0
        self._resting = False
        self._missed = None
        self._begin_anew()

    def _begin_anew(self) -> None:
        """Look with fresh eyes."""
        self._votes.clear()
        self._over = self._under = 0.0

    def _is_agreed(self) -> bool:
        """Say whether more looks could not change what a rest is found to bring."""
        missed = sum(vote > self._allowed() for vote in self._votes)
        return 2 * max(missed, len(self._votes) - missed) > _VOTES

    def _is_other_load(self, look: Look) -> bool:
        before, now = self._frames_per_s, look.frames_per_s
        if before is None:
            return False
        return max(before, now) > _OTHER_LOAD * max(1.0, min(before, now))

    # --- what is used of what is allowed ----------------------------------------------------

    def _fresh(self, agent: Agent) -> int:
        """Give the number of an agent's frames since the last time."""
        before, self._seen[agent.name] = self._seen.get(agent.name, 0), agent.batcher.frames
        return agent.batcher.frames - before

    def _used_p99(self, look: Look) -> float:
        """Give how much of the allowed delay was used: over 1 is a miss."""
        if not self._p99_ms or not len(look.latency_s) or not len(look.lag_s):
            return 0.0
        return delay_p99_ms(look.latency_s, look.lag_s, self._rng) / self._p99_ms

    def _used_fps(self, look: Look) -> float:
        """Give how many times too slow we are, as long as the clients wait for us."""
        if not self._fps or not look.clients or not len(look.latency_s):
            return 0.0
        wait_s = float(look.latency_s.mean())
        wait_s += float(look.lag_s.mean()) if len(look.lag_s) else 0.0
        waiting = wait_s * look.frames_per_s / look.clients  # share of the clients' time
        short = (self._fps / max(look.frames_per_s, 1.0)) ** _FPS_POWER
        if short > 1 and waiting < _GAIN:
            return 0.0  # they ask for no more
        return short if short > 1 else _ROOM * short
