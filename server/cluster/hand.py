"""A learner's actor as others reach it: the server that steers it, the gateways that feed it."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
import ray
import torch
from ray.exceptions import RayError

from server.cluster.fabric import INTAKE, Actor, Fabric, reason
from server.learn.intake import Shipment
from server.learn.network import Weights
from server.train.actor import Progress
from server.train.courier import Ack, LostError
from server.train.trainer import State

_PATIENCE_S = 10.0  # for a gateway's question; then the learner counts as lost


def learner_name(agent: str, rank: int = 0) -> str:
    """Give the name by which a learner's actor is found."""
    return f"learner-{rank}-{agent}"


class LearnerHand:
    """The actor, for the server that steers it."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor

    def ask(self, method: str, *arguments: Any) -> Future[Any]:
        """Have a method called there; what comes back is as if the learner were here."""
        answer = self._actor.ask(method, *arguments)
        if method == "put_out":
            return _then_aside(answer, _fetched)
        return _then(answer, as_tensors) if method == "get_state" else answer

    def dismiss(self) -> None:
        """End it, if it still lives."""
        self._actor.dismiss()


class GroupHand:
    """The actors of several learners, for the server that steers them: the first leads."""

    def __init__(self, hands: Sequence[LearnerHand]) -> None:
        self._hands = hands

    def ask(self, method: str, *arguments: Any) -> Future[Any]:
        """Have a method called by the first, or by all where each has something of its own."""
        if method not in _OF_ALL:
            return self._hands[0].ask(method, *arguments)
        answers = [hand.ask(method, *arguments) for hand in self._hands]
        return _then(_all_of(answers), _OF_ALL[method])

    def dismiss(self) -> None:
        """End all that still live."""
        for hand in self._hands:
            hand.dismiss()


# What each learner is asked for, and what becomes of the answers.
_OF_ALL: dict[str, Callable[[list[Any]], Any]] = {
    "progress": Progress.together,
    "flush": lambda answers: None,
}


@contextlib.contextmanager
def _or_lost() -> Iterator[None]:
    """Take whatever goes wrong in Ray for a learner that cannot be reached now.

    A store or a disk that is full may have room the next time, like one that does not answer.
    """
    try:
        yield
    except RayError as error:
        raise LostError(reason(error)) from error


class LearnerPost:
    """The actor, for a gateway: every question waits for its answer."""

    def __init__(self, actor: Actor) -> None:
        self._handle = actor.handle

    @classmethod
    @_or_lost()
    def reach(cls, fabric: Fabric, name: str) -> LearnerPost:
        """Find the learner of that name."""
        actor = fabric.find(name)
        if actor is None:
            raise LostError(f"there is no {name}")
        return cls(actor)

    @_or_lost()
    def hear(self, stream: str, head: int) -> Ack:
        """Ask how things are."""
        hearing = self._handle.hear.options(concurrency_group=INTAKE)
        ack: Ack = ray.get(hearing.remote(stream, head), timeout=_PATIENCE_S)
        return ack

    @_or_lost()
    def take(self, stream: str, life: str, shipment: Shipment) -> Ack:
        """Have frames taken: into shared memory here, from there to wherever the learner is."""
        there = ray.put(shipment)
        taking = self._handle.take.options(concurrency_group=INTAKE)
        ack: Ack = ray.get(taking.remote(stream, life, there), timeout=_PATIENCE_S)
        return ack

    @_or_lost()
    def weights(self) -> Weights:
        """Fetch the newest weights that were put out."""
        (out,) = ray.get(self._handle.newest.remote(), timeout=_PATIENCE_S)
        return own(ray.get(out, timeout=_PATIENCE_S))


def _fetched(out: list[Any]) -> Weights:
    return own(ray.get(out[0], timeout=_PATIENCE_S))


def own(weights: Weights) -> Weights:
    """Give weights with memory and a clock of our own: what Ray gives is shared, and far away."""
    return dataclasses.replace(weights, flat=np.array(weights.flat), time_s=time.monotonic())


def as_arrays(state: State) -> State:
    """Give a state whose tensors are arrays, which cross between processes as they are."""
    tensors = {name: tensor.cpu().numpy() for name, tensor in state["tensors"].items()}
    return {**state, "tensors": tensors}


def as_tensors(state: State) -> State:
    """Give a state whose arrays are tensors again."""
    tensors = {name: torch.tensor(array) for name, array in state["tensors"].items()}
    return {**state, "tensors": tensors}


def _all_of(answers: Sequence[Future[Any]]) -> Future[list[Any]]:
    """Give all answers as soon as the last is there, or the first that went wrong at once."""
    gathered: Future[list[Any]] = Future()
    gate = threading.Lock()
    left = len(answers)

    def hear(known: Future[Any]) -> None:
        nonlocal left
        with gate:
            left -= 1
            if gathered.done():
                return
            if (problem := known.exception()) is not None:
                gathered.set_exception(problem)
            elif not left:
                gathered.set_result([answer.result() for answer in answers])

    for answer in answers:
        answer.add_done_callback(hear)
    return gathered


def _then(answer: Future[Any], change: Callable[[Any], Any]) -> Future[Any]:
    """Give what becomes of an answer."""
    changed: Future[Any] = Future()
    answer.add_done_callback(lambda known: _settle(changed, known, change))
    return changed


def _then_aside(answer: Future[Any], change: Callable[[Any], Any]) -> Future[Any]:
    """Give the same where it takes a while: Ray's own thread, which hears all answers, goes on."""
    changed: Future[Any] = Future()

    def hear(known: Future[Any]) -> None:
        settling = (changed, known, change)
        threading.Thread(target=_settle, args=settling, name="fetch", daemon=True).start()

    answer.add_done_callback(hear)
    return changed


def _settle(changed: Future[Any], known: Future[Any], change: Callable[[Any], Any]) -> None:
    try:
        changed.set_result(change(known.result()))
    except Exception as error:  # carried to whoever asked
        changed.set_exception(error)
