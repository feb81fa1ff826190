"""One training as a person starts it: the server with its emulators, in a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from server.emulators import ROOT, LaunchError
from server.stats import AgentView
from tools.control import Line, find

RUN = "r"
_END_S = 60.0  # for a server to save and end


class Training:
    """A server that trains; the run is ``RUN`` in its directory."""

    def __init__(self, runs: Path, server: asyncio.subprocess.Process) -> None:
        self.runs = runs
        self._server = server
        self._said = asyncio.create_task(_last_words(server))

    @classmethod
    async def start(cls, runs: Path, launch: str, seed: int, *words: str) -> Training:
        """Start the server; nothing is evaluated meanwhile: it would take turns from the games."""
        usual = ["--plain", "--port", "0", "--runs-dir", str(runs), "--run", RUN]
        usual += ["--launch", launch, "--seed", str(seed), "--eval-interval-s", "0"]
        return cls(runs, await _python(str(ROOT / "main.py"), *usual, *words))

    async def go_on(self, seconds: float) -> None:
        """Let it train; a LaunchError says what ended it."""
        try:
            await asyncio.wait_for(self._server.wait(), seconds)
        except TimeoutError:
            return
        raise LaunchError(f"the training came to nothing: {await self._said}")

    async def agent(self) -> AgentView:
        """Give the figures of its agent."""
        agents = await asyncio.to_thread(self._agents)
        if not agents:
            raise LaunchError("no emulator has joined the training yet; give it more --minutes")
        return agents[0]

    def _agents(self) -> tuple[AgentView, ...]:
        with Line(find(self.runs, RUN)) as line:
            return line.status().agents

    async def end(self) -> None:
        """Have it save and end, as Ctrl-C does."""
        await self._signal(signal.SIGINT)
        if self._server.returncode:
            raise LaunchError(f"the server ended badly: {await self._said}")

    async def kill(self) -> None:
        """End it without a warning; its emulators end by themselves."""
        await self._signal(signal.SIGKILL)

    async def _signal(self, number: int) -> None:
        if self._server.returncode is None:
            self._server.send_signal(number)
            await asyncio.wait_for(self._server.wait(), _END_S)


def curve(runs: Path) -> list[dict[str, Any]]:
    """Give the points of a run's learning curve, from the first finished episode on."""
    text = (runs / RUN / "curves.jsonl").read_text(encoding="utf-8")
    told = map(json.loads, text.splitlines())
    return [r for r in told if r["kind"] == "interval" and r["return_mean"] is not None]


async def evaluate(runs: Path, episodes: int) -> float:
    """Give the mean greedy return of the newest checkpoint, by ``python main.py eval``."""
    with tempfile.TemporaryDirectory() as directory:
        result = Path(directory, "result.json")
        words = ["--runs-dir", str(runs), "--run", RUN, "--episodes", str(episodes)]
        exam = await _python(str(ROOT / "main.py"), "eval", *words, "--json", str(result))
        said = await _last_words(exam)
        if await exam.wait():
            raise LaunchError(f"the evaluation failed: {said}")
        mean: float = json.loads(result.read_text())["score"]["mean"]
        return mean


async def _python(*words: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, *words),
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )


async def _last_words(process: asyncio.subprocess.Process) -> str:
    """Read what a process says, so that it is never held up; give the last line."""
    last = ""
    assert process.stdout is not None
    async for line in process.stdout:
        last = line.decode(errors="replace").strip() or last
    return last
