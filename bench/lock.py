"""Whether the probe tells the truth of Python's lock: beside it py-spy looks on from outside.

py-spy must be allowed to look at the process that started it: as root, or with
``kernel.yama.ptrace_scope=0``.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from pathlib import Path

from bench import crowd, host
from bench.figures import Round
from server.app import App
from server.emulators import LaunchError
from server.probe import Probe

ABOUT = "share of time that Python's lock is taken: by the probe, and by py-spy"
OPTIONS = {"--rounds": 3, "--seconds": 8.0, "--clients": 16, "--values": 128, "--fps": 2000.0}
_HOMES = ("thread", "process")
_LOOK_S = 0.05  # between looks of the probe: enough of them for a share
_RATE = 200  # looks of py-spy a second


async def measure(options: argparse.Namespace) -> Round:
    """Measure one round: both homes, at a pace and at full speed."""
    figures: Round = {}
    for home in _HOMES:
        async with host.server(trainer={"trainer": home}, console={"telemetry": False}) as app:
            load = {"clients": options.clients, "values": options.values}
            await crowd.play(app.listener.port, seconds=1.0, **load)
            for name, fps in (("paced", options.fps), ("saturated", 0.0)):
                both = await _both(app, options.seconds, fps=fps, **load)
                figures |= {f"{who}_share_{home}_{name}": share for who, share in both.items()}
    return figures


async def _both(app: App, seconds: float, **load: float) -> dict[str, float]:
    """Have the probe and py-spy look at the same seconds."""
    started = asyncio.Event()
    playing = asyncio.create_task(
        crowd.play(app.listener.port, seconds=seconds + 5, on_start=started.set, **load)
    )
    await started.wait()
    probe = Probe(asyncio.get_running_loop().call_soon_threadsafe, interval_s=_LOOK_S)
    probe.start()
    seen = await _spied(seconds)
    await asyncio.to_thread(probe.stop)
    found = probe.view()
    await playing
    if found is None or found.gil_share is None:
        raise LaunchError("the probe cannot see Python's lock on this system")
    return {"probe": found.gil_share, "spy": seen}


async def _spied(seconds: float) -> float:
    """Give the share of py-spy's looks that found a thread of ours with the lock."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "looks")
        command = [
            str(Path(sys.executable).with_name("py-spy")),
            "record",
            "--gil",
            "--nonblocking",
        ]
        command += ["--format", "raw", "--rate", str(_RATE), "--duration", str(round(seconds))]
        command += ["--pid", str(os.getpid()), "--output", str(file)]
        try:
            spy = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.DEVNULL)
        except FileNotFoundError as error:
            raise LaunchError("py-spy is not installed: requirements-bench.txt") from error
        if await spy.wait():
            raise LaunchError("py-spy failed; it says why above")
        looks = sum(int(line.rpartition(" ")[2]) for line in file.read_text().splitlines())
    return looks / (_RATE * round(seconds))
