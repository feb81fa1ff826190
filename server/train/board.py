"""What a learner in another process shows: its progress, its weights, its whole state."""

from __future__ import annotations

import json
import math
import struct
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch

from server.learn.learner import Learner, Report, Spent
from server.learn.network import Weights
from server.train.mailbox import Mailbox, mapped, shared_file
from server.train.trainer import State, TrainerState

_HEADER_BYTES = 64  # the head that is waited for, then the sizes of the three mailboxes
_PROGRESS_BYTES = 4096
_SPARE_BYTES = 4096  # for counters that grow longer
_WEIGHTS = struct.Struct("<qqd")  # version, step, time_s; then every parameter


class Board:
    """Three mailboxes in one block of shared memory, and one number."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        memory = mapped(descriptor)
        self._wake_at: Any = memory[:8].cast("d")
        sizes = memory[8:32].cast("q").tolist()
        ends = np.cumsum([_HEADER_BYTES, *sizes]).tolist()
        self._progress, self._weights, self._state = (
            Mailbox(memory[end - size : end]) for end, size in zip(ends[1:], sizes, strict=True)
        )
        self._fence = threading.Lock()
        self._fence.acquire()

    @classmethod
    def make(cls, directory: Path, learner: Learner) -> Board:
        """Make a board on which everything of this learner fits, and put it there."""
        weights = learner.weights()
        lengths = (
            _PROGRESS_BYTES,
            _WEIGHTS.size + weights.flat.nbytes,
            len(_packed(learner.get_state())) + _SPARE_BYTES,
        )
        sizes = [Mailbox.size_bytes(length) for length in lengths]
        descriptor = shared_file(directory, _HEADER_BYTES + sum(sizes))
        mapped(descriptor)[8:32] = struct.pack("=3q", *sizes)
        board = cls(descriptor)
        board.post(learner)
        board.post_progress(TrainerState.STARTING, learner.report, math.inf)
        return board

    # --- the process that learns ------------------------------------------------------------

    def post(self, learner: Learner) -> None:
        """Show the weights and the whole state."""
        weights, state = learner.weights(), learner.get_state()
        header = _WEIGHTS.pack(weights.version, weights.step, weights.time_s)
        self._state.post(_packed(state))
        self._weights.post(header, weights.flat.tobytes())

    def post_progress(self, state: TrainerState, report: Report, wake_at: float) -> None:
        """Show what the trainer does, and from which head of the replay on it wants to be woken."""
        progress = {"state": state.name, "report": asdict(report)}
        self._progress.post(json.dumps(progress).encode())
        self._wake_at[0] = wake_at
        self._barrier()

    # --- the process that serves ------------------------------------------------------------

    @property
    def wake_at(self) -> float:
        """Head of the replay that the learner sleeps for; infinity while it does not."""
        self._barrier()
        head: float = self._wake_at[0]
        return head

    def read_progress(self) -> tuple[TrainerState, Report]:
        """Give what the trainer does, and what it has done so far."""
        progress = json.loads(self._progress.read())
        report = progress["report"]
        report["spent"] = Spent(**report["spent"])
        return TrainerState[progress["state"]], Report(**report)

    def read_weights(self) -> Weights:
        """Give the newest weights."""
        value = self._weights.read()
        version, step, time_s = _WEIGHTS.unpack_from(value)
        flat = np.frombuffer(value, np.float32, offset=_WEIGHTS.size).copy()
        return Weights(version, step, time_s, flat)

    def read_state(self) -> State:
        """Give the newest whole state."""
        value = self._state.read()
        tensors_at = 8 + int.from_bytes(value[:8], "little")
        counters = json.loads(value[8:tensors_at])
        return {"tensors": safetensors.torch.load(value[tensors_at:]), "counters": counters}

    def _barrier(self) -> None:
        """Let what we wrote be seen before we look at what the other side wrote.

        A release and then an acquire order the two on every machine.
        """
        self._fence.release()
        self._fence.acquire()


def _packed(state: State) -> bytes:
    counters = json.dumps(state["counters"]).encode()
    tensors = {name: tensor.cpu() for name, tensor in state["tensors"].items()}
    return len(counters).to_bytes(8, "little") + counters + safetensors.torch.save(tensors)
