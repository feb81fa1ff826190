"""Several training threads on one learner: each computes on a copy, all change the same weights.

Forward and backward run on the worker's own replica with no lock held. Under a shared network
they could not: a step of another worker in between changes the weights in place, and backward
refuses to go on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace

from server.controls import Controls
from server.learn.learner import Learner, Report
from server.learn.network import Weights
from server.learn.replay import Replay
from server.train.lock import ReadWriteLock
from server.train.thread import TrainingThread
from server.train.trainer import State, TrainerState


class Worker:
    """One worker's share of the learner: what its thread takes for a learner of its own."""

    def __init__(
        self, learner: Learner, number: int, lock: ReadWriteLock, sampling: threading.Lock
    ) -> None:
        self._learner = learner
        self._replica = learner.replica(number)
        self._lock = lock
        self._sampling = sampling  # the sampler's dice and priorities
        self.sync_s = 0.0
        self.wait_s = 0.0  # for the sampler; the other lock counts for itself

    @property
    def report(self) -> Report:
        """What all workers have done together."""
        return self._learner.report

    def steer(self, controls: Controls) -> None:
        """Put live settings in force; every worker does, with the same outcome."""
        with self._lock.write():
            self._learner.steer(controls)

    def train(self, between_steps: Callable[[], None]) -> bool:
        """Take the steps of one sample."""
        with _Held(self._sampling, self):
            steps = self._learner.gather()
        for number, parts in enumerate(steps):
            if number:
                between_steps()
            with self._lock.read():
                began = time.perf_counter()
                self._replica.follow(self._learner)
                self.sync_s += time.perf_counter() - began
            gradient = self._replica.compute(parts)
            with _Held(self._sampling, self):
                self._learner.learned(gradient)
            with self._lock.write():
                self._learner.apply(gradient)
                if number == len(steps) - 1:
                    self._learner.note_worth(gradient)
        return bool(steps)

    def weights(self) -> Weights:
        """Copy the weights while no worker changes them."""
        with self._lock.read():
            return self._learner.weights()

    def get_state(self) -> State:
        """Copy everything while no worker changes it."""
        with self._lock.read():
            return self._learner.get_state()

    def set_state(self, state: State) -> None:
        """Go on from a kept state."""
        with self._lock.write():
            self._learner.set_state(state)

    def refresh_target(self) -> None:
        """Make the target equal to the network that trains."""
        with self._lock.write():
            self._learner.refresh_target()


class _Held:
    """Holds a mutex, and counts the wait for it."""

    def __init__(self, mutex: threading.Lock, worker: Worker) -> None:
        self._mutex = mutex
        self._worker = worker

    def __enter__(self) -> None:
        began = time.perf_counter()
        self._mutex.acquire()
        self._worker.wait_s += time.perf_counter() - began

    def __exit__(self, *error: object) -> None:
        self._mutex.release()


class TrainingWorkers:
    """The learner's home in several threads of the server."""

    def __init__(
        self,
        *,
        name: str,
        learner: Learner,
        workers: int,
        replay: Replay,
        min_replay: int,
        max_replay_ratio: float,
        controls: Controls,
        on_death: Callable[[BaseException], None],
        niceness: int = 0,
    ) -> None:
        self._learner = learner
        self._lock = ReadWriteLock()
        sampling = threading.Lock()
        self._workers = [Worker(learner, n, self._lock, sampling) for n in range(workers)]
        self._threads = [
            TrainingThread(
                name=f"{name}-{number}",
                learner=worker,
                replay=replay,
                min_replay=min_replay,
                max_replay_ratio=max_replay_ratio,
                controls=controls,
                on_death=on_death,
                niceness=niceness,
            )
            for number, worker in enumerate(self._workers)
        ]

    @property
    def state(self) -> TrainerState:
        """What the workers are doing: dead if one is, training if one is."""
        states = {thread.state for thread in self._threads}
        for telling in (TrainerState.DEAD, TrainerState.TRAINING):
            if telling in states:
                return telling
        return self._threads[0].state

    @property
    def report(self) -> Report:
        """What they have done together, with the seconds of each added up."""
        report, lock = self._learner.report, self._lock
        wait_s = lock.read_wait_s + lock.write_wait_s + sum(w.wait_s for w in self._workers)
        sync_s = report.spent.sync_s + sum(worker.sync_s for worker in self._workers)
        return replace(report, spent=replace(report.spent, sync_s=sync_s, wait_s=wait_s))

    def restore(self, state: State) -> None:
        """Go on from a kept state; only before the start."""
        self._learner.set_state(state)

    def start(self) -> None:
        """Begin to train as soon as there is enough to learn from."""
        for thread in self._threads:
            thread.start()

    def frames_arrived(self, head: int) -> None:
        """Wake the workers that wait for these frames."""
        for thread in self._threads:
            thread.frames_arrived(head)

    def set_controls(self, controls: Controls) -> None:
        """Put new live settings in force."""
        for thread in self._threads:
            thread.set_controls(controls)

    def set_clients(self, connected: bool) -> None:
        """Say whether anybody plays."""
        for thread in self._threads:
            thread.set_clients(connected)

    def set_share(self, share: float) -> None:
        """Let each worker use only that share of its time."""
        for thread in self._threads:
            thread.set_share(share)

    def weights(self) -> Future[Weights]:
        """Ask for a whole copy of the weights."""
        return self._threads[0].weights()

    def learner_state(self) -> Future[State]:
        """Ask for everything that a checkpoint needs."""
        return self._threads[0].learner_state()

    def refresh_target(self) -> Future[None]:
        """Ask that the target network become equal to the one that trains."""
        return self._threads[0].refresh_target()

    def stop(self, timeout_s: float) -> bool:
        """End the threads after their samples; False if one did not end in time."""
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.request_stop()
        ended = [thread.stop(max(0.0, deadline - time.monotonic())) for thread in self._threads]
        return all(ended)
