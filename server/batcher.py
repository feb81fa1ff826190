"""Answers the frames of one loop turn together: one forward pass, one append, one reply each.

What differs from client to client is plain Python on the session, what is the same for all is one
numpy call for the batch: with the batches of a loop turn (1 to 64 frames) both are at their best.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from server.learn.policy import Decision, Mix, Policy
from server.learn.replay import Frames, Replay
from server.net.wire import ENDED, START, Choice, Frame, encode_action
from server.session import Session
from server.stats import Recent

_LATENCIES = 8192  # replies over which percentiles are taken
_MOST_REWARD = 3e38  # what a float32 holds
_MOST_VALUE = 1e18  # of an observation: beyond it a forward pass overflows


class Batcher:
    """Collects an agent's frames until the loop turn ends, then answers them all."""

    def __init__(
        self,
        *,
        policy: Policy,
        replay: Replay,
        schedule: Callable[[Callable[[], None]], object],
        on_appended: Callable[[int], None],
        on_episode: Callable[[Session, float], None],
    ) -> None:
        self.mix = Mix()
        self.latency_s = Recent(_LATENCIES)
        self.frames = 0
        self.batches = 0
        self._policy = policy
        self._replay = replay
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
        if frame.sequence == session.last_sequence:
            session.write(session.last_reply)  # sent again, its answer was lost: stored already
            return
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
        observation = np.frombuffer(
            b"".join([frame.observation for frame in frames]), self._dtype
        ).reshape(len(frames), -1)
        rewards = [sum(frame.rewards) for frame in frames]
        bad = self._not_finite(observation, rewards)
        if bad:
            self._refuse(bad, sessions, frames, arrivals)
            return
        previous, experts = self._read(sessions, frames)
        decision = self._policy.act(observation, experts, self.mix)
        weights = self._policy.weights
        first = self._replay.append(
            Frames(
                observation,
                decision.choice,
                decision.continuous,
                rewards,
                [frame.flags for frame in frames],
                decision.source,
                weights.version if weights else 0,
                previous,
            )
        )
        self._reply(sessions, frames, decision)
        self.latency_s.extend(time.perf_counter() - np.array(arrivals))
        self._note(sessions, frames, rewards, decision, first)
        self._on_appended(first + len(frames))
        self.frames += len(frames)
        self.batches += 1

    def _read(
        self, sessions: list[Session], frames: list[Frame]
    ) -> tuple[list[int], list[Choice | None] | None]:
        """Find the frame that each one follows, and the experts' proposals if there are any."""
        previous: list[int] = []
        experts: list[Choice | None] | None = None
        for row, (session, frame) in enumerate(zip(sessions, frames, strict=True)):
            # A gap in the sequence cuts the chain: what happened in between is not known.
            if frame.flags & START or frame.sequence != session.last_sequence + 1:
                session.last_index = -1
            previous.append(session.last_index)
            if frame.executed is not None and session.last_index >= 0:
                self._correct(session, frame)
            if frame.expert is not None:
                experts = experts or [None] * len(frames)
                experts[row] = frame.expert
            if frame.info is not None:
                session.info = frame.info
        return previous, experts

    def _correct(self, session: Session, frame: Frame) -> None:
        """Store what the emulator says it did, where it is not what it was told."""
        done = frame.executed
        if done is None:
            return
        choice, continuous = self._policy.coding.from_wire(done.choice)
        before = self._replay.correct(session.last_index, choice, continuous, done.source)
        if before is not None:
            session.sources[before] -= 1
            session.sources[done.source] += 1

    def _reply(self, sessions: list[Session], frames: list[Frame], decision: Decision) -> None:
        """Answer each client.

        All replies are packed first and written in one burst: a client that is still busy with
        the first need not be woken for the next, which is most of what a write costs.
        """
        discrete, continuous = self._policy.coding.to_wire(decision)
        replies = [
            encode_action(frame.sequence, choices, values, source, session.settings)
            for session, frame, choices, values, source in zip(
                sessions, frames, discrete, continuous, decision.source.tolist(), strict=True
            )
        ]
        for session, reply in zip(sessions, replies, strict=True):
            session.write(reply)
            session.last_reply = reply

    def _note(
        self,
        sessions: list[Session],
        frames: list[Frame],
        rewards: list[float],
        decision: Decision,
        first: int,
    ) -> None:
        """Keep what each frame brought on its session."""
        now = time.monotonic()
        for row, (session, frame, source) in enumerate(
            zip(sessions, frames, decision.source.tolist(), strict=True)
        ):
            session.settings = None
            session.seen_s = now
            session.frames += 1
            session.sources[source] += 1
            session.last_sequence = frame.sequence
            session.last_index = first + row
            if frame.flags & START:
                session.episode_return = 0.0  # a start frame's reward belongs to no action
            else:
                session.episode_return += rewards[row]
            if frame.flags & ENDED:
                session.last_index = -1
                session.episodes += 1
                session.last_return = session.episode_return
                self._on_episode(session, session.episode_return)

    def _not_finite(self, observation: npt.NDArray[Any], rewards: list[float]) -> set[int]:
        """Find the rows with a value that cannot be worked with.

        Written so that NaN, which compares false with everything, is one of them.
        """
        bad = {
            row for row, reward in enumerate(rewards) if not -_MOST_REWARD <= reward <= _MOST_REWARD
        }
        if self._dtype.kind == "f":
            size = np.abs(observation)
            if not size.max() <= _MOST_VALUE:
                bad.update(np.flatnonzero(~(size.max(axis=1) <= _MOST_VALUE)).tolist())
        return bad

    def _refuse(
        self,
        bad: set[int],
        sessions: list[Session],
        frames: list[Frame],
        arrivals: list[float],
    ) -> None:
        """Close the clients whose values are not finite, and answer the others."""
        for row, (session, frame) in enumerate(zip(sessions, frames, strict=True)):
            if row in bad:
                session.close(
                    f"frame {frame.sequence} has a value that is not finite (NaN, infinity, "
                    f"or beyond {_MOST_VALUE:g})"
                )
                continue
            self._sessions.append(session)
            self._frames.append(frame)
            self._arrivals.append(arrivals[row])
        self.flush()
