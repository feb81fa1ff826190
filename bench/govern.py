"""Whether the governor holds what it should while the load changes, and what that costs."""

from __future__ import annotations

import argparse
from typing import Any

from bench import crowd, host
from bench.figures import Round
from bench.hold import beside
from server.app import App

ABOUT = "a load of 500, 4,000 and again 500 frames/s, with and without a p99 that is to be held"
OPTIONS = {
    "--rounds": 3,
    "--seconds": 6.0,
    "--clients": 16,
    "--values": 128,
    "--trainer": "thread",
    "--p99-ms": 3.0,
    "--warmup": 5.0,
}
_LOADS = {"500": 500.0, "4000": 4000.0, "500_again": 500.0}


async def measure(options: argparse.Namespace) -> Round:
    """Measure one round: no training, free and governed training, under the same changing load."""
    ways: dict[str, dict[str, Any]] = {
        "none": {"training": False},
        "free": {"trainer": options.trainer},
        "held": {"trainer": options.trainer, "hold_p99_ms": options.p99_ms},
    }
    figures: Round = {}
    for name, trainer in ways.items():
        async with host.server(trainer=trainer) as app:
            load = {"clients": options.clients, "values": options.values}
            await crowd.play(app.listener.port, seconds=1.0, **load)
            for part, fps in _LOADS.items():
                figures |= await _part(app, f"{name}_{part}", fps, options)
    for part in _LOADS:
        kept = figures[f"held_{part}_steps_per_s"] / figures[f"free_{part}_steps_per_s"]
        figures[f"held_{part}_steps_over_free"] = kept
    return figures


async def _part(app: App, name: str, fps: float, options: argparse.Namespace) -> Round:
    """Measure one server under one load."""
    seen, steps_per_s = await beside(
        app,
        fps=fps,
        seconds=options.seconds,
        warmup_s=options.warmup,
        clients=options.clients,
        values=options.values,
    )
    figures = {f"{name}_answered_share": seen["fps"] / fps, f"{name}_p99_ms": seen["p99_ms"]}
    if host.agent_of(app).controls.training:
        figures[f"{name}_steps_per_s"] = steps_per_s
    governed = app.snapshot().governed
    if governed is not None:
        figures[f"{name}_training_share"] = governed.training_share
        figures[f"{name}_holding"] = float(governed.state == "holding")
    return figures
