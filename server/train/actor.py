"""The learner in an actor on some node of a cluster, as the process that steers it sees it.

The frames come to it from the gateways (``server.train.courier``); here it is started, asked, told
and, if it falls, started again from the newest checkpoint. What was asked of one that fell is asked
again of the next.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, Protocol

from server.controls import Controls
from server.learn.learner import Learner, Report
from server.learn.network import Weights
from server.learn.recipe import Recipe
from server.learn.replay import MIN_CAPACITY, Layout, Replay
from server.train.process import Falls
from server.train.trainer import LearnerError, State, TrainerState, done, fulfil

_MOST_FALLS = 3
_FALLS_WINDOW_S = 600.0


@dataclass(frozen=True, slots=True)
class Progress:
    """What a learner in an actor tells of itself."""

    state: TrainerState
    report: Report
    replay_size: int
    frames: int  # that it took in
    size_bytes: int  # of those
    repeated: int  # shipments that came twice, and were taken once
    missing: int  # frames that no gateway could ship any more
    taking_s: float = 0.0  # CPU time of taking shipments in
    parts: tuple[Progress, ...] = ()  # of each of several learners; the above is of all together

    @classmethod
    def together(cls, parts: list[Progress]) -> Progress:
        """Give the progress of several: the first one leads, what each took in is added up."""
        return replace(
            parts[0],
            replay_size=sum(part.replay_size for part in parts),
            frames=sum(part.frames for part in parts),
            size_bytes=sum(part.size_bytes for part in parts),
            repeated=sum(part.repeated for part in parts),
            missing=sum(part.missing for part in parts),
            taking_s=sum(part.taking_s for part in parts),
            parts=tuple(parts),
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything an actor needs to be this learner, but what it has learned."""

    name: str
    recipe: Recipe
    layout: Layout
    min_replay: int
    max_replay_ratio: float
    heartbeat_s: float
    learners: int = 1

    def part(self, rank: int) -> Plan:
        """Give the plan of one of several learners: its share of the frames, its own dice."""
        capacity = max(MIN_CAPACITY, self.layout.capacity // self.learners)
        return replace(
            self,
            recipe=self.recipe.for_rank(rank),
            layout=replace(self.layout, capacity=capacity),
            min_replay=-(-self.min_replay // self.learners),
        )


@dataclass(frozen=True, slots=True)
class Told:
    """What a learner is to go by; numbered, as calls to an actor may overtake each other."""

    number: int
    controls: Controls
    clients: bool = False  # whether anybody plays


class Hand(Protocol):
    """An actor that learns: whoever asks it does not wait."""

    def ask(self, method: str, *arguments: Any) -> Future[Any]:
        """Have a method called there."""

    def dismiss(self) -> None:
        """End it, if it still lives."""


class Ring:
    """The learner's ring, as far as it is known here."""

    def __init__(self, layout: Layout, flush: Callable[[], None]) -> None:
        self.layout = layout
        self.size = 0
        self._flush = flush

    def flush(self) -> None:
        """Forget every frame so far."""
        self._flush()
        self.size = 0


class TrainingActor:
    """The learner's home in an actor."""

    def __init__(
        self,
        *,
        plan: Plan,
        replay: Replay,
        controls: Controls,
        find: Callable[[Plan], Hand | None],
        hire: Callable[[Plan, State], Hand],
        newest_state: Callable[[], State | None],
        flush: Callable[[], None],
        on_death: Callable[[BaseException], None],
        on_fall: Callable[[str], None],
    ) -> None:
        self._plan = plan
        self._find = find  # one that lives already
        self._hire = hire
        self._newest_state = newest_state  # of the checkpoint on disk
        self._on_death = on_death
        self._on_fall = on_fall
        # Until the actor has its own, which may have a device that is not here.
        self._learner: Learner | None = plan.recipe.on_processor().make(replay)
        self._first_state: State = self._learner.get_state()
        self._first_report = self._learner.report
        self._hand: Hand | None = None  # none while the next one is being hired
        self._hiring: Future[Hand] | None = None
        self._told = Told(time.time_ns(), controls)  # later than any that came from elsewhere
        self._look: Future[Progress] | None = None
        self._progress: Progress | None = None
        self._again: list[Callable[[], None]] = []  # asked of one that fell
        self._gate = threading.Lock()  # over that list: answers come in threads of their own
        self._falls = Falls(_FALLS_WINDOW_S)
        self._stopping = self._dead = False
        self.ring = Ring(plan.layout, flush)

    # --- for the event loop -----------------------------------------------------------------

    @property
    def state(self) -> TrainerState:
        """What the actor is doing."""
        if self._dead:
            return TrainerState.DEAD
        return self._progress.state if self._progress else TrainerState.STARTING

    @property
    def report(self) -> Report:
        """What the learner has done so far."""
        if self._learner is not None:
            return self._learner.report
        return self._progress.report if self._progress else self._first_report

    @property
    def progress(self) -> Progress | None:
        """What it last told of itself."""
        return self._progress

    def restore(self, state: State) -> None:
        """Go on from a kept state; only before the start."""
        assert self._learner is not None, "the actor has started"
        self._learner.set_state(state)
        self._first_state = self._learner.get_state()

    def start(self) -> None:
        """Take up the actor of an earlier server, or start one."""
        assert self._learner is not None
        self._first_report = self._learner.report
        self._hand = self._find(self._plan) or self._hire(self._plan, self._first_state)
        self._learner = None
        self._hand.ask("follow", self._told)

    def frames_arrived(self, head: int) -> None:
        """Do nothing: gateways ship frames, this process has none."""

    def set_controls(self, controls: Controls) -> None:
        """Put new live settings in force."""
        self._tell(controls=controls)

    def set_clients(self, connected: bool) -> None:
        """Say whether anybody plays, at whichever gateway."""
        if self._told.clients is not connected:
            self._tell(clients=connected)

    def set_share(self, share: float) -> None:
        """Do nothing: on a cluster nothing is held."""

    def weights(self) -> Future[Weights]:
        """Have the weights put out for all gateways, and give them."""
        return done(self._learner.weights()) if self._learner else self._ask("put_out")

    def learner_state(self) -> Future[State]:
        """Ask for everything that a checkpoint needs."""
        return done(self._learner.get_state()) if self._learner else self._ask("get_state")

    def refresh_target(self) -> Future[None]:
        """Ask that the target network become equal to the one that trains."""
        if self._learner is not None:
            self._learner.refresh_target()
            return done(None)
        return self._ask("refresh_target")

    def stop(self, timeout_s: float) -> bool:
        """End training after the sample under way; False if it did not end in time."""
        with self._gate:  # from now on nobody is asked again
            self._stopping = True
        if self._learner is not None:
            return True
        with contextlib.suppress(Exception):  # it fell just now: there is nothing to save
            if self._hiring is not None:
                self._hand = self._hiring.result(timeout_s)
            assert self._hand is not None
            ended: bool = self._hand.ask("stop", timeout_s).result(timeout_s + 1.0)
            return ended
        return False

    # --- the actor --------------------------------------------------------------------------

    def tend(self) -> None:
        """Hear how it goes, and start another one if it fell; call it often."""
        if self._learner is not None or self._dead or self._stopping:
            return
        if self._hiring is not None:
            if self._hiring.done():
                self._begin_with(self._hiring)
        elif self._look is not None:
            if not self._look.done():
                return
            problem = self._look.exception()
            if problem is not None:
                self._fell(problem)
            else:
                self._progress = self._look.result()
                self.ring.size = self._progress.replay_size
                self._ask_again()
        if self._hand is not None and not self._dead:
            self._look = self._hand.ask("progress")

    def _begin_with(self, hired: Future[Hand]) -> None:
        """Go on with the one that was hired; one that could not be is as good as fallen."""
        self._hiring = None
        if (problem := hired.exception()) is not None:
            self._fell(problem)
            return
        self._hand = hired.result()
        self._hand.ask("follow", self._told)

    def _fell(self, problem: BaseException) -> None:
        """Have another one started; too many that fall in a short time are the end."""
        if self._hand is not None:
            self._hand.dismiss()
        self._hand = self._look = None
        count, minutes = self._falls.count(time.monotonic()), _FALLS_WINDOW_S / 60
        fall = f"the learner of agent {self._plan.name} fell: {_reason(problem)}"
        if count > _MOST_FALLS:
            with self._gate:
                self._dead = True
            self._ask_again()  # in vain: whoever waits must hear of it
            self._on_death(LearnerError(f"{fall}; {count} times in {minutes:.0f} minutes"))
            return
        steps, self._progress = self.report.steps, None

        def hire() -> Hand:
            """Start it from the newest checkpoint: its disk and the cluster are waited for."""
            try:
                state = self._newest_state() or self._first_state
            except Exception:
                self._on_fall(fall)  # that there is nothing to go on from is told as its next fall
                raise
            self._on_fall(
                f"{fall}; started again from step {state['counters']['steps']:,} of {steps:,}, "
                f"{count} of at most {_MOST_FALLS} times in {minutes:.0f} minutes"
            )
            return self._hire(self._plan, state)

        self._hiring = Future()
        threading.Thread(target=fulfil, args=(self._hiring, hire), daemon=True).start()

    def _ask_again(self) -> None:
        """Ask what the one before could not answer any more."""
        with self._gate:
            again, self._again = self._again, []
        for ask in again:
            ask()

    def _tell(self, **changes: Any) -> None:
        self._told = replace(self._told, number=self._told.number + 1, **changes)
        if self._hand is not None:
            self._hand.ask("follow", self._told)

    def _ask(self, method: str) -> Future[Any]:
        """Ask, and ask the next one if this one falls before it answers."""
        future: Future[Any] = Future()

        def ask() -> None:
            hand = self._hand
            answer = hand.ask(method) if hand else _failed(LearnerError("it is not there"))
            answer.add_done_callback(hear)

        def hear(answer: Future[Any]) -> None:
            problem = answer.exception()
            with self._gate:
                gone = self._stopping or self._dead or future.cancelled()
                if problem is not None and not gone:
                    self._again.append(ask)
                    return
            if future.set_running_or_notify_cancel():  # or whoever asked has given up
                if problem is None:
                    future.set_result(answer.result())
                else:
                    future.set_exception(LearnerError(_reason(problem)))

        ask()
        return future


def _failed(problem: BaseException) -> Future[Any]:
    """Give the answer of one who cannot answer."""
    future: Future[Any] = Future()
    future.set_exception(problem)
    return future


def _reason(problem: BaseException) -> str:
    """Give the last line of what went wrong: the rest is for whoever reads the log."""
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    return lines[-1] if lines else type(problem).__name__
