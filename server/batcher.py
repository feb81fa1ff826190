"""Answers the frames of one loop turn together: one forward pass, one append, one reply each."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from server.learn.policy import Decision, Mix, Policy
from server.learn.replay import Frames, Replay
from server.net.wire import ENDED, START, Frame, Source, encode_action
from server.session import Session
from server.stats import Recent

_NO_SEQUENCE = -2  # no frame's number follows it
_LATENCIES = 8192  # replies over which percentiles are taken


class Seats:
    """One row per session: what a batch needs to know of each client, as arrays."""

    def __init__(self, count: int = 16) -> None:
        self.last = np.full(count, -1, np.int64)  # replay index of the frame before, -1 for none
        self.sequence = np.full(count, _NO_SEQUENCE, np.int64)
        self.episode_return = np.zeros(count, np.float64)
        self.episodes = np.zeros(count, np.int64)
        self.frames = np.zeros(count, np.int64)
        self.sources = np.zeros((count, len(Source)), np.int64)
        self.seen_s = np.zeros(count, np.float64)
        self._free = list(reversed(range(count)))

    def take(self) -> int:
        """Give a free row, cleared; grow if there is none."""
        if not self._free:
            self._grow()
        seat = self._free.pop()
        for name, array in self._arrays().items():
            array[seat] = {"last": -1, "sequence": _NO_SEQUENCE}.get(name, 0)
        return seat

    def release(self, seat: int) -> None:
        """Give a row back."""
        self._free.append(seat)

    def _arrays(self) -> dict[str, npt.NDArray[Any]]:
        return {name: value for name, value in vars(self).items() if name != "_free"}

    def _grow(self) -> None:
        count = len(self.last)
        for name, array in self._arrays().items():
            setattr(self, name, np.concatenate([array, np.zeros_like(array)]))
        self._free = list(reversed(range(count, 2 * count)))


class Batcher:
    """Collects an agent's frames until the loop turn ends, then answers them all."""

    def __init__(
        self,
        *,
        policy: Policy,
        replay: Replay,
        mix: Callable[[], Mix],
        schedule: Callable[[Callable[[], None]], object],
        on_appended: Callable[[int], None],
        on_episode: Callable[[Session, float], None],
    ) -> None:
        self.seats = Seats()
        self.latency_s = Recent(_LATENCIES)
        self.frames = 0
        self.batches = 0
        self._policy = policy
        self._replay = replay
        self._mix = mix
        self._schedule = schedule
        self._on_appended = on_appended
        self._on_episode = on_episode
        self._dtype = np.dtype(replay.layout.observation)
        self._turn = 0
        self._sessions: list[Session] = []
        self._frames: list[Frame] = []
        self._arrivals: list[float] = []

    def add(self, session: Session, frame: Frame) -> None:
        """Take a frame; it is answered when the loop has seen what else arrived."""
        if session.turn == self._turn:
            self.flush()  # faster than lockstep: a batch holds one frame of each client
        session.turn = self._turn
        if not self._sessions:
            self._schedule(self.flush)
        self._sessions.append(session)
        self._frames.append(frame)
        self._arrivals.append(time.perf_counter())

    def flush(self) -> None:
        """Answer every frame that waits."""
        sessions, frames, arrivals = self._sessions, self._frames, self._arrivals
        if not sessions:
            return
        self._sessions, self._frames, self._arrivals = [], [], []
        self._turn += 1
        columns = list(zip(*frames, strict=True))
        observation = np.frombuffer(b"".join(columns[3]), self._dtype).reshape(len(frames), -1)
        with np.errstate(over="ignore"):
            reward = np.array(columns[2], np.float64).sum(axis=1).astype(np.float32)
        finite = self._finite(observation, reward)
        if finite is not None:
            self._refuse(sessions, frames, arrivals, finite)
            return
        decision = self._store(sessions, columns, observation, reward)
        self._reply(sessions, columns[0], decision)
        self.frames += len(frames)
        self.batches += 1
        self.latency_s.extend(time.perf_counter() - np.array(arrivals))

    def _store(
        self,
        sessions: list[Session],
        columns: list[tuple[Any, ...]],
        observation: npt.NDArray[Any],
        reward: npt.NDArray[np.float32],
    ) -> Decision:
        """Choose the actions and append the batch, each frame linked to the one before."""
        sequence, flag, _, _, executed, experts, infos = columns
        count = len(sessions)
        seats = self.seats
        seat = np.array([session.seat for session in sessions])
        flags = np.array(flag, np.uint8)
        sequences = np.array(sequence, np.int64)
        # A gap in the sequence cuts the chain: what happened in between is not known.
        follows = ((flags & START) == 0) & (sequences == seats.sequence[seat] + 1)
        previous = np.where(follows, seats.last[seat], -1)
        if executed.count(None) != count:
            self._correct(seat, previous, executed)
        decision = self._policy.act(observation, experts, self._mix())
        weights = self._policy.weights
        first = self._replay.append(
            Frames(
                observation,
                decision.choice,
                decision.continuous,
                reward,
                flags,
                decision.source,
                weights.version if weights else 0,
                previous,
            )
        )
        ended = (flags & ENDED) != 0
        seats.last[seat] = np.where(ended, -1, np.arange(first, first + count))
        seats.sequence[seat] = sequences
        seats.frames[seat] += 1
        seats.sources[seat, decision.source] += 1
        seats.seen_s[seat] = time.monotonic()
        self._score(sessions, seat, flags, reward, ended)
        if infos.count(None) != count:
            for session, info in zip(sessions, infos, strict=True):
                if info is not None:
                    session.info = info
        self._on_appended(first + count)
        return decision

    def _score(
        self,
        sessions: list[Session],
        seat: npt.NDArray[np.int64],
        flags: npt.NDArray[np.uint8],
        reward: npt.NDArray[np.float32],
        ended: npt.NDArray[np.bool_],
    ) -> None:
        """Keep each client's return; the reward of a start frame belongs to no action."""
        start = (flags & START) != 0
        returns = np.where(start, 0.0, self.seats.episode_return[seat] + reward)
        self.seats.episode_return[seat] = returns
        if ended.any():
            for row in np.flatnonzero(ended):
                self.seats.episodes[seat[row]] += 1
                sessions[row].last_return = float(returns[row])
                self._on_episode(sessions[row], float(returns[row]))

    def _correct(
        self,
        seat: npt.NDArray[np.int64],
        previous: npt.NDArray[np.int64],
        executed: tuple[Any, ...],
    ) -> None:
        """Store what the emulators say they did, where it is not what they were told."""
        for row, done in enumerate(executed):
            if done is not None and previous[row] >= 0:
                choice, continuous = self._policy.coding.from_wire(done.choice)
                index = int(previous[row])
                before = self._replay.correct(index, choice, continuous, done.source)
                if before is not None:
                    self.seats.sources[seat[row], before] -= 1
                    self.seats.sources[seat[row], done.source] += 1

    def _reply(
        self, sessions: list[Session], sequence: tuple[int, ...], decision: Decision
    ) -> None:
        discrete, continuous = self._policy.coding.to_wire(decision)
        source = decision.source.tolist()
        for row, session in enumerate(sessions):
            settings, session.settings = session.settings, None
            session.write(
                encode_action(sequence[row], discrete[row], continuous[row], source[row], settings)
            )

    def _finite(
        self, observation: npt.NDArray[Any], reward: npt.NDArray[np.float32]
    ) -> npt.NDArray[np.bool_] | None:
        """Say which rows are finite, or None if all are."""
        good = np.isfinite(reward)
        if self._dtype.kind == "f":
            values = np.isfinite(observation)
            if not values.all():
                good &= values.all(axis=1)
        return None if good.all() else good

    def _refuse(
        self,
        sessions: list[Session],
        frames: list[Frame],
        arrivals: list[float],
        finite: npt.NDArray[np.bool_],
    ) -> None:
        """Close the clients whose values are not finite, and answer the others."""
        for row in np.flatnonzero(~finite):
            number = frames[row].sequence
            sessions[row].close(f"frame {number} has a value that is not finite (NaN or infinity)")
        for row in np.flatnonzero(finite):
            self._sessions.append(sessions[row])
            self._frames.append(frames[row])
            self._arrivals.append(arrivals[row])
        self.flush()
