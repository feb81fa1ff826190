"""One evaluation: greedy episodes of one client, played with weights that stay as they are.

Nothing is stored: no frame reaches a replay, a learner or the figures of training.
"""

from __future__ import annotations

import time
import zlib
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from server.learn.network import Shape, Weights, make_inference, to_tensors
from server.learn.policy import Coding, Mix, Policy
from server.net.listener import Connection
from server.net.wire import ENDED, START, Bye, Error, Frame, Hello, Welcome, encode_action
from server.spaces import Spaces
from server.stats import Result, Score

# Of the first episode; training plays those below 2**30 (Fleet.seat). For an Atari game without
# sticky actions a seed is a number of frames before the first decision, and a deterministic agent
# plays as many different games as there are frames in a decision: 4. From this seed on, up to the
# 20th episode, each four in a row begin in all four ways (docs/metrics.md).
SEED = 2_000_111_595
_TELLING = 500  # frames after the first reward by which episodes are told apart
_GREEDY = Mix()


class Evaluation:
    """Answers the frames of one client with the network's best choice, and keeps the returns."""

    def __init__(
        self,
        *,
        spaces: Spaces,
        shape: Shape,
        device: str,
        weights: Weights,
        frames: int,
        episodes: int = 0,
        on_episode: Callable[[Evaluation], None],
        on_end: Callable[[Evaluation, str], None],
    ) -> None:
        self.results: list[Result] = []  # of the finished episodes
        self.seen_s = time.monotonic()  # when it was last heard
        self._spaces, self._shape = spaces, shape
        self._weights = weights
        self._frames = frames  # of the agent, when the weights were copied
        self.wanted = episodes  # 0: as many as the client plays
        self._on_episode, self._on_end = on_episode, on_end
        # Noisy layers explore by their noise: an evaluation goes without.
        self._policy = Policy(
            make_inference(spaces, shape, device, None), Coding(spaces.actions), 0
        )
        self._policy.load(weights)
        self._dtype = np.dtype("<f4" if spaces.observation.dtype == "float32" else "u1")
        self._stack: deque[npt.NDArray[Any]] = deque(maxlen=shape.frame_stack)  # oldest first
        self._connection: Connection | None = None
        self._sequence = -1
        self._reply = b""
        self._begin()

    @property
    def complete(self) -> bool:
        """Whether there are as many episodes as were wanted."""
        return 0 < self.wanted <= len(self.results)

    @property
    def so_far(self) -> tuple[float, int]:
        """Return and frames of the episode under way."""
        return self._return, self._length

    def score(self) -> Score:
        """Sum up the episodes so far; there must be one."""
        return Score.of(self.results, frames=self._frames, steps=self._weights.step)

    def tensors(self) -> dict[str, Any]:
        """Give the evaluated weights by name, as a checkpoint keeps them."""
        named = to_tensors(self._spaces, self._shape, self._weights.flat)
        return {f"online.{name}": tensor for name, tensor in named.items()}

    def attend(self, connection: Connection, hello: Hello, welcome: Welcome) -> None:
        """Let a client in and play for it."""
        self._connection = connection
        connection.welcome(
            welcome, hello.spaces, self.add, lambda reason: self._on_end(self, reason)
        )

    def end(self, reason: str) -> None:
        """Send the client away."""
        if self._connection is not None:
            self._connection.close(Bye(reason))

    def add(self, frame: Frame) -> None:
        """Answer a frame."""
        assert self._connection is not None
        self.seen_s = time.monotonic()
        if frame.sequence == self._sequence:  # sent again
            self._connection.write(self._reply)
            return
        observation = np.frombuffer(frame.observation, self._dtype)
        reward = sum(frame.rewards)
        if not np.isfinite(observation).all() or not np.isfinite(reward):
            self._connection.close(
                Error(f"frame {frame.sequence} has a value that is not finite (NaN or infinity)")
            )
            return
        seen = self._stacked(observation, bool(frame.flags & START))
        choice, continuous, source = self._policy.act_one(seen.tobytes(), None, _GREEDY)
        discrete, values = self._policy.coding.to_wire(choice, continuous)
        self._sequence = frame.sequence
        self._reply = encode_action(frame.sequence, discrete, values, source)
        self._connection.write(self._reply)
        self._note(frame, reward)

    def _stacked(self, observation: npt.NDArray[Any], start: bool) -> npt.NDArray[Any]:
        """Give what the network sees: the newest frames; before them the first, again and again."""
        if self._stack.maxlen == 1:
            return observation
        if start or not self._stack:
            self._stack.extend([observation] * (self._stack.maxlen or 1))
        else:
            self._stack.append(observation)
        return np.concatenate(self._stack)

    def _begin(self) -> None:
        self._return, self._length = 0.0, 0
        self._earned, self._telling, self._digest = False, _TELLING, 0

    def _note(self, frame: Frame, reward: float) -> None:
        """Keep what the frame earned, as everywhere: that of a start frame belongs to no action."""
        if frame.flags & START:
            self._begin()
        elif reward:
            self._return += reward
            if not self._earned:
                self._earned, self._telling, self._digest = True, _TELLING, 0
        self._length += 1
        if self._telling:
            self._telling -= 1
            self._digest = zlib.crc32(frame.observation, self._digest)
        if frame.flags & ENDED and not self.complete:
            self.results.append(Result(self._return, self._length, self._digest))
            self._on_episode(self)
            if self.complete:
                self.end("the evaluation is complete")
