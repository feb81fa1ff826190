"""The actor in which a learner lives, with the ring that the gateways fill."""

from __future__ import annotations

import gc
import os
import secrets
import threading
import time
import traceback
from typing import Any

import numpy as np
import ray
import torch

from server.cluster.hand import as_arrays, as_tensors
from server.controls import Controls
from server.learn.intake import Intake, Shipment
from server.learn.replay import Replay
from server.train.actor import Plan, Progress, Told
from server.train.courier import Ack
from server.train.thread import TrainingThread
from server.train.trainer import State

_LATE = 1.5  # heartbeats after which we put weights out by ourselves: nobody asked in time
_LOOK_S = 0.1  # between looks at whether that is so


class LearnerActor:
    """Trains on what it is sent, and puts out weights for whoever plays."""

    def __init__(self, plan: Plan, state: State) -> None:
        torch.set_num_threads(1)
        self._life = secrets.token_hex(8)
        self._replay = Replay.in_memory(plan.layout)
        self._intake = Intake(self._replay)
        learner = plan.recipe.make(self._replay)
        learner.set_state(as_tensors(state))
        self._thread = TrainingThread(
            name=plan.name,
            learner=learner,
            replay=self._replay,
            min_replay=plan.min_replay,
            max_replay_ratio=plan.max_replay_ratio,
            controls=Controls(training=False),  # until we are told
            on_death=_die,
        )
        self._started_beat_s = self._beat_s = plan.heartbeat_s
        self._told: Told | None = None
        self._following = threading.Lock()
        self._putting = threading.Lock()
        self._out: Any = None  # reference to the newest weights that were put out
        self._out_version = self._out_step = -1
        self._out_s = 0.0
        gc.collect()
        gc.freeze()
        self._thread.start()
        self.put_out()
        threading.Thread(target=self._keep_putting_out, name="heartbeat", daemon=True).start()

    # --- for the gateways -------------------------------------------------------------------

    def hear(self, stream: str) -> Ack:
        """Say what is expected next of a stream, and which weights are out."""
        return Ack(self._life, self._intake.expected(stream), self._out_version)

    def take(self, stream: str, life: str, shipment: Shipment) -> Ack:
        """Take a shipment that is meant for us; the same one twice is taken once."""
        if life == self._life:  # or our ring is another, which lacks the frames before these
            self._intake.take(stream, shipment)
            self._thread.frames_arrived(self._replay.head)
        return self.hear(stream)

    def newest(self) -> list[Any]:
        """Give the reference to the weights that are out; in a list, so that it stays one."""
        return [self._out]

    # --- for whoever steers -----------------------------------------------------------------

    def progress(self) -> Progress:
        """Tell how it goes."""
        intake = self._intake
        return Progress(
            self._thread.state,
            self._thread.report,
            self._replay.size,
            intake.frames,
            intake.size_bytes,
            intake.repeated,
            intake.missing,
        )

    def put_out(self) -> list[Any]:
        """Put the newest weights out, once for all who fetch them; give the reference."""
        with self._putting:
            weights = self._thread.weights().result()
            self._out = ray.put(weights)
            self._out_version, self._out_step = weights.version, weights.step
            self._out_s = time.monotonic()
        return self.newest()

    def get_state(self) -> State:
        """Give everything that a checkpoint needs, as arrays."""
        return as_arrays(self._thread.learner_state().result())

    def refresh_target(self) -> None:
        """Make the target network equal to the one that trains."""
        self._thread.refresh_target().result()

    def follow(self, told: Told) -> None:
        """Go by what was told, unless something newer came first."""
        with self._following:
            if self._told is not None and told.number <= self._told.number:
                return
            self._told = told
            self._beat_s = told.controls.heartbeat_s or self._started_beat_s
            self._thread.set_controls(told.controls)
            self._thread.set_clients(told.clients)
            self._thread.set_pause(told.pause_s)

    def flush(self) -> None:
        """Forget every frame so far."""
        self._replay.flush()

    def stop(self, timeout_s: float) -> bool:
        """End training after the sample under way; state and weights can still be asked for."""
        return self._thread.stop(timeout_s)

    def pid(self) -> int:
        """Give the process, for whoever looks at it from outside."""
        return os.getpid()

    def check_valid(self) -> tuple[int, int]:
        """Check every rule of the ring, which must rest; give its head and its size."""
        self._replay.check_valid()
        return self._replay.head, self._replay.size

    def column(self, name: str) -> Any:
        """Give a copy of a column of the ring, up to the head."""
        return np.array(self._replay.column(name)[: self._replay.head])

    def _keep_putting_out(self) -> None:
        """Put weights out where nobody asks for it: the server that steers may be away."""
        while True:
            time.sleep(_LOOK_S)
            late = time.monotonic() - self._out_s > _LATE * self._beat_s
            first = self._out_step == 0 < self._thread.report.steps
            if first or (late and self._thread.report.steps != self._out_step):
                self.put_out()


def _die(error: BaseException) -> None:
    """End the whole process; whoever steers decides what follows."""
    traceback.print_exception(error)
    os._exit(1)
