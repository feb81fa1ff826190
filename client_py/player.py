"""The lockstep loop: shows a game to the server, frame by frame, and does what it answers."""

# ruff: noqa: N818 - these say what happened, which need not be an error

from __future__ import annotations

import ssl
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

from client_py.link import (
    Distrusted,
    Link,
    LinkError,
    LinkTimeout,
    Rejected,
    ServerClosed,
    Unreachable,
)
from client_py.pace import Pace
from server.net.wire import (
    ENDED,
    START,
    TERMINAL,
    TRUNCATED,
    Action,
    Choice,
    Frame,
    Hello,
    Preview,
    Source,
)
from server.spaces import Spaces

FIRST_WAIT_S = 0.5  # before the first new attempt to reach the server; doubled each time
LAST_WAIT_S = 15.0
CONNECT_TIMEOUT_S = 5.0
INFO_EVERY = 60  # frames between two infos that say the same
_NAP_S = 0.1  # how long a stop may go unnoticed between two attempts

DONE, GAVE_UP, REFUSED = 0, 1, 2  # exit codes


class GameError(Exception):
    """A game that cannot be played; the message says why."""


class Step(NamedTuple):
    """What one decision led to."""

    observation: bytes
    rewards: list[float]
    terminal: bool
    truncated: bool
    info: dict[str, Any]


class Game(Protocol):
    """What a player plays.

    It may also offer ``expert() -> Choice | None`` and ``picture() -> Preview | None``.
    """

    @property
    def spaces(self) -> Spaces:
        """What the game shows and what it lets a player do."""

    @property
    def decision_s(self) -> float:
        """How long one decision lasts on the real machine."""

    def reset(self, seed: int) -> bytes:
        """Start an episode and give its first observation."""

    def step(self, choice: Choice) -> Step:
        """Carry out one decision."""

    def close(self) -> None:
        """Release the emulator."""


@dataclass(frozen=True, slots=True)
class Episode:
    """One finished episode, for a person to read."""

    number: int
    total: float  # the sum of all rewards
    frames: int
    seconds: float

    def describe(self) -> str:
        """Say it in one line."""
        rate = self.frames / self.seconds if self.seconds > 0 else 0.0
        return (
            f"episode {self.number}: return {self.total:g}, {self.frames} frames, "
            f"{rate:.0f} frames/s"
        )


class _Stopped(Exception):
    """Somebody asked the player to stop."""


class _GaveUp(Exception):
    """The first failure was to be the last."""


_UNANSWERED = Action(-1, [], [], Source.SCRIPT)


class Player:
    """One client: a game, a server, and the loop between them."""

    def __init__(
        self,
        game: Game,
        *,
        servers: Sequence[tuple[str, int]],
        hello: Hello,
        token: str = "",
        tls: ssl.SSLContext | None = None,
        seed: int = 0,
        episodes: int = 0,
        once: bool = False,
        pace_s: float = 0.0,
        timeout_s: float = 30.0,
        say: Callable[[str], None],
        warn: Callable[[str], None],
    ) -> None:
        self._game = game
        self._expert: Callable[[], Choice | None] | None = getattr(game, "expert", None)
        self._picture: Callable[[], Preview | None] | None = getattr(game, "picture", None)
        self._preview_every = 0  # frames; 0: the server wants no pictures
        self._servers = deque(servers)  # ours first, the others in turn if it is gone
        self._hello = hello
        self._token, self._tls = token, tls
        self._seed = seed
        self._episodes = episodes
        self._once = once
        self._pace = Pace(pace_s)
        self._timeout_s = timeout_s
        self._say, self._warn = say, warn
        self._link: Link | None = None
        self._stopping = False
        self._sequence = 0
        self._wait_s = FIRST_WAIT_S
        self._info: dict[str, Any] = {}  # as last sent
        self._info_age = 0  # frames since then

    def run(self) -> int:
        """Play until all episodes are done or somebody stops it; give the exit code."""
        reason = "the client failed"
        try:
            self._connect()
            number = 0
            while not self._episodes or number < self._episodes:
                number += 1
                self._say(self._play(number).describe())
            reason = "all episodes are played"
            return DONE
        except _Stopped:
            reason = "the client was stopped"
            return DONE
        except Rejected as error:
            self._warn(f"{self._where} says no: {error}")
            return REFUSED
        except Distrusted as error:
            self._warn(f"{self._where} is not to be trusted: {error}")
            return REFUSED
        except _GaveUp:
            return GAVE_UP
        finally:
            if self._link is not None:
                self._link.close(reason)
            self._game.close()

    def stop(self) -> None:
        """End the run at the next frame; safe in a signal handler."""
        self._stopping = True
        if self._link is not None:
            self._link.wake()

    @property
    def _where(self) -> str:
        return "the server at {}:{}".format(*self._servers[0])

    def _play(self, number: int) -> Episode:
        """Play one episode; its last frame is sent and answered like every other."""
        began = time.monotonic()
        first = self._sequence
        observation = self._game.reset(self._seed + number - 1)
        action = self._ask(START, [0.0] * len(self._hello.spaces.rewards), observation, {})
        total = 0.0
        while True:
            self._pace.wait()
            step = self._game.step(Choice(action.discrete, action.continuous))
            total += sum(step.rewards)
            # A game that ends by itself in the very frame of the limit has ended by itself.
            flags = TERMINAL if step.terminal else TRUNCATED if step.truncated else 0
            action = self._ask(flags, step.rewards, step.observation, step.info)
            if flags:
                frames = self._sequence - first
                return Episode(number, total, frames, time.monotonic() - began)

    def _ask(
        self, flags: int, rewards: list[float], observation: bytes, info: dict[str, Any]
    ) -> Action:
        """Send one frame and give its answer, over as many connections as it takes."""
        proposal = self._expert() if self._expert is not None else None
        news = self._news(info, bool(flags & ENDED))
        frame = Frame(self._sequence, flags, rewards, observation, None, proposal, news)
        preview = self._preview()
        self._sequence += 1
        while True:
            if self._stopping or self._link is None:
                raise _Stopped
            try:
                action = self._link.exchange(frame, preview)
            except (ServerClosed, LinkTimeout) as error:
                preview = None  # a newer one will follow
                if not self._reconnect(error):
                    if flags & ENDED:
                        return _UNANSWERED  # its episode is over, and the server forgot it
                    frame = _cut(frame)
                # A resumed session knows by the sequence number whether it has this frame.
            else:
                self._wait_s = FIRST_WAIT_S
                if action.settings is not None:
                    self._take_settings(action.settings)
                return action

    def _news(self, info: dict[str, Any], ended: bool) -> dict[str, Any] | None:
        """Give the info if it is worth its bytes in this frame."""
        self._info_age += 1
        if not info or not (ended or info != self._info or self._info_age >= INFO_EVERY):
            return None
        self._info, self._info_age = info, 0
        return info

    def _preview(self) -> Preview | None:
        """Give a picture of the game, if the server wants one with this frame."""
        every = self._preview_every
        if not every or self._picture is None or self._sequence % every:
            return None
        try:
            return self._picture()
        except GameError as error:
            self._picture = None
            self._warn(f"no pictures for the server: {error}")
            return None

    def _take_settings(self, settings: dict[str, Any]) -> None:
        """Follow what the server pushed, as far as it concerns us."""
        every = settings.get("preview_every", self._preview_every)
        self._preview_every = every if type(every) is int and every > 0 else 0

    def _connect(self) -> None:
        """Reach the server for the first time."""
        try:
            self._go_round()
        except (Unreachable, ServerClosed, LinkTimeout) as error:
            self._give_up_if_asked(f"cannot reach {self._where} ({error})")
            self._retry()

    def _reconnect(self, cause: LinkError) -> bool:
        """Reach the server again, or another; tell whether the old session goes on."""
        lost = f"lost {self._where} ({cause})"
        if len(self._servers) > 1 and not self._stopping:
            self._warn(f"{lost}; trying {len(self._servers)} servers")
            if self._once:
                self._servers.rotate(-1)  # one that went is not waited for
            with suppress(Unreachable, ServerClosed, LinkTimeout):
                return self._go_round()
        self._give_up_if_asked(lost)
        return self._retry()

    def _retry(self) -> bool:
        """Try with growing pauses until the server answers; tell whether it resumed."""
        while True:
            self._rest()
            try:
                return self._go_round()
            except (Unreachable, ServerClosed, LinkTimeout):
                pass  # announced once already; the pauses grow

    def _go_round(self) -> bool:
        """Try each server once, ours first; tell whether the old session goes on."""
        failures: list[LinkError] = []
        for _ in range(len(self._servers)):
            try:
                return self._greet()
            except (Unreachable, ServerClosed, LinkTimeout, Rejected) as error:
                failures.append(error)
                self._servers.rotate(-1)
        # One that is away may be back; those that say no will say it again.
        away = [failure for failure in failures if not isinstance(failure, Rejected)]
        raise (away or failures)[0]

    def _greet(self) -> bool:
        """Make one connection; tell whether it goes on with the old session."""
        if self._link is not None:
            self._link.drop()
        self._link = Link(
            *self._servers[0],
            timeout_s=self._timeout_s,
            connect_timeout_s=CONNECT_TIMEOUT_S,
            tls=self._tls,
        )
        welcome = self._link.greet(self._hello, self._token)
        self._hello = replace(self._hello, resume=welcome.session)
        self._take_settings(welcome.settings)
        how = "resumed" if welcome.resumed else "new"
        self._say(
            f"connected to {self._where}: {self._hello.game}, agent {self._hello.agent}, "
            f"{how} session {welcome.session}"
        )
        return welcome.resumed

    def _give_up_if_asked(self, what: str) -> None:
        """Say what happened; raise if one failure is enough."""
        if self._stopping:
            raise _Stopped
        if self._once:
            self._warn(what)
            raise _GaveUp
        self._warn(f"{what}; trying again until it answers")

    def _rest(self) -> None:
        """Wait before the next attempt, longer each time, but notice a stop."""
        until = time.monotonic() + self._wait_s
        self._wait_s = min(2 * self._wait_s, LAST_WAIT_S)
        while not self._stopping and time.monotonic() < until:
            time.sleep(_NAP_S)
        if self._stopping:
            raise _Stopped


def _cut(frame: Frame) -> Frame:
    """Make a frame the first of an episode: what it earned belongs to a frame that is lost."""
    return frame._replace(flags=frame.flags | START, rewards=[0.0] * len(frame.rewards))
