"""Whether the governor holds what it should while the load changes, and what that costs."""

from __future__ import annotations

import argparse

from bench import crowd, host
from bench.figures import Round
from bench.hold import beside

ABOUT = "a load of 500, 4,000 and again 500 frames/s, with and without a p99 that is to be held"
OPTIONS = {
    "--rounds": 3,
    "--seconds": 6.0,
    "--clients": 16,
    "--values": 128,
    "--trainer": "thread",
    "--p99-ms": 3.0,
    "--warmup": 3.0,
}
_LOADS = {"500": 500.0, "4000": 4000.0, "500_again": 500.0}


async def measure(options: argparse.Namespace) -> Round:
    """Measure one round: free training, then governed training, under the same changing load."""
    figures: Round = {}
    for name, p99_ms in (("free", 0.0), ("held", options.p99_ms)):
        trainer = {"trainer": options.trainer, "hold_p99_ms": p99_ms}
        async with host.server(trainer=trainer) as app:
            load = {"clients": options.clients, "values": options.values}
            await crowd.play(app.listener.port, seconds=1.0, **load)
            for part, fps in _LOADS.items():
                seen, steps_per_s = await beside(
                    app, fps=fps, seconds=options.seconds, warmup_s=options.warmup, **load
                )
                figures |= {
                    f"{name}_{part}_answered_share": seen["fps"] / fps,
                    f"{name}_{part}_p99_ms": seen["p99_ms"],
                    f"{name}_{part}_steps_per_s": steps_per_s,
                }
                governed = app.snapshot().governed
                if governed is not None:
                    figures[f"{name}_{part}_training_share"] = governed.training_share
    return figures
