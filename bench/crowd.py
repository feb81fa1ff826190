"""Starts the load clients' process and listens to what it says."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any


async def play(
    port: int, *, fps: float = 0.0, on_start: Callable[[], None] = lambda: None, **load: Any
) -> dict[str, float]:
    """Play against a port and give what the clients saw; on_start marks the end of the warm-up."""
    async with contextlib.aclosing(paced(port, [fps], **load)) as words:
        async for seen in words:
            if seen is not None:
                return seen
            on_start()
    raise AssertionError("unreachable: they say what they saw, or it fails")


async def paced(
    port: int,
    paces: Sequence[float],
    *,
    clients: int,
    seconds: float,
    values: int = 128,
    warmup_s: float = 1.0,
    bare: bool = False,
    core: int | None = None,
) -> AsyncGenerator[dict[str, float] | None, None]:
    """Play at one pace after the other: None at the end of each warm-up, then what was seen."""
    command = [sys.executable, "-m", "bench.load", "--port", str(port), "--clients", str(clients)]
    command += ["--seconds", str(seconds), "--warmup", str(warmup_s), "--fps", *map(str, paces)]
    command += ["--values", str(values), *(["--bare"] if bare else [])]
    if core is not None:
        command += ["--core", str(core)]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        for _ in paces:
            line = await process.stdout.readline()
            if line.strip() != b"start":
                raise RuntimeError(f"the load clients did not start: {line!r}")
            yield None
            line = await process.stdout.readline()
            if not line:
                raise RuntimeError("the load clients failed")
            seen: dict[str, float] = json.loads(line)
            if seen["lost"]:
                raise RuntimeError(f"{seen['lost']:.0f} load clients were disconnected")
            yield seen
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
