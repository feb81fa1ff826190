"""Draws docs/flamegraph.svg: where the time of a server goes that answers and trains.

``make flamegraph`` (py-spy must be allowed to look at the process that started it: as root, or
with ``kernel.yama.ptrace_scope=0``).
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tempfile
from pathlib import Path

import uvloop

from bench import crowd, host

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "flamegraph.svg"
_CLIENTS = 16
_RATE = 200  # looks a second


async def record(seconds: float) -> str:
    """Have py-spy look on while 16 clients play at full speed beside training; give its picture."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "flamegraph.svg")
        async with host.server() as app:
            await crowd.play(app.listener.port, clients=_CLIENTS, seconds=1.0)
            playing = asyncio.create_task(
                crowd.play(app.listener.port, clients=_CLIENTS, seconds=seconds + 3)
            )
            await asyncio.sleep(2)
            command = ["py-spy", "record", "--pid", str(os.getpid()), "--output", str(file)]
            command += ["--threads", "--nolineno", "--rate", str(_RATE)]
            command += ["--duration", str(round(seconds))]
            spy = await asyncio.create_subprocess_exec(*command, stdout=sys.stderr)
            if await spy.wait():
                raise SystemExit("py-spy failed; it says why above")
            await playing
        return relative(file.read_text(encoding="utf-8"))


def relative(picture: str) -> str:
    """Leave nothing of this machine in the picture: no absolute path, no process number."""
    picture = picture.replace(f"{ROOT}/", "")
    picture = re.sub(r"(?<![\w.])/(?:[\w.+-]+/)+(?=[\w.+-]+\.(?:py|so|svg)\b)", "", picture)
    picture = re.sub(r"\bthread \(\d+\): ", "", picture)
    return re.sub(r"\b(process|--pid) \d+", r"\1", picture)


if __name__ == "__main__":
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    length_s = float(sys.argv[1]) if len(sys.argv) > 1 else 20.0
    PICTURE.write_text(uvloop.run(record(length_s)), encoding="utf-8")
    print(f"wrote {PICTURE.name}")
