"""Emulators that are started beside us, kept running, and ended with us."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from server import emulators, perch
from server.emulators import LaunchError, Seat

_FORM = re.compile(
    r"(?P<emulator>[a-z0-9]+):(?P<game>[A-Za-z0-9._/-]+?)(=(?P<count>[0-9]+))?(?P<each>@each)?"
)
_END_S = 3.0  # for emulators to end by themselves before they are killed
_MOST = 1024
_SEED_STRIDE = 1_000_003
_FIRST_RETRY_S = 1.0  # before a fallen emulator is started again; doubled each time
_LAST_RETRY_S = 60.0
_STEADY_S = 60.0  # an emulator that ran this long has recovered
_MOST_FALLS = 5  # in a row, before it counts as a crash loop
_REFUSED = 2  # exit code of a client that will never be let in
_ALL_IPV4 = "0.0.0.0"  # nosec B104
EVERYWHERE = {"": "127.0.0.1", _ALL_IPV4: "127.0.0.1", "::": "::1"}  # and where we find it then
_TAIL_BYTES = 4096  # of a log, enough for its last line
_CHATTER = "Qt Warning: "  # of FCEUX, after its last words
_ABSENT_S = 5.0  # without a look at the emulators: whoever was silent then may not be to blame


@dataclass(frozen=True, slots=True)
class Launch:
    """Some emulators of one kind that play one game; None is left to the fleet's settings."""

    emulator: str
    game: str
    count: int = 1
    show: bool | None = None
    throttle: bool | None = None
    niceness: int | None = None
    each: bool = False  # so many on each node of a cluster that has a gateway

    def settled(self, *, show: bool, throttle: bool | None, niceness: int) -> Launch:
        """Fill in what was left open; a window is for people, so it keeps their time."""
        show = show if self.show is None else self.show
        throttle = throttle if self.throttle is None else self.throttle
        return replace(
            self,
            show=show,
            throttle=show if throttle is None else throttle,
            niceness=niceness if self.niceness is None else self.niceness,
        )

    def check_kind(self) -> Launch:
        """Give the launch itself, or say which kinds of emulator there are."""
        if self.emulator not in emulators.kinds():
            known = ", ".join(emulators.kinds())
            raise LaunchError(
                f"{self.emulator}:{self.game}: unknown emulator {self.emulator!r}; known: {known}"
            )
        return self

    def check(self, *, tls_ca: str = "") -> Launch:
        """Give the launch itself, or say what would be missing here when it starts."""
        self.check_kind()
        emulators.check(self.emulator, self.game, show=bool(self.show), tls_ca=tls_ca)
        return self


def parse(text: str) -> Launch:
    """Read 'emulator:game=count', or 'emulator:game=count@each'."""
    match = _FORM.fullmatch(text)
    if match is None:
        raise LaunchError(
            f"cannot launch {text!r}: it must be emulator:game=count, such as ale:pong=2, with "
            "@each at its end for so many on each node of a cluster"
        )
    count = int(match["count"] or 1)
    if not 1 <= count <= _MOST:
        raise LaunchError(f"cannot launch {text!r}: the count must be 1 to {_MOST}")
    return Launch(match["emulator"], match["game"], count, each=match["each"] is not None)


class Emulator:
    """One emulator: its process, its log, and how often it fell.

    waiting ──its time has come──▶ running ──ended, or silent and killed──▶ waiting, or down
    """

    def __init__(self, launch: Launch, seat: Seat, cores: Collection[int] = ()) -> None:
        self.seat = seat
        self._launch = launch
        self._cores = cores  # that it may use
        self._log = seat.home / "output.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._start_at: float | None = 0.0  # None: running, or down for good
        self._started_s = 0.0
        self._heard_s = 0.0
        self._silent = False
        self._falls = 0

    @property
    def running(self) -> bool:
        """Whether its process lives."""
        return self._process is not None and self._process.poll() is None

    @property
    def launch(self) -> Launch:
        """What it was started as."""
        return self._launch

    @property
    def down(self) -> bool:
        """Whether it ended and is never started again."""
        return self._process is None and self._start_at is None

    def due(self, now: float) -> bool:
        """Say whether it is time to start it."""
        return self._process is None and self._start_at is not None and now >= self._start_at

    def start(self, now: float) -> str | None:
        """Run it, with its output in its own log; say what a person should know."""
        self._started_s = self._heard_s = now
        self._start_at, self._silent = None, False
        try:
            self._run()
        except (LaunchError, OSError) as error:
            return self._fell(now, f"could not be started: {error}")
        return f"emulator {self.seat.name} started again" if self._falls else None

    def tend(self, now: float, heard_s: float, stall_s: float) -> str | None:
        """Notice that it ended, and end it if it was silent for too long.

        ``heard_s`` is when it was last heard; a ``stall_s`` of 0 lets it be silent.
        """
        if self._process is None:
            return None
        self._heard_s = max(self._heard_s, heard_s)
        code = self._process.poll()
        if code is None:
            if stall_s and now - self._heard_s >= stall_s and not self._silent:
                self._silent = True
                self.signal(signal.SIGKILL)  # one that hangs does not listen
            return None
        self._process = None
        if code == 0 and self.seat.show:
            return f"emulator {self.seat.name} was closed; not started again"
        # One that hung has lasted until its last frame.
        if (self._heard_s if self._silent else now) - self._started_s >= _STEADY_S:
            self._falls = 0
        silent = f"sent no frame for {stall_s:g} s and was killed"
        how = silent if self._silent else f"ended with code {code}"
        return self._fell(now, f"{how}: {self.last_words()}", for_good=code == _REFUSED)

    def signal(self, number: int) -> None:
        """Send a signal to it, and to whatever it started in turn."""
        if self._process is not None and self._process.poll() is None:
            with suppress(ProcessLookupError, PermissionError):  # it ended just now
                os.killpg(self._process.pid, number)

    def end(self, patience_s: float) -> None:
        """Make certain that it has ended, and never start it again."""
        self._start_at = None
        if self._process is None:
            return
        try:
            self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self.signal(signal.SIGKILL)
            self._process.wait()
        self._process = None

    def _run(self) -> None:
        self.seat.home.mkdir(parents=True, exist_ok=True)
        command = emulators.command(self._launch.emulator, self._launch.game, self.seat)
        command.prepare()
        if self._log.exists():  # what it said before it fell
            self._log.replace(self._log.with_name(f"before-{self._log.name}"))
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(
                command.arguments,
                cwd=command.directory,
                env={**os.environ, **command.environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C in the terminal is ours to handle
                restore_signals=False,  # SIGPIPE stays ignored: MAME's own sockets need that
            )
        place(self._process.pid, self._launch.niceness or 0, self._cores)

    def _fell(self, now: float, how: str, *, for_good: bool = False) -> str:
        """Count a fall, and decide when to start it again."""
        self._falls += 1
        text = f"emulator {self.seat.name} {how}"
        if for_good:
            return f"{text}; not started again (log: {self._log})"
        if self._falls >= _MOST_FALLS:
            return f"{text}; it fell {self._falls} times in a row and stays down (log: {self._log})"
        wait_s = min(_LAST_RETRY_S, _FIRST_RETRY_S * 2 ** (self._falls - 1))
        self._start_at = now + wait_s
        return f"{text}; starting it again in {wait_s:g} s"

    def last_words(self) -> str:
        """Give the last line that it wrote; one that is set in with those it belongs to."""
        try:
            with self._log.open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - _TAIL_BYTES))
                lines = log.read().decode(errors="replace").strip().splitlines()
        except OSError:
            return "its log is gone"
        lines = [line for line in lines if not line.startswith(_CHATTER)]
        first = len(lines) - 1
        while first > 0 and lines[first].startswith(" "):
            first -= 1
        return " ".join(line.strip() for line in lines[first:]) or "no output"


class Fleet:
    """All emulators that we started, one after another, so that they do not boot as one."""

    def __init__(
        self,
        launches: list[Launch],
        *,
        seed: int,
        prefix: str = "",
        once: bool = True,
        stagger_s: float = 0.0,
        stall_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._launches = launches
        self._seed = seed
        self._prefix = prefix  # of the emulators' names
        self._once = once
        self._stagger_s = stagger_s
        self._stall_s = stall_s
        self._clock = clock
        self._cores = perch.cores()
        self._emulators: list[Emulator] = []
        self._next_start_s = 0.0
        self._looked_s = 0.0
        self._back_s = 0.0  # when we came back from not looking

    @property
    def size(self) -> int:
        """How many emulators there are to be."""
        return sum(launch.count for launch in self._launches)

    @property
    def down(self) -> bool:
        """Whether nobody runs and nobody will be started again."""
        return all(emulator.down for emulator in self._emulators)

    def seat(
        self, server: str, token: str, homes: Path, played: int = 0, *, tls_ca: str = ""
    ) -> None:
        """Give each emulator its seat at a server, or at several, with a directory of its own.

        The number of frames the run has played so far decides which episodes come next.
        """
        servers = [reachable(one) for one in server.split(",")]
        taken: Counter[str] = Counter()
        for launch in self._launches:
            stem = f"{self._prefix}{launch.emulator}-{launch.game}"
            stem = re.sub(r"[^A-Za-z0-9._-]", "-", stem)
            for _ in range(launch.count):
                taken[stem] += 1
                name = f"{stem}-{taken[stem]}"
                # A client counts its seed up by one an episode: far apart, so that no two
                # play the same ones, and shifted, so that a resumed run plays new ones.
                seed = (self._seed * 1000 + len(self._emulators)) * _SEED_STRIDE + played
                # Each begins with another of the servers, and knows all of them.
                turn = len(self._emulators) % len(servers)
                seat = Seat(
                    name,
                    ",".join(servers[turn:] + servers[:turn]),
                    seed % 2**30,  # evaluations have those above
                    homes / name,
                    token,
                    show=bool(launch.show),
                    throttle=bool(launch.throttle),
                    once=self._once,
                    tls_ca=tls_ca,
                )
                self._emulators.append(Emulator(launch, seat, room(self.size, self._cores)))

    def launch_of(self, names: Collection[str]) -> Launch | None:
        """Give what the first of our emulators with one of these names was started as."""
        return next((e.launch for e in self._emulators if e.seat.name in names), None)

    def awaited(self, connected: Collection[str]) -> int:
        """Count those that run, or will, and are not connected."""
        return sum(not e.down and e.seat.name not in connected for e in self._emulators)

    def tend(self, silences: Mapping[str, float] | None = None) -> list[str]:
        """Start who is due, notice who fell, end who hangs; give what a person should know.

        ``silences`` are the seconds since each emulator's last frame, by name. Call it often: it
        starts one emulator at a time.
        """
        now = self._clock()
        if now - self._looked_s > _ABSENT_S:
            self._back_s = now
        self._looked_s = now
        told = []
        for emulator in self._emulators:
            silence_s = (silences or {}).get(emulator.seat.name)
            heard_s = 0.0 if silence_s is None else now - silence_s
            told.append(emulator.tend(now, max(heard_s, self._back_s), self._stall_s))
            if emulator.due(now) and now >= self._next_start_s:
                self._next_start_s = now + self._stagger_s
                told.append(emulator.start(now))
        return [text for text in told if text is not None]

    def stop(self) -> None:
        """End them all: first politely, then for certain."""
        ending, self._emulators = self._emulators, []
        for emulator in ending:
            emulator.signal(signal.SIGTERM)
        deadline = time.monotonic() + _END_S
        for emulator in ending:
            emulator.end(max(0.0, deadline - time.monotonic()))


def room(emulators_in_all: int, cores: Collection[int]) -> Collection[int]:
    """Give the cores for an emulator; a lone one stays on a core that the server shares.

    They take turns, so neither loses by it, and nobody has to be woken on a cold core.
    """
    return {max(cores)} if emulators_in_all == 1 and cores else cores


def place(pid: int, niceness: int, cores: Collection[int]) -> None:
    """Give an emulator that was just started its niceness, and the cores that it may use."""
    # Never below our own: that is for the superuser only.
    os.setpriority(os.PRIO_PROCESS, pid, max(niceness, os.getpriority(os.PRIO_PROCESS, 0)))
    if cores:  # also to undo what it inherited: the server may sit on one core just now
        os.sched_setaffinity(pid, cores)


def reachable(server: str) -> str:
    """Give a server's address as an IP: an emulator's own sockets look up no names."""
    host, colon, port = server.rpartition(":")
    if not colon or not port.isdecimal() or not 0 < int(port) < 65536:
        raise LaunchError(f"the server {server!r} must be HOST:PORT, such as 127.0.0.1:9797")
    host = host.strip("[]")
    host = EVERYWHERE.get(host, host)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:  # the latter: no name can be like that
        raise LaunchError(f"no server {server}: {getattr(error, 'strerror', error)}") from error
    found.sort(key=lambda entry: entry[0] != socket.AF_INET)  # the Lua clients know IPv4 only
    number = str(found[0][4][0])
    return f"[{number}]:{port}" if ":" in number else f"{number}:{port}"
