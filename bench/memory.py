"""What the server's memory does under load, and whether any of its clients is left behind.

A real server process, watched from outside; a client that is disconnected ends the benchmark.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import tempfile
from pathlib import Path

from bench import crowd
from bench.figures import Round

ABOUT = "memory of a server that trains at --fps frames/s for a while, and its slowest client"
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
            figures |= {
                "fps": played["fps"],
                "p99_ms": played["p99_ms"],
                "slowest_client_share": played["slowest_share"],
                "replay_file_mb": replay.stat().st_blocks * 512 / 1e6,
            }
        finally:
            server.terminate()
            await server.wait()
    return figures


async def _watch(pid: int, seconds: float) -> Round:
    """Look when the server has settled, half-way, and at the end."""
    settled_s = min(_SETTLED_S, seconds / 3)
    figures: Round = {}
    passed_s = 0.0
    for name, when_s in (("settled", settled_s), ("middle", seconds / 2), ("end", seconds)):
        await asyncio.sleep(when_s - passed_s)
        passed_s = when_s
        memory = _memory_mb(pid)
        figures[f"anonymous_mb_{name}"] = memory["RssAnon"]
        figures[f"mapped_mb_{name}"] = memory["RssFile"]
    return figures


def _memory_mb(pid: int) -> dict[str, float]:
    """Read a process's memory: what it owns, and what it has touched of mapped files."""
    text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return {name: int(kb) / 1e3 for name, kb in re.findall(r"(Rss\w+):\s+(\d+) kB", text)}


async def _drain(stream: asyncio.StreamReader) -> None:
    while await stream.read(65536):
        pass
