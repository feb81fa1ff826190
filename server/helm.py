"""Does what people ask for, from whichever side they ask: keys, or the control socket."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping

from server.agent import Agent
from server.controls import Command, Verb
from server.dials import DialError
from server.examiner import ExamError
from server.stats import EventLog
from server.steering import VERBS, Steering
from server.train.trainer import LearnerError


class HelmError(RuntimeError):
    """Something that was asked for and went wrong; the message says what."""


ERRORS = (DialError, ExamError, HelmError)


class Helm:
    """Changes live settings through the steering, and has the agents do the rest."""

    def __init__(
        self,
        *,
        agents: Mapping[str, Agent],
        steering: Steering,
        events: EventLog,
        save: Callable[[], Awaitable[bool]],
        examine: Callable[[], str],
        stop: Callable[[str], None],
    ) -> None:
        self._agents = agents
        self._steering = steering
        self._events = events
        self._save = save
        self._examine = examine
        self._stop = stop
        # One row per verb that is no change of a live setting.
        self._deeds: dict[Verb, Callable[[str], Awaitable[str]]] = {
            Verb.STOP: self._end,
            Verb.SAVE: self._write,
            Verb.SYNC: self._sync,
            Verb.TARGET: self._target,
            Verb.FLUSH: self._flush,
            Verb.EVAL: self._evaluate,
        }

    async def obey(self, command: Command, who: str) -> str:
        """Do it and say what came of it; what stands against it is raised, and an event too."""
        try:
            if command.verb in VERBS:
                return self._steering.obey(command, who)
            return await self._deeds[command.verb](who)
        except ERRORS as error:
            self._events.add(str(error), "warning")
            raise

    async def obey_key(self, command: Command) -> None:
        """Do what a key asked for; the events tell the rest."""
        with contextlib.suppress(*ERRORS):
            await self.obey(command, "keys")

    async def sync(self) -> list[str]:
        """Copy the trained weights of every agent into play; give whose learner keeps us waiting.

        All at once: none waits for the learner of another.
        """
        agents = list(self._agents.values())
        fresh = await asyncio.gather(*(agent.refresh_policy() for agent in agents))
        told = dict(zip((agent.name for agent in agents), fresh, strict=True))
        if unfit := [name for name, fit in told.items() if fit is False]:
            raise HelmError(
                f"weights of agent {', '.join(unfit)} are not finite: playing on with the old"
            )
        return [name for name, fit in told.items() if fit is None]

    async def _end(self, who: str) -> str:
        self._stop("asked by a key" if who == "keys" else f"asked by {who}")
        return "stopping"

    async def _write(self, who: str) -> str:
        if not await self._save():
            raise HelmError("the save failed; the events say why")
        return "saved"

    async def _sync(self, who: str) -> str:
        if late := await self.sync():
            raise HelmError(
                f"the learner of agent {', '.join(late)} is busy: its weights will be in play once "
                "it has given them"
            )
        return self._told("weights in play are new")

    async def _target(self, who: str) -> str:
        try:
            await asyncio.gather(*(agent.refresh_target() for agent in self._agents.values()))
        except LearnerError as error:
            raise HelmError(f"a target network is as it was: {error}") from error
        return self._told("target network is new")

    async def _flush(self, who: str) -> str:
        frames = sum(agent.memory.size for agent in self._agents.values())
        for agent in self._agents.values():
            agent.memory.flush()
        text = f"replay emptied: {frames:,} frames forgotten"
        self._steering.note("replay", frames, 0, who, text)
        return text

    async def _evaluate(self, who: str) -> str:
        return self._told(self._examine())

    def _told(self, text: str) -> str:
        self._events.add(text)
        return text
