"""What the server's memory does under load: a real server process, watched from outside."""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import tempfile
from pathlib import Path

from bench import crowd
from bench.figures import Round

ABOUT = "memory of a server that trains at --fps frames/s, after the first minute and at the end"
OPTIONS = {
    "--rounds": 3,
    "--seconds": 5.0,
    "--clients": 16,
    "--values": 128,
    "--fps": 2000.0,
}
_SETTLED_S = 60.0


async def measure(options: argparse.Namespace) -> Round:
    """Measure one round."""
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "main.py", "--plain", "--port", "0", "--runs-dir", directory]
        server = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        try:
            assert server.stdout is not None
            first = (await server.stdout.readline()).decode()
            port = int(re.findall(r"listening on [^:]+:(\d+)", first)[0])
            asyncio.get_running_loop().create_task(_drain(server.stdout))
            watching = asyncio.create_task(_watch(server.pid, options.seconds))
            played = await crowd.play(
                port,
                clients=options.clients,
                seconds=options.seconds,
                values=options.values,
                fps=options.fps,
            )
            figures = await watching
            replay = Path(directory, "default", "agents", "bench", "replay.bin")
            figures |= {"fps": played["fps"], "replay_file_mb": replay.stat().st_blocks * 512 / 1e6}
        finally:
            server.terminate()
            await server.wait()
    return figures


async def _watch(pid: int, seconds: float) -> Round:
    settled_s = min(_SETTLED_S, seconds / 2)
    await asyncio.sleep(settled_s)
    before = _memory_mb(pid)
    await asyncio.sleep(seconds - settled_s)
    after = _memory_mb(pid)
    return {
        "anonymous_mb_settled": before["RssAnon"],
        "anonymous_mb_end": after["RssAnon"],
        "mapped_mb_settled": before["RssFile"],
        "mapped_mb_end": after["RssFile"],
    }


def _memory_mb(pid: int) -> dict[str, float]:
    """Read a process's memory: what it owns, and what it has touched of mapped files."""
    text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return {name: int(kb) / 1e3 for name, kb in re.findall(r"(Rss\w+):\s+(\d+) kB", text)}


async def _drain(stream: asyncio.StreamReader) -> None:
    while await stream.read(65536):
        pass
