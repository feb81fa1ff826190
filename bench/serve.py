"""How close the server without training comes to a bare echo of the same frames."""

from __future__ import annotations

import argparse

from bench import crowd, echo, host
from bench.figures import Round

ABOUT = "frames/s of a bare uvloop echo and of our server without training, side by side"


async def measure(options: argparse.Namespace) -> Round:
    """Measure one round: echo and server, with many clients and with one."""
    figures: Round = {}
    async with host.server(trainer={"training": False}) as app:
        bare = await echo.listen()
        port = bare.sockets[0].getsockname()[1]
        for suffix, clients in (("", options.clients), ("_one", 1)):
            load = {"clients": clients, "seconds": options.seconds, "values": options.values}
            echoed = await crowd.play(port, bare=True, **load)
            served = await crowd.play(app.listener.port, **load)
            figures |= {
                f"fps_echo{suffix}": echoed["fps"],
                f"fps_serve{suffix}": served["fps"],
                f"serve_over_echo{suffix}": served["fps"] / echoed["fps"],
                f"echo_p50_ms{suffix}": echoed["p50_ms"],
                f"echo_p99_ms{suffix}": echoed["p99_ms"],
                f"p50_ms{suffix}": served["p50_ms"],
                f"p99_ms{suffix}": served["p99_ms"],
            }
        bare.close()
    return figures
