"""How soon a killed server is back: a full replay of --frames, from its start to answers and steps.

The second start is of a real process on a replay that nobody closed. Frames are the bench's own:
playing ten million would take hours.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import tempfile
import time
from pathlib import Path

from bench import crowd, host, stage
from bench.figures import Round
from bench.load import workload
from client_py.link import Link
from server.learn.replay import Layout, Replay
from server.net import wire

ABOUT = "time from the start of a killed server with a replay of --frames to its first answer"
OPTIONS = {"--rounds": 3, "--values": 16, "--frames": 10_000_000}
_SAMPLINGS = {"uniform": "", "priority": "priority_"}
_PATIENCE_S = 120.0


async def measure(options: argparse.Namespace) -> Round:
    """Measure one round."""
    figures: Round = {}
    for sampling, prefix in _SAMPLINGS.items():
        with tempfile.TemporaryDirectory() as runs:
            await _prepare(runs, sampling, options)
            found = await _come_back(runs, sampling, options)
        figures |= {f"{prefix}{name}": value for name, value in found.items()}
    return figures


async def _prepare(runs: str, sampling: str, options: argparse.Namespace) -> None:
    """Leave a run as a killed server does: a checkpoint, and a replay that is full."""
    server = await _Server.start(runs, sampling, options)
    port = int((await server.hear(r"listening on [^:]+:(\d+)"))[1])
    await crowd.play(port, clients=2, seconds=1.5, values=options.values)
    await server.hear(r"steps +[1-9]")
    await server.stop()
    layout = Layout.of(workload(options.values), options.frames)
    path = Path(runs, "default", "agents", host.AGENT, "replay.bin")
    replay = Replay.in_file(path, layout)
    stage.fill(replay, options.frames)


async def _come_back(runs: str, sampling: str, options: argparse.Namespace) -> Round:
    """Time a server from its start, its imports included."""
    began_s = time.perf_counter()
    server = await _Server.start(runs, sampling, options)
    saved = int((await server.hear(r"resumed: .*?([\d,]+) steps"))[1].replace(",", ""))
    port = int((await server.hear(r"listening on [^:]+:(\d+)"))[1])
    listening_s = time.perf_counter() - began_s
    client = await asyncio.to_thread(_play_one, port, options.values)
    answered_s = time.perf_counter() - began_s
    while int((await server.hear(r"steps +([\d,]+)"))[1].replace(",", "")) <= saved:
        if time.perf_counter() - began_s > _PATIENCE_S:
            raise RuntimeError("the server does not train again")
    trained_s = time.perf_counter() - began_s
    client.drop()  # not before: an agent without clients does not train
    await server.kill()
    return {"listening_s": listening_s, "answered_s": answered_s, "trained_s": trained_s}


def _play_one(port: int, values: int) -> Link:
    """Join, have one frame answered, and stay."""
    link = Link("127.0.0.1", port, timeout_s=_PATIENCE_S, connect_timeout_s=_PATIENCE_S)
    link.greet(wire.Hello("first", "1", host.AGENT, host.AGENT, workload(values)))
    link.exchange(wire.Frame(0, wire.START, [0.0], bytes(values)))
    return link


class _Server:
    """A server in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, runs: str, sampling: str, options: argparse.Namespace) -> _Server:
        """Start it on a run."""
        command = [sys.executable, "main.py", "--plain", "--port", "0", "--runs-dir", runs]
        command += ["--replay-capacity", str(options.frames), "--sampling", sampling]
        command += ["--min-replay", "1000", "--status-interval-s", "0.1"]
        out = asyncio.subprocess.PIPE
        return cls(await asyncio.create_subprocess_exec(*command, stdout=out))

    async def hear(self, pattern: str) -> re.Match[str]:
        """Give the next line with a pattern."""
        assert self._process.stdout is not None
        lines = []
        async with asyncio.timeout(_PATIENCE_S):
            while line := await self._process.stdout.readline():
                lines.append(line.decode())
                found = re.search(pattern, lines[-1])
                if found:
                    return found
        raise RuntimeError(f"the server did not say {pattern!r}: {''.join(lines[-5:])}")

    async def stop(self) -> None:
        """End it in good order."""
        self._process.terminate()
        await self._process.communicate()

    async def kill(self) -> None:
        """End it as a crash does."""
        self._process.kill()
        await self._process.communicate()
