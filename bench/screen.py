"""What the dashboard costs: frames/s while it redraws in a real terminal, and while it does not."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import fcntl
import os
import pty
import statistics
import struct
import subprocess
import termios
import threading
import time
from collections.abc import AsyncIterator
from typing import NamedTuple

from bench import crowd, host
from bench.figures import Round
from server.app import App
from server.console.terminal import Terminal

ABOUT = "frames/s with the dashboard in a terminal, and without it, turn by turn"
OPTIONS = {"--rounds": 3, "--seconds": 24.0, "--clients": 16, "--values": 128}
_TURN_S = 1.0  # with the dashboard, then without
_SETTLE_S = 0.1  # of a turn that is not counted: taking the screen, giving it back
_WARMUP_S = 1.0
_SNAPSHOTS = 25
_WIDTH, _HEIGHT = 120, 40


async def measure(options: argparse.Namespace) -> Round:
    """Measure one round: the same clients all along, the dashboard every other second."""
    async with host.server(trainer={"training": False}) as app:
        started = asyncio.Event()
        load = {"clients": options.clients, "seconds": options.seconds, "values": options.values}
        playing = asyncio.create_task(
            crowd.play(app.listener.port, warmup_s=_WARMUP_S, on_start=started.set, **load)
        )
        await started.wait()
        shown: list[_Turn] = []
        hidden: list[_Turn] = []
        for turn in range(int(options.seconds / _TURN_S / 2)):
            # Now this one first, now the other: a machine that slows down favours neither.
            for screen in (True, False) if turn % 2 else (False, True):
                (shown if screen else hidden).append(await _turn(app, screen))
        snapshot_s = _snapshot_s(app)  # while the clients play
        await playing
    pairs = list(zip(shown, hidden, strict=True))
    redraws_s = 1 / app.config.console.refresh_s
    return {
        "fps_screen": statistics.median(turn.fps for turn in shown),
        "fps_no_screen": statistics.median(turn.fps for turn in hidden),
        "screen_over_none": statistics.median(on.fps / off.fps for on, off in pairs),
        "screen_thread_percent": 100 * statistics.median(turn.drawing for turn in shown),
        "screen_snapshot_percent": 100 * snapshot_s * redraws_s,
    }


class _Turn(NamedTuple):
    """The frames/s of one turn, and the share of its time that drawing had the processor."""

    fps: float
    drawing: float


async def _turn(app: App, screen: bool) -> _Turn:
    async with _shown(app) if screen else contextlib.nullcontext():
        await asyncio.sleep(_SETTLE_S)
        frames, began, drawn_s = host.agent_of(app).frames, time.perf_counter(), _drawn_s()
        await asyncio.sleep(_TURN_S - _SETTLE_S)
        answered, spent_s = host.agent_of(app).frames - frames, time.perf_counter() - began
        return _Turn(answered / spent_s, (_drawn_s() - drawn_s) / spent_s)


def _drawn_s() -> float:
    """Read the processor time of the thread that draws; 0 if there is none."""
    threads = [thread for thread in threading.enumerate() if thread.name == "dashboard"]
    clocks = [time.pthread_getcpuclockid(t.ident) for t in threads if t.ident is not None]
    return sum(time.clock_gettime(clock) for clock in clocks)


def _snapshot_s(app: App) -> float:
    """Take snapshots, as the event loop does for each redraw; give the time of one."""
    spent_s = []
    for _ in range(_SNAPSHOTS):
        began_s = time.thread_time()
        app.snapshot()
        spent_s.append(time.thread_time() - began_s)
    return statistics.median(spent_s)


@contextlib.asynccontextmanager
async def _shown(app: App) -> AsyncIterator[None]:
    """Show the dashboard, as the server does, in a terminal that another process reads."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", _HEIGHT, _WIDTH, 0, 0))
    quiet = subprocess.DEVNULL
    reader = subprocess.Popen(["cat"], stdin=ours, stdout=quiet, stderr=quiet)
    os.close(ours)
    console = app.config.console
    with os.fdopen(theirs, "w", encoding="utf-8") as file, contextlib.redirect_stdout(file):
        async with Terminal(
            snapshot=app.snapshot,
            on_command=app.command,
            on_problem=lambda text: None,
            plain_lines=False,
            refresh_s=console.refresh_s,
            status_interval_s=console.status_interval_s,
        ):
            yield
    reader.wait()
