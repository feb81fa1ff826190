"""Draws docs/dashboard.svg from a live run: ``make screenshot``."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

import config
from server.app import App, prepare_process
from server.console.dashboard import export_svg
from server.stats import Snapshot

PICTURE = Path(__file__).resolve().parent / "dashboard.svg"


async def watch(seconds: float) -> Snapshot:
    """Play Pong with two emulators for a while and give what there is to see."""
    with tempfile.TemporaryDirectory() as directory:
        settings = config.from_values(
            {
                "run": {"runs_dir": directory, "run": "pong"},
                "emulators": {"launch": ["ale:pong=2"]},
                "server": {"port": 0},
            }
        )
        prepare_process(settings)
        app = App(settings)
        await app.startup()
        for second in range(int(seconds)):
            app.snapshot()  # feeds the rates
            await asyncio.sleep(1)
            if second % 10 == 0:
                print(f"{int(seconds) - second} s to go", file=sys.stderr)
        snapshot = app.snapshot()
        await app.shutdown()
    return snapshot


if __name__ == "__main__":
    export_svg(asyncio.run(watch(float(sys.argv[1]) if len(sys.argv) > 1 else 60.0)), PICTURE)
    print(f"wrote {PICTURE}")
