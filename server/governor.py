"""Lets training give way just as much as the games need: a small controller over its share of time.

Each look compares what is to be held with what is: a miss cuts training's share in proportion, a
clear hold gives some of it back, and in between nothing changes.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

from server.agent import Agent
from server.probe import INTERVAL_S
from server.stats import Governed, Rate, Recent

Floats = npt.NDArray[np.float64]

_WINDOW_S = 1.0  # over which is measured what is held
_LEAST_SHARE = 0.02  # training never stops altogether: it would not be seen to recover
_LEAST_CUT = 0.5  # of the share, in one look
_MARGIN = 0.8  # of what is allowed: below it there is room for more training
_GROWTH, _FIRST_GROWTH = 1.1, 0.01
_GAIN = 0.1  # share of their time that clients wait for us: below it, giving way gains nothing


class Hold(Enum):
    """Whether what is to be held is held."""

    HOLDING = "holding"
    MISSED = "missed"


@dataclass(frozen=True, slots=True)
class Look:
    """What the server did since the look before."""

    frames_per_s: float
    clients: int
    latency_s: Floats  # of frames, from their arrival to their reply
    lag_s: Floats  # of the event loop: how long a frame waits to arrive


class Governor:
    """Decides which share of its time training may use."""

    def __init__(self, *, fps: float, p99_ms: float) -> None:
        self._fps = fps  # 0: not to be held
        self._p99_ms = p99_ms  # the same
        self._rng = np.random.default_rng(0)
        self._rate = Rate(_WINDOW_S)
        self.share = 1.0
        self.state = Hold.HOLDING

    def tend(self, agents: Collection[Agent], lag_s: Recent) -> None:
        """Look at what the agents did of late, and let each one's training give way."""
        fps = self._rate.update(sum(agent.batcher.frames for agent in agents))
        newest = int(fps * _WINDOW_S)
        latencies = [agent.batcher.latency_s.values(newest) for agent in agents]
        look = Look(
            frames_per_s=fps,
            clients=sum(agent.batcher.players for agent in agents),
            latency_s=np.concatenate([np.zeros(0), *latencies]),
            lag_s=lag_s.values(int(_WINDOW_S / INTERVAL_S)),
        )
        share = self.decide(look)
        for agent in agents:
            agent.give_way(share)

    def decide(self, look: Look) -> float:
        """Give the share of its time that training may use until the next look."""
        used = max(self._used_p99(look), self._used_fps(look))
        self.state = Hold.MISSED if used > 1 else Hold.HOLDING
        if used > 1:
            self.share = max(_LEAST_SHARE, self.share * max(_LEAST_CUT, 1 / used))
        elif used < _MARGIN:
            self.share = min(1.0, self.share * _GROWTH + _FIRST_GROWTH)
        return self.share

    def view(self) -> Governed:
        """Give what people see of it."""
        goals = [
            f"{self._fps:,.0f} fps" if self._fps else "",
            f"{self._p99_ms:g} ms p99" if self._p99_ms else "",
        ]
        goal = ", ".join(goal for goal in goals if goal)
        return Governed(goal, self.state.value, self.share)

    def _used_p99(self, look: Look) -> float:
        """Give how much of the allowed delay was used: over 1 is a miss."""
        if not self._p99_ms or not len(look.latency_s) or not len(look.lag_s):
            return 0.0
        # A frame waits to arrive and then for its reply; the two are measured apart.
        delay_s = look.latency_s + self._rng.choice(look.lag_s, len(look.latency_s))
        return float(1e3 * np.percentile(delay_s, 99) / self._p99_ms)

    def _used_fps(self, look: Look) -> float:
        """Give how many times too slow we are, as long as the clients wait for us."""
        if not self._fps or not look.clients or not len(look.latency_s):
            return 0.0
        wait_s = float(look.latency_s.mean())
        wait_s += float(look.lag_s.mean()) if len(look.lag_s) else 0.0
        waiting = wait_s * look.frames_per_s / look.clients  # share of the clients' time
        short = self._fps / max(look.frames_per_s, 1.0)
        if short > 1 and waiting < _GAIN:
            return 0.0  # they ask for no more
        return short if short > 1 else _MARGIN * short
