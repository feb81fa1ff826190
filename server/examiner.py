"""Has agents evaluated on schedule, each by a client of its own, and keeps the best weights."""

from __future__ import annotations

import asyncio
import re
import signal
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from server import perch
from server.agent import Agent
from server.emulators import Exam, Seat
from server.evaluation import SEED, Evaluation
from server.fleet import Emulator, Launch
from server.learn import checkpoint as checkpoints
from server.learn.checkpoint import Checkpoint, CheckpointError
from server.learn.network import Weights
from server.lobby import Refused
from server.net.listener import Connection
from server.net.wire import Hello, Welcome
from server.stats import EventLog, Score

_MOST = 8  # evaluations at once, those that people start included
_NICENESS = 19
_END_S = 3.0  # for an emulator to end by itself
_REST = 9.0  # times as long as an evaluation took: on a full machine it slows the games meanwhile


class ExamError(RuntimeError):
    """An evaluation that was asked for and cannot be; the message says why."""


@dataclass(slots=True)
class _Turn:
    """One evaluation of ours: whose it is, who plays it, and how far it is."""

    agent: Agent
    emulator: Emulator
    began_s: float  # again when the client has said Hello: then it plays
    evaluation: Evaluation | None = None  # once the client has said Hello
    over: bool = False


class Examiner:
    """Starts an evaluation when it is time or asked for, one at a time; hears what it finds."""

    def __init__(
        self,
        *,
        agents: Mapping[str, Agent],
        interval_s: float,
        episodes: int,
        sticky: float,
        stall_s: float,
        device: str,
        find_launch: Callable[[str], Launch | None],
        on_score: Callable[[str, Score, bool, bool], None],
        events: EventLog,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._agents = agents
        self._interval_s = interval_s
        self._episodes = episodes
        self._sticky = sticky
        self._stall_s = stall_s
        self._device = device
        self._find_launch = find_launch
        self._on_score = on_score
        self._events = events
        self._clock = clock
        self._cores = perch.cores()
        self._server, self._token, self._homes = "", "", Path()
        self._due_s: dict[str, float] = {}
        self._examined: dict[str, int] = {}  # step of the weights that were last evaluated
        self._asked: list[str] = []  # agents that somebody wants evaluated now
        self._turn: _Turn | None = None
        self._running: dict[Evaluation, Agent] = {}  # until what they found is told
        self._tasks: set[asyncio.Task[None]] = set()
        self._untold = True  # that an agent cannot be evaluated
        self._stopping = False

    def seat(self, server: str, token: str, homes: Path) -> None:
        """Know where evaluation clients connect, and where they live."""
        self._server, self._token, self._homes = server, token, homes

    def take_up(self, agent: Agent) -> None:
        """Learn what the best of an agent scored so far."""
        self._due_s[agent.name] = self._clock() + self._interval_s
        try:
            best, note = checkpoints.load(agent.directory, checkpoints.BEST)
        except CheckpointError as error:
            best, note = None, f"{error}; the next evaluation is the best"
        if note:
            self._events.add(note, "warning")
        if best is None:
            return
        score = Score(**best.plain["evaluation"])
        then, now = (score.episodes, best.plain["sticky"]), (self._episodes, self._sticky)
        if then != now:  # fewer episodes have more luck, and other rules are another game
            self._events.add(
                f"the best weights of agent {agent.name} were evaluated over {then[0]} episodes "
                f"with sticky actions of {then[1]:g}, now it is {now[0]} with {now[1]:g}: the next "
                "evaluation is the best",
                "warning",
            )
            return
        agent.evaluation_best = score

    # --- clients that come for an evaluation ----------------------------------------------------

    def admit(self, connection: Connection, hello: Hello, welcome: Welcome) -> None:
        """Evaluate for a client, ours or a person's; Refused says why not."""
        agent = self._agents.get(hello.agent)
        if agent is None or agent.weights is None:
            known = ", ".join(self._agents) or "none"
            raise Refused(f"there is no agent {hello.agent!r} to evaluate; there are: {known}")
        if agent.spaces != hello.spaces:
            raise Refused(
                f"agent {hello.agent!r} expects {agent.spaces.describe()}; you announced "
                f"{hello.spaces.describe()}"
            )
        if len(self._running) >= _MOST:
            raise Refused(f"{_MOST} evaluations run already")
        turn = self._turn
        ours = turn if turn and turn.emulator.seat.name == hello.client else None
        self._do(self._begin(agent, agent.weights, connection, hello, welcome, ours))

    async def _begin(
        self,
        agent: Agent,
        weights: Weights,
        connection: Connection,
        hello: Hello,
        welcome: Welcome,
        turn: _Turn | None,
    ) -> None:
        """Copy the weights that play; a network is built in a thread, for frames must not wait."""
        make = partial(
            Evaluation,
            spaces=agent.spaces,
            shape=agent.shape,
            device=self._device,
            weights=weights,
            frames=agent.frames,
            episodes=self._episodes if turn else 0,
            on_episode=lambda evaluation: self._show(agent),
            on_end=lambda evaluation, reason: self._ended(agent, evaluation, turn, reason),
        )
        evaluation = await asyncio.to_thread(make)
        if connection.closing:  # it did not wait
            if turn:
                turn.over = True
            return
        self._running[evaluation] = agent
        if turn:
            turn.evaluation, turn.began_s = evaluation, self._clock()
        else:
            self._events.add(f"{hello.client} at {connection.address} evaluates {agent.name}")
        self._show(agent)
        evaluation.attend(connection, hello, welcome)

    def _show(self, agent: Agent) -> None:
        """Tell how far an evaluation of the agent is, ours before a person's, or that one comes."""
        own = [evaluation for evaluation, whose in self._running.items() if whose is agent]
        shown = max(own, key=lambda evaluation: evaluation.wanted, default=None)
        comes = agent.name in self._asked or self._plays(agent)
        agent.evaluating, agent.evaluating_of = (0, self._episodes) if comes else (None, 0)
        if shown is not None:
            agent.evaluating, agent.evaluating_of = len(shown.results), shown.wanted

    def _plays(self, agent: Agent) -> bool:
        """Say whether our emulator plays for this agent, or is on its way to."""
        turn = self._turn
        return turn is not None and turn.agent is agent and not turn.over

    def _ended(self, agent: Agent, evaluation: Evaluation, turn: _Turn | None, reason: str) -> None:
        if turn:
            turn.over = True
        if self._stopping:
            return
        if evaluation.complete or (turn is None and evaluation.results):
            self._do(self._conclude(agent, evaluation, scheduled=turn is not None))
        else:
            self._forget(agent, evaluation)
            played = len(evaluation.results)
            self._events.add(
                f"an evaluation of agent {agent.name} broke off after {played} episodes: {reason}",
                "warning",
            )

    def _forget(self, agent: Agent, evaluation: Evaluation) -> None:
        self._running.pop(evaluation, None)
        self._show(agent)

    async def _conclude(self, agent: Agent, evaluation: Evaluation, *, scheduled: bool) -> None:
        """Tell what an evaluation found; keep the weights if they are the best so far.

        What people evaluate by hand, with seeds and episodes of their own, is no match for it.
        """
        try:
            score, before = evaluation.score(), agent.evaluation_best
            best = scheduled and (before is None or score.mean > before.mean)
            if best:
                best = await self._keep(agent, evaluation, score)
            agent.evaluation = score
            agent.evaluations += 1
        finally:
            self._forget(agent, evaluation)
        self._on_score(agent.name, score, scheduled, best)
        best_so_far = "; the best so far" if best else ""
        self._events.add(f"agent {agent.name} evaluated: {score.describe()}{best_so_far}")

    async def _keep(self, agent: Agent, evaluation: Evaluation, score: Score) -> bool:
        """Keep the evaluated weights as the best; the disk is waited for in a thread."""
        try:
            await asyncio.to_thread(self._write, agent, evaluation, score)
        except CheckpointError as error:
            self._events.add(str(error), "error")
            return False
        agent.evaluation_best = score
        return True

    def _write(self, agent: Agent, evaluation: Evaluation, score: Score) -> None:
        plain = {
            "agent": agent.name,
            "game": agent.game,
            "spaces": agent.spaces.to_plain(),
            "shape": agent.shape.to_plain(),
            "frames": score.frames,
            "steps": score.steps,
            "evaluation": score.to_plain(),
            "sticky": self._sticky,
            "seed": SEED,
        }
        checkpoint = Checkpoint(evaluation.tensors(), plain)
        checkpoints.save(agent.directory, checkpoint, checkpoints.BEST)

    # --- the schedule ---------------------------------------------------------------------------

    def ask(self) -> str:
        """Evaluate every agent as soon as can be; say so, or raise why none can be."""
        ready = [agent for agent in self._agents.values() if agent.weights is not None]
        able = [agent for agent in ready if self._find_launch(agent.name) is not None]
        if not able:
            raise ExamError(_cannot(ready[0]) if ready else "there is no agent to evaluate yet")
        for agent in able:
            if agent.name not in self._asked and not self._plays(agent):
                self._asked.append(agent.name)
                self._show(agent)
        return f"evaluating {', '.join(agent.name for agent in able)}: {self._episodes} episodes"

    async def tend(self) -> None:
        """Start an evaluation that is due, and look after the one under way."""
        turn, now = self._turn, self._clock()
        if turn is None:
            if self._asked:
                self._start(self._agents[self._asked.pop(0)], now)
                return
            due = [agent for agent in self._agents.values() if self._is_due(agent, now)]
            if due:
                self._start(min(due, key=lambda agent: self._due_s[agent.name]), now)
            return
        problem = self._problem(turn, now)
        if problem:
            self._events.add(f"no evaluation of agent {turn.agent.name}: {problem}", "warning")
        if problem or turn.over:
            self._turn = None
            rest_s = max(self._interval_s, _REST * (now - turn.began_s))
            self._due_s[turn.agent.name] = now + rest_s
            self._show(turn.agent)
            if turn.evaluation is None or problem:
                turn.emulator.signal(signal.SIGKILL)
            await asyncio.to_thread(turn.emulator.end, _END_S)

    def _is_due(self, agent: Agent, now: float) -> bool:
        """Say whether there is something new to evaluate, and time to do it."""
        weights = agent.weights
        return (
            self._interval_s > 0
            and self._due_s[agent.name] <= now
            and weights is not None
            and weights.step > self._examined.get(agent.name, 0)
        )

    def _start(self, agent: Agent, now: float) -> None:
        self._due_s[agent.name] = now + self._interval_s
        launch = self._find_launch(agent.name)
        if launch is None:
            self._show(agent)
            if self._untold:
                self._untold = False
                self._events.add(_cannot(agent))
            return
        assert agent.weights is not None
        self._examined[agent.name] = agent.weights.step
        name = re.sub(r"[^A-Za-z0-9._-]", "-", f"eval-{launch.emulator}-{launch.game}")
        sticky = self._sticky if launch.emulator == "ale" else 0.0
        seat = Seat(
            name,
            self._server,
            SEED,
            self._homes / name,
            self._token,
            exam=Exam(agent.name, self._episodes, sticky),
        )
        # Behind those who train: an agent that never misses may play for half an hour.
        quiet = replace(launch, count=1, show=False, throttle=False, niceness=_NICENESS)
        emulator = Emulator(quiet, seat, self._cores)
        self._turn = _Turn(agent, emulator, now)
        self._show(agent)
        emulator.start(now)

    def _problem(self, turn: _Turn, now: float) -> str:
        """Say what is wrong with the evaluation under way; '' if nothing is."""
        if turn.over:
            return ""
        # While it is connected, its end is heard from its connection.
        if turn.evaluation is None and not turn.emulator.running:
            return turn.emulator.last_words()
        heard_s = turn.evaluation.seen_s if turn.evaluation else turn.began_s
        if self._stall_s and now - heard_s > self._stall_s:
            return f"its client sent no frame for {self._stall_s:g} s"
        return ""

    # --- tasks and the end ----------------------------------------------------------------------

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(self._guarded(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:  # the rim of one evaluation: training goes on without it
            self._events.add(f"an evaluation failed: {type(error).__name__}: {error}", "error")

    def stop(self) -> None:
        """Evaluate no more: nobody is told of what breaks off now."""
        self._stopping = True
        if self._turn is not None:
            self._turn.emulator.signal(signal.SIGTERM)

    async def finish(self) -> None:
        """Wait for what is being kept, and for the emulator."""
        await asyncio.gather(*self._tasks)
        if self._turn is not None:
            await asyncio.to_thread(self._turn.emulator.end, _END_S)


def _cannot(agent: Agent) -> str:
    """Say why an agent is not evaluated, and how it can be."""
    return (
        f"agent {agent.name} is not evaluated: none of its clients was started by this server; "
        "start one with --evaluate, or use `python main.py eval`"
    )
