"""What a gateway and the server that steers it tell each other, a few times a second."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from server.controls import Controls
from server.spaces import Spaces
from server.stats import ClientView, Event
from server.train.courier import Shipping

T = TypeVar("T")
_MOST_KEPT = 10_000  # of what nobody has asked for yet: the server may be away for long


class Played(NamedTuple):
    """One finished episode."""

    agent: str
    client: str
    total: float  # its return
    guided: bool


@dataclass(frozen=True, slots=True)
class Orders:
    """What a gateway is to go by."""

    controls: Controls
    settings: dict[str, Any]  # to be pushed to the scripts of all games
    agents: dict[str, tuple[str, Spaces]]  # of the run: game and spaces by name
    frames: dict[str, int]  # of each agent, at all gateways together
    before: dict[str, int]  # those of each agent that no living gateway has counted
    life: str = ""  # of the gateway that the numbers below are of
    episodes_seen: int = 0  # number up to which episodes have been heard of
    events_seen: int = 0


@dataclass(frozen=True, slots=True)
class Tally:
    """What one gateway has done for one agent; the counters count from its start."""

    game: str
    spaces: Spaces
    players: int
    frames: int
    batches: int
    agreed: int
    compared: int
    latencies_s: npt.NDArray[np.float64]  # of the replies since the last report
    latency_p50_s: float | None
    latency_p99_s: float | None
    weights_age_s: float | None
    weights_version: int
    shipping: Shipping
    problem: str  # why its learner cannot be reached


@dataclass(frozen=True, slots=True)
class GatewayReport:
    """What one gateway has done, and who plays there."""

    life: str  # of the gateway: another one counts anew
    node: str
    address: str
    pid: int
    controls: Controls  # in force
    clients: tuple[ClientView, ...]
    tallies: dict[str, Tally]  # by agent
    before: dict[str, int]  # as it was last told
    episodes: tuple[Played, ...]  # those not heard of yet
    episodes_number: int
    events: tuple[Event, ...]
    events_number: int
    awaited: int = 0  # emulators of its own that are not connected yet


class Outbox(Generic[T]):
    """Things to tell, numbered, kept until somebody says up to which number they are known."""

    def __init__(self) -> None:
        self._kept: deque[T] = deque(maxlen=_MOST_KEPT)
        self.number = 0  # of the newest

    def add(self, thing: T) -> None:
        """Keep one more."""
        self._kept.append(thing)
        self.number += 1

    def since(self, seen: int) -> tuple[T, ...]:
        """Forget what was seen, and give the rest."""
        first = self.number - len(self._kept)
        for _ in range(min(len(self._kept), seen - first)):
            self._kept.popleft()
        return tuple(self._kept)
