"""Starts the load clients' process and listens to what it says."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable


async def play(
    port: int,
    *,
    clients: int,
    seconds: float,
    values: int = 128,
    fps: float = 0.0,
    warmup_s: float = 1.0,
    bare: bool = False,
    core: int | None = None,
    on_start: Callable[[], None] = lambda: None,
) -> dict[str, float]:
    """Play against a port and give what the clients saw; on_start marks the end of the warm-up."""
    command = [sys.executable, "-m", "bench.load", "--port", str(port), "--clients", str(clients)]
    command += ["--seconds", str(seconds), "--warmup", str(warmup_s), "--fps", str(fps)]
    command += ["--values", str(values), *(["--bare"] if bare else [])]
    if core is not None:
        command += ["--core", str(core)]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, limit=1 << 20
    )
    assert process.stdout is not None
    try:
        line = await process.stdout.readline()
        if line.strip() != b"start":
            raise RuntimeError(f"the load clients did not start: {line!r}")
        on_start()
        result = await process.stdout.read()
        if await process.wait():
            raise RuntimeError("the load clients failed")
        figures: dict[str, float] = json.loads(result)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if figures["lost"]:
        raise RuntimeError(f"{figures['lost']:.0f} load clients were disconnected")
    return figures
