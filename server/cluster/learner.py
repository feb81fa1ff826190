"""The actors in which learners live, each with a ring that the gateways fill."""

from __future__ import annotations

import gc
import os
import secrets
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import ray
import torch
from ray.exceptions import RayError

from server.cluster.fabric import reason, this_address
from server.cluster.hand import as_arrays, as_tensors
from server.controls import Controls
from server.learn.group import LONGEST_SILENCE_S, Group, Place, go_to, open_place
from server.learn.intake import Intake, Shipment
from server.learn.learner import Report
from server.learn.replay import Replay
from server.train.actor import Plan, Progress, Told
from server.train.courier import Ack
from server.train.member import Member
from server.train.thread import TrainingThread
from server.train.trainer import State, TrainerState

_LATE = 1.5  # heartbeats after which we put weights out by ourselves: nobody asked in time
_LOOK_S = 0.1  # between looks at whether that is so


class _Ringed:
    """What every learner of an agent has: a ring that the gateways fill."""

    def __init__(self, plan: Plan, state: State, group: Group | None) -> None:
        torch.set_num_threads(1)
        self._life = secrets.token_hex(8)
        self._replay = Replay.in_memory(plan.layout)
        self._intake = Intake(self._replay)
        self._taking_s = 0.0  # of CPU time; one shipment at a time
        clock = group.clock if group else time.monotonic
        self._learner = plan.recipe.make(self._replay, clock)
        self._learner.set_state(as_tensors(state))
        self._out_version = -1  # of the newest weights that were put out

    def _member(self, plan: Plan, group: Group) -> Member:
        """Give the learner as one of several."""
        return Member(self._learner, group, lambda: self._replay.size >= plan.min_replay)

    # --- for the gateways -------------------------------------------------------------------

    def hear(self, stream: str, head: int) -> Ack:
        """Say what is expected next of a stream with that head, and which weights are out."""
        return Ack(self._life, self._intake.resume(stream, head), self._out_version)

    def take(self, stream: str, life: str, shipment: Shipment) -> Ack:
        """Take a shipment that is meant for us; the same one twice is taken once."""
        if life == self._life:  # or our ring is another, which lacks the frames before these
            began_s = time.thread_time()
            self._intake.take(stream, shipment)
            self._taking_s += time.thread_time() - began_s
            self._arrived()
        return Ack(self._life, self._intake.expected(stream), self._out_version)

    def _arrived(self) -> None:
        """Hear that there are new frames."""

    # --- for whoever steers -----------------------------------------------------------------

    def flush(self) -> None:
        """Forget every frame so far."""
        self._replay.flush()

    def _progress(self, state: TrainerState, report: Report) -> Progress:
        intake = self._intake
        return Progress(
            state,
            report,
            self._replay.size,
            intake.frames,
            intake.size_bytes,
            intake.repeated,
            intake.missing,
            self._taking_s,
        )

    def over(self) -> bool:
        """Say whether it was told to end: then nobody is to take it up again."""
        return False  # who follows ends with the first

    def pid(self) -> int:
        """Give the process, for whoever looks at it from outside."""
        return os.getpid()

    def check_valid(self) -> tuple[int, int]:
        """Check every rule of the ring, which must rest; give its head and its size."""
        self._replay.check_valid()
        return self._replay.head, self._replay.size

    def digest(self) -> str:
        """Give a fingerprint of what was learned; the learner must rest."""
        return self._learner.digest()

    def column(self, name: str) -> Any:
        """Give a copy of a column of the ring, up to the head."""
        return np.array(self._replay.column(name)[: self._replay.head])


class LearnerActor(_Ringed):
    """Trains on what it is sent, and puts out weights for whoever plays.

    Of several learners it is the first, and leads the others.
    """

    def __init__(self, plan: Plan, state: State) -> None:
        plan = plan.part(0)
        group = self._opened(plan) if plan.learners > 1 else None
        super().__init__(plan, state, group)
        member = self._member(plan, group) if group else None
        self._thread = TrainingThread(
            name=plan.name,
            learner=member or self._learner,
            replay=self._replay,
            min_replay=plan.min_replay,
            max_replay_ratio=plan.max_replay_ratio,
            controls=Controls(training=False),  # until we are told
            on_death=_die,
            on_progress=member.breathe if member else lambda: None,
            learners=plan.learners,
            longest_rest_s=LONGEST_SILENCE_S if member else None,
        )
        self._started_beat_s = self._beat_s = plan.heartbeat_s
        self._told: Told | None = None
        self._over = False
        self._following = threading.Lock()
        self._putting = threading.Lock()
        self._out: Any = None  # reference to the newest weights that were put out
        self._out_step = -1
        self._out_s = 0.0
        gc.collect()
        gc.freeze()
        self.put_out()  # first: the thread may have to wait for others
        self._thread.start()
        threading.Thread(target=self._keep_putting_out, name="heartbeat", daemon=True).start()

    def _opened(self, plan: Plan) -> Group:
        """Make the group that we lead; the others find us at a port of our own."""
        address = this_address()
        with socket.socket() as door:
            door.bind((address, 0))
            self._place = Place(address, door.getsockname()[1])
            store = open_place(self._place, door.detach())
        return Group(0, plan.learners, address, lambda: store, plan.recipe.device)

    def place(self) -> Place:
        """Say where the other learners find us."""
        return self._place

    def newest(self) -> list[Any]:
        """Give the reference to the weights that are out; in a list, so that it stays one."""
        return [self._out]

    # --- for whoever steers -----------------------------------------------------------------

    def progress(self) -> Progress:
        """Tell how it goes."""
        return self._progress(self._thread.state, self._thread.report)

    def put_out(self) -> list[Any]:
        """Put the newest weights out, once for all who fetch them; give the reference."""
        with self._putting:
            self._put_out()
        return self.newest()

    def _put_out(self) -> None:
        weights = self._thread.weights().result()
        self._out = ray.put(weights)
        self._out_version, self._out_step = weights.version, weights.step
        self._out_s = time.monotonic()

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

    def stop(self, timeout_s: float) -> bool:
        """End training after the sample under way; state and weights can still be asked for."""
        self._over = True
        return self._thread.stop(timeout_s)

    def over(self) -> bool:
        """Say whether it was told to end."""
        return self._over

    def _arrived(self) -> None:
        self._thread.frames_arrived(self._replay.head)

    def _keep_putting_out(self) -> None:
        """Put weights out where nobody asks for it: the server that steers may be away."""
        while True:
            time.sleep(_LOOK_S)
            if not self._is_late():
                continue
            with self._putting:
                if not self._is_late():  # they were being put out just then
                    continue
                try:
                    self._put_out()
                except RayError as error:  # a store that is full may have room in a while
                    self._out_s = time.monotonic()
                    print(f"weights were not put out: {reason(error)}", file=sys.stderr, flush=True)

    def _is_late(self) -> bool:
        """Say whether there are weights that somebody should have asked for by now."""
        late = time.monotonic() - self._out_s > _LATE * self._beat_s
        first = self._out_step == 0 < self._thread.report.steps
        return first or (late and self._thread.report.steps != self._out_step)


class FollowerActor(_Ringed):
    """One more learner of several: it does as the first does, with frames of its own."""

    def __init__(self, plan: Plan, state: State, rank: int, leader: Any) -> None:
        plan = plan.part(rank)
        group = Group(
            rank,
            plan.learners,
            this_address(),
            lambda: go_to(ray.get(leader.place.remote())),
            plan.recipe.device,
        )
        super().__init__(plan, state, group)
        member = self._member(plan, group)
        gc.collect()
        gc.freeze()
        threading.Thread(
            target=_live, args=(member.follow,), name=f"trainer-{plan.name}", daemon=True
        ).start()

    def progress(self) -> Progress:
        """Tell how it goes."""
        return self._progress(TrainerState.ELSEWHERE, self._learner.report)


def _live(life: Callable[[], None]) -> None:
    """Do that as long as it goes well."""
    try:
        life()
    except BaseException as error:  # the rim of the thread: without the others there is no sense
        _die(error)


def _die(error: BaseException) -> None:
    """End the whole process; whoever steers decides what follows."""
    traceback.print_exception(error)
    os._exit(1)
