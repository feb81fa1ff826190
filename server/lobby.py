"""Lets clients in: checks their Hello, finds their agent, and keeps their sessions."""

from __future__ import annotations

import functools
import secrets
from collections.abc import Callable, Mapping
from typing import Any

from server.agent import Agent
from server.net.listener import Connection
from server.net.wire import MAX_INFO, Error, Hello, Source, Welcome
from server.session import Session
from server.stats import ClientView, EventLog, Rate

_RATE_WINDOW_S = 5.0
_FRAME_BYTES = 4096  # room for what a frame holds beside its observation


class Refused(Exception):  # noqa: N818 - it is an answer, not a fault
    """A client that cannot play here; the message is for the person who started it."""


class Guest:
    """A session with its agent and its own frame rate."""

    def __init__(self, session: Session, agent: Agent) -> None:
        self.session = session
        self.agent = agent
        self.rate = Rate(_RATE_WINDOW_S)


class Lobby:
    """The desk of the listener: every client's way in and out."""

    def __init__(
        self,
        *,
        find_agent: Callable[[Hello], Agent],
        max_clients: int,
        max_message_bytes: int,
        heartbeat_s: float,
        resume_window_s: float,
        client_settings: Mapping[str, Any],
        clock: Callable[[], float],
        events: EventLog,
        examine: Callable[[Connection, Hello, Welcome], None],
    ) -> None:
        self._find_agent = find_agent
        self._max_clients = max_clients
        self._max_message_bytes = max_message_bytes
        self._heartbeat_s = heartbeat_s
        self._resume_window_s = resume_window_s
        self._client_settings = dict(client_settings)
        self._clock = clock
        self._events = events
        self._examine = examine  # takes those who come for an evaluation, or refuses them
        self._here: dict[str, Guest] = {}
        self._away: dict[str, Guest] = {}  # who may come back, longest away first

    # --- the listener's desk ----------------------------------------------------------------

    def greet(self, connection: Connection, hello: Hello) -> None:
        """Welcome a client, or turn it away with a reason that its owner can act on."""
        try:
            if hello.evaluate:
                self._examine(connection, hello, self._welcome(secrets.token_hex(8)))
                return
            guest, resumed = self._admit(hello)
        except Refused as refusal:
            self.refused(connection, hello, str(refusal))
            connection.reject(str(refusal))
            return
        session = guest.session
        session.attach(
            connection.address,
            connection.write,
            lambda why: connection.close(Error(why)),
            connection.read,
            connection.outlet,
        )
        session.settings = None  # the Welcome tells them all
        connection.welcome(
            self._welcome(session.id, resumed=resumed),
            hello.spaces,
            functools.partial(guest.agent.batcher.add, session),
            functools.partial(self._lost, guest, connection),
            session.show,
            guest.agent.batcher.taker(session),
        )
        self._count_clients(guest.agent)
        word = "came back to" if resumed else "joined"
        self._events.add(f"{hello.client} at {connection.address} {word} agent {hello.agent}")

    def refused(self, connection: Connection, hello: Hello, reason: str) -> None:
        """Tell of a client that was turned away."""
        self._events.add(f"{hello.client} at {connection.address} refused: {reason}", "warning")

    def fault(self, connection: Connection, error: Exception) -> None:
        """Report an error of ours that one connection met."""
        self._events.add(
            f"error while serving {connection.address}: {type(error).__name__}: {error}", "error"
        )

    # --- for the app ------------------------------------------------------------------------

    @property
    def connected(self) -> int:
        """Number of clients connected now."""
        return len(self._here)

    @property
    def sessions(self) -> list[Session]:
        """Everyone who is here or may come back."""
        return [guest.session for guest in self._everyone()]

    def set_client_settings(self, changed: Mapping[str, Any]) -> None:
        """Push changed settings to every client: with its next Action, or with its Welcome.

        A ValueError says which are more than a message holds.
        """
        merged = {**self._client_settings, **changed}
        if len(merged) > MAX_INFO:
            raise ValueError(
                f"{', '.join(changed)}: clients are told {len(self._client_settings)} settings "
                f"already, and a message holds {MAX_INFO}"
            )
        self._client_settings = merged
        for guest in self._everyone():
            session = guest.session
            session.settings = {**(session.settings or {}), **changed}

    def forget_lost(self) -> None:
        """Give up on clients that did not come back in time."""
        now = self._clock()
        for name, guest in list(self._away.items()):
            lost_s = guest.session.lost_s
            assert lost_s is not None
            if now - lost_s < self._resume_window_s:
                return
            del self._away[name]

    def views(self, now_s: float) -> tuple[ClientView, ...]:
        """Give what people see of the connected clients."""
        return tuple(_view(guest, now_s) for guest in self._here.values())

    def silences(self, now_s: float) -> dict[str, float]:
        """Give the seconds since each client's last frame, by the name it gave itself."""
        heard: dict[str, float] = {}
        for guest in self._everyone():
            session = guest.session
            if session.frames:
                name = session.hello.client
                heard[name] = max(session.seen_s, heard.get(name, 0.0))
        return {name: now_s - seen_s for name, seen_s in heard.items()}

    # --- in and out -------------------------------------------------------------------------

    def _welcome(self, session: str, *, resumed: bool = False) -> Welcome:
        return Welcome(
            session, self._heartbeat_s, self._max_message_bytes, self._client_settings, resumed
        )

    def _admit(self, hello: Hello) -> tuple[Guest, bool]:
        guest = self._away.get(hello.resume)
        if guest is not None and _same(guest, hello):
            del self._away[hello.resume]
            self._here[hello.resume] = guest
            return guest, True
        if self.connected >= self._max_clients:
            raise Refused(f"the server is full: {self._max_clients} clients (--max-clients)")
        size = hello.spaces.observation.size_bytes
        if size + _FRAME_BYTES > self._max_message_bytes:
            raise Refused(
                f"an observation of {size:,} bytes does not fit into a message of "
                f"{self._max_message_bytes:,} (--max-message-bytes)"
            )
        agent = self._find_agent(hello)
        session = Session(session_id=secrets.token_hex(8), hello=hello)
        guest = self._here[session.id] = Guest(session, agent)
        return guest, False

    def _lost(self, guest: Guest, connection: Connection, reason: str) -> None:
        session = guest.session
        session.detach(self._clock())
        del self._here[session.id]
        self._count_clients(guest.agent)
        self._events.add(f"{session.hello.client} at {connection.address} left: {reason}")
        if self._resume_window_s:
            self._away[session.id] = guest
            if len(self._away) > self._max_clients:  # who comes and goes must not fill the memory
                del self._away[next(iter(self._away))]

    def _count_clients(self, agent: Agent) -> None:
        """Tell an agent how many play."""
        agent.set_players(sum(guest.agent is agent for guest in self._here.values()))

    def _everyone(self) -> list[Guest]:
        """Give those who are here and those who may come back."""
        return [*self._here.values(), *self._away.values()]


def _same(guest: Guest, hello: Hello) -> bool:
    """Say whether a returning client is still playing the same thing."""
    before = guest.session.hello
    return (before.game, before.agent, before.spaces) == (hello.game, hello.agent, hello.spaces)


def _view(guest: Guest, now_s: float) -> ClientView:
    session = guest.session
    frames = max(1, session.frames)
    return ClientView(
        name=session.hello.client,
        agent=session.hello.agent,
        game=session.hello.game,
        address=session.address,
        frames=session.frames,
        frames_per_s=guest.rate.update(session.frames),
        episodes=session.episodes,
        episode_return=session.episode_return,
        last_return=session.last_return,
        policy_share=session.sources[Source.POLICY] / frames,
        expert_share=session.sources[Source.EXPERT] / frames,
        seen_s=now_s - session.seen_s if session.frames else 0.0,
        latency_ms=session.latency_s * 1e3 if session.frames else None,
        info=session.info,
    )
