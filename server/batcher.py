"""Answers the frames of one loop turn together: one forward pass, one append, one reply each.

Usual frames go through the lane in C. For all others, what differs from client to client is plain
Python on the session, what is the same for all is one numpy call for the batch: with the batches of
a loop turn (1 to 64 frames) both are at their best.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from server.lane import LEFT, MOST_ROWS, TAKEN, Lane, Left
from server.learn.policy import Decision, Mix, Policy
from server.learn.replay import Frames, Replay
from server.net.listener import Taker, received
from server.net.wire import ENDED, START, Executed, Frame, Source, encode_action
from server.session import Session
from server.stats import Recent

_LATENCIES = 8192  # replies over which percentiles are taken
_FEW = 5  # frames: so few Python answers sooner one by one than together
_FEW_IN_C = 2  # players: so few are answered at once by the lane, since they seldom come together
_FEW_VALUES = 64  # of an observation: plain Python looks at so few sooner than numpy
_MOST_REWARD = 3e38  # what a float32 holds
_MOST_VALUE = 1e18  # of an observation: beyond it a forward pass overflows


class Batcher:
    """Collects an agent's frames until the loop turn ends, then answers them all."""

    def __init__(
        self,
        *,
        policy: Policy,
        replay: Replay,
        frame_stack: int = 1,
        lane: Lane | None = None,
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
        self._frame_stack = frame_stack
        self._lane = lane
        self._schedule = schedule
        self._on_appended = on_appended
        self._on_episode = on_episode
        self._dtype = np.dtype(replay.layout.observation)
        self._few_floats = self._dtype == np.float32 and replay.layout.values <= _FEW_VALUES
        self.players = 0  # connected clients
        self._turn = 0
        self._waiting: list[tuple[Session, Frame, float]] = []  # and when each arrived

    def taker(self, session: Session) -> Taker | None:
        """Give who takes a client's usual frames unread; None where each must be read first."""
        if self._lane is None:
            return None
        return Taker(
            functools.partial(self._take, self._lane, session),
            functools.partial(self._receive, self._lane, session),
        )

    def _take(self, lane: Lane, session: Session, message: bytes) -> None:
        """Take what is probably a frame; when it is answered, see ``add``."""
        if session.turn == self._turn:
            self.flush()
        if session.settings is not None or not lane.put(session, message):
            session.read(message)
            return
        self._wait(lane, session)

    def _receive(self, lane: Lane, session: Session, descriptor: int) -> bytes | None:
        """Take what a client has sent from its socket; give back what is no usual frame."""
        if session.turn == self._turn:
            self.flush()
            return None  # which may have closed it; else the loop sees soon that there is more
        if session.settings is not None:  # lane.c does not know how to tell them
            return received(descriptor)
        if self._policy.mlp and self.players <= _FEW_IN_C and not (lane.waiting or self._waiting):
            return self._serve(lane, session, descriptor)
        code = lane.receive(session, descriptor)
        if code != TAKEN:
            return lane.received(code)
        self._wait(lane, session)
        return None

    def _serve(self, lane: Lane, session: Session, descriptor: int) -> bytes | None:
        """Answer a lone frame in one call: nothing waits, and few play."""
        first = self._replay.head
        code = lane.serve(session, descriptor, self.mix, self._version())
        if code not in (TAKEN, LEFT):
            return lane.received(code)
        self.latency_s.add(session.latency_s)
        if code == LEFT:
            self._see_to(lane.left(1), (session,))
        self._count(first, 1)
        return None

    def _wait(self, lane: Lane, session: Session) -> None:
        """Answer now, if no other frame can come or few play, or when the turn ends."""
        session.turn = self._turn
        rows = len(lane.waiting)
        there = rows + len(self._waiting)
        if self.players <= _FEW_IN_C or there >= self.players or rows == MOST_ROWS:
            self.flush()
        elif there == 1:
            self._schedule(self.flush)

    def add(self, session: Session, frame: Frame) -> None:
        """Take a frame; it is answered when the loop has seen what else arrived.

        Once every client's frame is here nothing else can come, and none need wait.
        """
        if session.turn == self._turn:
            self.flush()  # faster than lockstep: a batch holds one frame of each client
        if frame.sequence <= session.last_sequence:
            self._look_back(session, frame.sequence)
            return
        waiting = self._waiting
        if self.players <= _FEW and not waiting:
            self._answer_one(session, frame, time.perf_counter())
            return
        session.turn = self._turn
        waiting.append((session, frame, time.perf_counter()))
        if len(waiting) >= self.players or len(waiting) == MOST_ROWS:
            self.flush()
        elif len(waiting) == 1:
            self._schedule(self.flush)

    def flush(self) -> None:
        """Answer every frame that waits."""
        if self._lane is not None and self._lane.waiting:
            self._answer_messages(self._lane)
        waiting = self._waiting
        if not waiting:
            return
        self._waiting = []
        self._turn += 1
        if len(waiting) <= _FEW:
            for alone in waiting:
                self._answer_one(*alone)
            return
        sessions, frames, arrivals = zip(*waiting, strict=True)
        sequences, flags, parts, observations, executed, experts, _ = zip(*frames, strict=True)
        observation = np.frombuffer(b"".join(observations), self._dtype).reshape(len(frames), -1)
        rewards = [sum(part) for part in parts]
        if not self._is_sound(observation, rewards):
            for alone in waiting:  # who is at fault is closed, the others are answered
                self._answer_one(*alone)
            return
        previous = list(map(self._follow, sessions, sequences, flags, executed))
        seen = observation
        if self._frame_stack > 1:
            seen = self._replay.stacked(observation, previous, self._frame_stack)
        decision = self._policy.act(seen, experts if any(experts) else None, self.mix)
        first = self._replay.append(
            Frames(
                observation,
                decision.choice,
                decision.continuous,
                rewards,
                flags,
                decision.source,
                self._version(),
                previous,
            )
        )
        sources = decision.source.tolist()
        self._reply(sessions, sequences, decision, sources)
        now, seen_s = time.perf_counter(), time.monotonic()
        note, latency = self._note, self.latency_s.add
        for row, session in enumerate(sessions):
            session.latency_s = latency_s = now - arrivals[row]
            latency(latency_s)
            note(session, frames[row], rewards[row], sources[row], first + row, seen_s)
        self._count(first, len(frames))

    def _answer_messages(self, lane: Lane) -> None:
        """Answer what waits in the lane; what turns out to be something else is read first."""
        self._turn += 1
        sessions, first = lane.waiting, self._replay.head
        rows = len(sessions)
        try:
            left = lane.answer(self.mix, self._version())
        except BaseException:
            lane.withdraw()  # nobody would ever ask for them again
            raise
        if left is None:
            # Nothing else of theirs was read meanwhile: the loop flushes before it polls again.
            for session, message in zip(sessions, lane.withdraw(), strict=True):
                session.read(message)
            return
        self.latency_s.extend(lane.latencies_s(rows))
        self._see_to(left, sessions)
        self._count(first, rows)

    def _see_to(self, left: Sequence[Left], sessions: Sequence[Session]) -> None:
        """Do what the lane has left: the rest of replies, and then the ends of episodes."""
        for row, sent, _ in left:
            if sent >= 0:
                sessions[row].write(sessions[row].last_reply[sent:])
        for row, _, ended in left:
            if ended:
                self._end_episode(sessions[row], Source.POLICY)

    def _reply(
        self,
        sessions: Sequence[Session],
        sequences: Sequence[int],
        decision: Decision,
        sources: list[int],
    ) -> None:
        """Answer each client."""
        discrete, continuous = self._policy.coding.batch_to_wire(decision)
        for session, sequence, choices, values, source in zip(
            sessions, sequences, discrete, continuous, sources, strict=True
        ):
            reply = encode_action(sequence, choices, values, source, session.settings)
            session.write(reply)
            session.last_reply = reply
            session.settings = None

    def _answer_one(self, session: Session, frame: Frame, arrived: float) -> None:
        """Answer a lone frame: the same steps, without the batch around them."""
        observation = seen = frame.observation  # bytes all the way: numpy is slow with few values
        reward = sum(frame.rewards)
        if not self._is_sound_alone(observation, reward):
            self._close(session, frame)
            return
        previous = self._follow(session, frame.sequence, frame.flags, frame.executed)
        if self._frame_stack > 1:
            row = np.frombuffer(observation, self._dtype)[None]
            seen = self._replay.stacked(row, [previous], self._frame_stack).tobytes()
        choice, continuous, source = self._policy.act_one(seen, frame.expert, self.mix)
        index = self._replay.append_one(
            observation,
            choice,
            continuous,
            reward,
            frame.flags,
            source,
            self._version(),
            previous,
        )
        discrete, values = self._policy.coding.to_wire(choice, continuous)
        reply = encode_action(frame.sequence, discrete, values, source, session.settings)
        session.write(reply)
        session.last_reply = reply
        session.settings = None
        session.latency_s = latency_s = time.perf_counter() - arrived
        self.latency_s.add(latency_s)
        self._note(session, frame, reward, source, index, time.monotonic())
        self._count(index, 1)

    def _version(self) -> int:
        weights = self._policy.weights
        return weights.version if weights else 0

    def _count(self, first: int, frames: int) -> None:
        self.frames += frames
        self.batches += 1
        self._on_appended(first + frames)

    # --- one frame's share ------------------------------------------------------------------

    def _follow(
        self, session: Session, sequence: int, flags: int, executed: Executed | None
    ) -> int:
        """Find the frame that this one follows, and set right what was really done there."""
        # A gap in the sequence cuts the chain: what happened in between is not known.
        if flags & START or sequence != session.last_sequence + 1:
            session.last_index = -1
        if executed is not None and session.last_index >= 0:
            self._correct(session, executed)
        return session.last_index

    def _correct(self, session: Session, done: Executed) -> None:
        """Store what the emulator says it did, where it is not what it was told."""
        choice, continuous = self._policy.coding.from_wire(done.choice)
        before = self._replay.correct(session.last_index, choice, continuous, done.source)
        if before is not None:
            session.sources[before] -= 1
            session.sources[done.source] += 1

    def _note(
        self,
        session: Session,
        frame: Frame,
        reward: float,
        source: int,
        index: int,
        seen_s: float,
    ) -> None:
        """Keep what the frame brought on its session."""
        session.seen_s = seen_s
        session.frames += 1
        session.sources[source] += 1
        session.last_sequence = frame.sequence
        session.last_index = index
        if frame.info is not None:
            session.info = frame.info
        if frame.flags & START:
            session.episode_return = 0.0  # a start frame's reward belongs to no action
            session.guided_before = session.not_its_own() - (source >= Source.EXPERT)
        else:
            session.episode_return += reward
        if frame.flags & ENDED:
            session.last_index = -1
            self._end_episode(session, source)

    def _end_episode(self, session: Session, source: int) -> None:
        session.episodes += 1
        session.last_return = session.episode_return
        # The answer to an episode's last frame is never carried out.
        played = session.not_its_own() - (source >= Source.EXPERT)
        session.guided = played - session.guided_before
        self._on_episode(session, session.episode_return)

    def _look_back(self, session: Session, sequence: int) -> None:
        """Answer a number that was used before: once more if its answer may have been lost."""
        if sequence < session.last_sequence:
            session.close(
                f"frame {sequence} after frame {session.last_sequence}: numbers only go up in a "
                "session; say Hello again to count from the start"
            )
        elif not session.repeats_left:
            session.close(f"frame {sequence} was sent again and again; no answer is ever lost")
        else:
            session.repeats_left -= 1
            session.write(session.last_reply)

    # --- values that cannot be worked with --------------------------------------------------

    def _is_sound(self, observation: npt.NDArray[Any], rewards: Sequence[float]) -> bool:
        """Say whether every value can be worked with.

        Written so that NaN, which compares false with everything, cannot. The squares of nearly
        all observations add up to less than that of the largest value, which one call tells.
        """
        if not sum(map(abs, rewards)) <= _MOST_REWARD:
            return False
        if self._dtype.kind != "f":
            return True
        squares = np.vdot(observation, observation)
        return bool(squares <= _MOST_VALUE or np.abs(observation).max() <= _MOST_VALUE)

    def _is_sound_alone(self, observation: bytes, reward: float) -> bool:
        """Say the same of a lone frame, whose few values plain Python has seen before numpy has."""
        if not self._few_floats:
            return self._is_sound(np.frombuffer(observation, self._dtype), (reward,))
        values = memoryview(observation).cast("f")
        return abs(reward) <= _MOST_REWARD and sum(map(abs, values)) <= _MOST_VALUE

    def _close(self, session: Session, frame: Frame) -> None:
        session.close(
            f"frame {frame.sequence} has a value that is not finite (NaN, infinity, "
            f"or beyond {_MOST_VALUE:g})"
        )
