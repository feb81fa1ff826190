"""What people see: snapshots of the whole server, and the windows their figures come from.

docs/metrics.md defines every figure here.
"""

from __future__ import annotations

import dataclasses
import time
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from server.controls import Controls


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the event log."""

    time_s: float  # wall clock, seconds since the epoch
    level: str  # "info", "warning" or "error"
    text: str


@dataclass(frozen=True, slots=True)
class ClientView:
    """One connected client."""

    name: str
    agent: str
    game: str
    address: str
    frames: int
    frames_per_s: float
    episodes: int
    episode_return: float  # of the episode under way
    last_return: float | None  # of the last finished episode
    policy_share: float  # of this client's frames: actions the network chose
    expert_share: float
    seen_s: float  # since its last frame
    latency_ms: float | None  # its newest reply's
    info: dict[str, Any] = field(default_factory=dict)


class Result(NamedTuple):
    """One episode of an evaluation."""

    total: float  # its return
    frames: int
    digest: int  # of what was seen from its first reward on: the same if it is the same again


@dataclass(frozen=True, slots=True)
class Score:
    """What an evaluation found: greedy episodes with the same weights throughout."""

    episodes: int
    mean: float
    median: float
    low_quartile: float
    high_quartile: float
    lowest: float
    highest: float
    distinct: int  # episodes that are not one of the others over again
    frames: int  # of the agent, when the weights were copied
    steps: int  # of the learner, likewise

    def to_plain(self) -> dict[str, Any]:
        """Give it as JSON has it."""
        return dataclasses.asdict(self)

    def describe(self) -> str:
        """Say what was found, in one line."""
        return (
            f"mean {self.mean:.5g} (median {self.median:.5g}, {self.lowest:.5g} to "
            f"{self.highest:.5g}) over {self.episodes} greedy episodes at {self.frames:,} frames, "
            f"{self.steps:,} steps"
        )

    @classmethod
    def of(cls, results: Sequence[Result], *, frames: int, steps: int) -> Score:
        """Sum up some episodes; there must be one."""
        returns = [result.total for result in results]
        low, median, high = percentiles(np.array(returns), 25, 50, 75)
        return cls(
            episodes=len(returns),
            mean=sum(returns) / len(returns),
            median=median,
            low_quartile=low,
            high_quartile=high,
            lowest=min(returns),
            highest=max(returns),
            distinct=len({(result.total, result.digest) for result in results}),
            frames=frames,
            steps=steps,
        )


@dataclass(frozen=True, slots=True)
class ReturnWindow:
    """How the agent's own episodes went over the last so many frames."""

    frames: int  # of the window
    episodes: int
    mean: float | None  # of their returns
    slope: float | None  # of the line that fits them best, per million frames


@dataclass(frozen=True, slots=True)
class Contention:
    """What the event loop has to wait for."""

    lag_p50_ms: float
    lag_p99_ms: float
    lag_max_ms: float
    gil_share: float | None  # of looks that found Python's lock taken; None where nobody can tell
    gil_wait_mean_ms: float | None
    gil_wait_p99_ms: float | None


@dataclass(frozen=True, slots=True)
class Governed:
    """What is to be held, whether it is, and what that costs."""

    goal: str  # in words
    state: str  # in words (Hold)
    training_share: float  # of the time that training takes at full speed


@dataclass(frozen=True, slots=True)
class AgentView:
    """One agent: what it collected, what it learned, how it plays."""

    name: str
    spaces: str
    state: str  # what its trainer does, in words (TrainerState)
    frames: int
    frames_per_s: float
    steps: int
    steps_per_s: float
    samples: int
    samples_per_s: float
    skipped_steps: int
    loss: float | None
    gradient_norm: float | None
    q_min: float | None
    q_mean: float | None
    q_max: float | None
    learning_rate: float
    epsilon: float
    epsilon_natural: bool
    expert_ratio: float
    expert_natural: bool
    replay_size: int
    replay_capacity: int
    min_replay: int
    replay_ratio: float  # transitions trained per frame collected, over the rate window
    batch_mean: float | None  # frames per forward pass
    latency_p50_ms: float | None
    latency_p99_ms: float | None
    weights_age_s: float | None
    weights_version: int
    episodes: int  # that the agent played alone; guided ones are counted apart
    return_last: float | None
    return_mean: float | None  # of the last RETURN_WINDOW episodes
    return_best: float | None  # best mean so far of a full window
    returns: tuple[float, ...] = ()  # the last episodes, oldest first
    return_windows: tuple[ReturnWindow, ...] = ()  # shortest first
    guided_episodes: int = 0  # in which an expert, a human or the script played too
    guided_return_mean: float | None = None
    agreement: float | None = None  # of the network with the expert's proposals
    evaluation: Score | None = None  # the newest
    evaluation_best: Score | None = None  # of the weights that are kept as the best
    evaluations: int = 0  # that were finished since this process started
    evaluating: int | None = None  # episodes finished of the evaluation under way, or to come
    evaluating_of: int = 0  # episodes it is to have; 0 where only its client knows
    history: dict[str, tuple[float, ...]] = field(default_factory=dict)  # of some figures
    latency_counts: tuple[int, ...] = (0,) * 13  # replies by LATENCY_BUCKETS_S, and beyond
    latency_sum_s: float = 0.0  # of those replies
    weights_age_steps: int = 0
    weights_stale: bool = False  # older than they should ever be: an alarm
    time_shares: dict[str, float] = field(default_factory=dict)  # of the learner's time, by part


@dataclass(frozen=True, slots=True)
class DialView:
    """One live setting, in words."""

    name: str
    value: str  # in force
    chosen: str  # what a person chose, "" where that is nothing but the natural value
    natural: str  # the value it has by itself now
    source: str  # where that comes from
    unit: str
    allowed: str
    about: str


@dataclass(frozen=True, slots=True)
class GatewayView:
    """One gateway of a cluster."""

    number: int
    node: str  # its machine's address
    state: str  # "up", or what is wrong with it
    address: str  # where its clients connect
    clients: int
    frames: int  # answered since it started
    frames_per_s: float
    latency_p50_ms: float | None
    latency_p99_ms: float | None
    weights_age_s: float | None  # of the oldest that it plays with
    backlog: int  # frames that it has not shipped yet
    shipped_bytes_per_s: float
    shipped: int  # frames
    lost: int  # frames that went before they were shipped


@dataclass(frozen=True, slots=True)
class NodeView:
    """One machine of a cluster."""

    address: str
    cpus: float
    gpus: float
    gateways: int
    clients: int
    frames_per_s: float  # of its gateways together
    learners: int


@dataclass(frozen=True, slots=True)
class LearnerView:
    """One of several learners that an agent has."""

    agent: str
    rank: int  # the first, 0, leads the others
    node: str  # its machine's address
    taken: int  # frames that it took in
    share: float  # of the frames that all learners of its agent took in


@dataclass(frozen=True, slots=True)
class ClusterView:
    """All machines and gateways, and the learners of agents that have several."""

    nodes: tuple[NodeView, ...]
    gateways: tuple[GatewayView, ...]
    learners: tuple[LearnerView, ...] = ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything the dashboard shows, at one moment."""

    time_s: float
    run: str
    address: str
    uptime_s: float
    controls: Controls
    clients: tuple[ClientView, ...]
    agents: tuple[AgentView, ...]
    events: tuple[Event, ...]  # newest last
    last_save_s: float | None  # seconds since the last checkpoint, None before the first
    connect_hints: tuple[str, ...]  # commands that connect an emulator
    stopping: bool = False
    saving: bool = False
    awaited: int = 0  # emulators of ours that are not connected yet, or again
    dials: tuple[DialView, ...] = ()  # the live settings
    changed_s: tuple[
        float, ...
    ] = ()  # when the newest changes of them were, as time_s; since start
    contention: Contention | None = None  # None where nothing is measured
    governed: Governed | None = None  # None where training gives way to nothing
    cluster: ClusterView | None = None  # None on one machine


LATENCY_BUCKETS_S = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0),
)
RETURN_WINDOW = 20  # episodes of which the mean is shown
RETURN_HISTORY = 200  # episodes kept for the picture


class Rate:
    """How fast a counter grows, over a real window of time."""

    def __init__(
        self, window_s: float, count: float = 0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._window_s = window_s
        self._clock = clock
        self._points: deque[tuple[float, float]] = deque([(clock(), count)])

    def update(self, count: float) -> float:
        """Note the counter's value now, and give its growth per second over the window."""
        now = self._clock()
        if count < self._points[-1][1]:  # it went back, as a learner that fell does: begin anew
            self._points.clear()
        self._points.append((now, count))
        # Keep one point at or before the window's start, so that the window is covered whole.
        while len(self._points) > 2 and self._points[1][0] <= now - self._window_s:
            self._points.popleft()
        then, before = self._points[0]
        return (count - before) / (now - then) if now > then else 0.0


class Share:
    """How much one counter grows with another, over a real window of time."""

    def __init__(self, window_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._window_s = window_s
        self._clock = clock
        self._points: deque[tuple[float, int, int]] = deque([(clock(), 0, 0)])

    def update(self, part: int, whole: int) -> float | None:
        """Note both counters now, and give their growth divided; None if nothing grew."""
        now = self._clock()
        self._points.append((now, part, whole))
        while len(self._points) > 2 and self._points[1][0] <= now - self._window_s:
            self._points.popleft()
        _, part_before, whole_before = self._points[0]
        grown = whole - whole_before
        return (part - part_before) / grown if grown else None


def percentiles(values: npt.NDArray[np.float64], *shares: float) -> tuple[float, ...]:
    """Give what numpy's function of that name does, several times faster; there must be a value."""
    last = len(values) - 1
    places = [share / 100 * last for share in shares]
    below = [int(place) for place in places]
    above = [min(place + 1, last) for place in below]
    ordered = np.partition(values, below + above)
    return tuple(
        float(ordered[low] + (place - low) * (ordered[high] - ordered[low]))
        for place, low, high in zip(places, below, above, strict=True)
    )


class Recent:
    """The last values of a fast stream, for percentiles."""

    def __init__(self, size: int) -> None:
        self._values = array("d", bytes(8 * size))
        self._size = size
        self._count = 0

    def add(self, value: float) -> None:
        """Note a value; one at a time is faster than arrays for the few of a loop turn."""
        self._values[self._count % self._size] = value
        self._count += 1

    def extend(self, values: array[float]) -> None:
        """Note several values, at most as many as are kept."""
        at = self._count % self._size
        first = min(len(values), self._size - at)
        self._values[at : at + first] = values[:first]
        if first < len(values):
            self._values[: len(values) - first] = values[first:]
        self._count += len(values)

    def since(self, count: int) -> tuple[npt.NDArray[np.float64], int]:
        """Give the values since there were so many, as far as they are kept, and how many now."""
        fresh = min(self._count - count, self._size)
        places = np.arange(self._count - fresh, self._count) % self._size
        return np.frombuffer(self._values)[places], self._count

    def values(self, newest: int | None = None) -> npt.NDArray[np.float64]:
        """Give a copy of the values, or of the newest ones only, in no order."""
        kept = min(self._count, self._size)
        wanted = kept if newest is None else min(newest, kept)
        at = (np.arange(self._count - wanted, self._count)) % self._size
        return np.frombuffer(self._values)[at]

    def percentiles(self, *shares: float) -> tuple[float, ...] | None:
        """Give the values below which these shares (0 to 100) lie, or None before the first."""
        if not self._count:
            return None
        return percentiles(np.frombuffer(self._values)[: min(self._count, self._size)], *shares)


class Histogram:
    """How many values lie in each of the LATENCY_BUCKETS_S, since the start of the process."""

    def __init__(self) -> None:
        self._counts = np.zeros(len(LATENCY_BUCKETS_S) + 1, np.int64)
        self._seen = 0
        self.sum_s = 0.0

    @property
    def counts(self) -> tuple[int, ...]:
        """The values at most each bound, above the one before; then those beyond the last."""
        return tuple(self._counts.tolist())

    def follow(self, recent: Recent) -> None:
        """Count what came since the last time, as far as it is still there."""
        values, self._seen = recent.since(self._seen)
        places = np.searchsorted(LATENCY_BUCKETS_S, values)
        self._counts += np.bincount(places, minlength=len(self._counts))
        self.sum_s += float(values.sum())


class EventLog:
    """The last things that happened, for people to read."""

    def __init__(self, size: int = 200) -> None:
        self._events: deque[Event] = deque(maxlen=size)
        self._listeners: list[Callable[[Event], None]] = []

    def listen(self, listener: Callable[[Event], None]) -> None:
        """Call the listener for each event from now on."""
        self._listeners.append(listener)

    def add(self, text: str, level: str = "info") -> None:
        """Note that something happened."""
        event = Event(time.time(), level, text)
        self._events.append(event)
        for listener in self._listeners:
            listener(event)

    def newest(self, count: int) -> tuple[Event, ...]:
        """Give the newest events, newest last."""
        return tuple(self._events)[-count:]
