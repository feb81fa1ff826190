"""What a bad client costs the good ones: their rate and their delays, beside it and without it."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator

from bench import crowd, foe, host
from bench.figures import Round

ABOUT = "15 clients at --fps together, alone and beside a bad one of each kind"
OPTIONS = {"--rounds": 3, "--seconds": 4.0, "--clients": 15, "--values": 128, "--fps": 1500.0}


async def measure(options: argparse.Namespace) -> Round:
    """Measure one round; training goes on throughout."""
    load = {"clients": options.clients, "seconds": options.seconds, "values": options.values}
    figures: Round = {}
    async with host.server() as app:
        port = app.listener.port
        await crowd.play(port, **{**load, "seconds": 1.0})  # fills the replay: training begins
        for kind in foe.KINDS:
            quiet = await crowd.play(port, fps=options.fps, **load)  # anew: machines have moods
            figures |= {"fps_quiet": quiet["fps"], "p99_ms_quiet": quiet["p99_ms"]}
            async with _beside(kind, port):
                met = await crowd.play(port, fps=options.fps, **load)
            figures[f"{kind}_rate"] = met["fps"] / quiet["fps"]
            figures[f"{kind}_slowest"] = met["slowest_share"]
            figures[f"{kind}_p99"] = met["p99_ms"] / quiet["p99_ms"]
    return figures


@contextlib.asynccontextmanager
async def _beside(kind: str, port: int) -> AsyncIterator[None]:
    """Have a bad client there for a while."""
    bad = await asyncio.create_subprocess_exec(sys.executable, "-m", "bench.foe", kind, str(port))
    try:
        yield
        if bad.returncode is not None:
            raise RuntimeError(f"the {kind} client has ended by itself")
    finally:
        with contextlib.suppress(ProcessLookupError):
            bad.kill()
        await bad.wait()
