"""How close the server without training comes to a bare echo of the same frames."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Iterator

from bench import crowd, echo, host
from bench.figures import Round

ABOUT = "frames/s of a bare uvloop echo and of our server without training, side by side"
OPTIONS = {
    "--rounds": 3,
    "--seconds": 5.0,
    "--clients": 16,
    "--values": 128,
    "--pin": False,
    "--trainer": "thread",
}


async def measure(options: argparse.Namespace) -> Round:
    """Measure one round: echo and server, with many clients and with one."""
    async with host.server(trainer={"training": False, "trainer": options.trainer}) as app:
        bare = await echo.listen()
        ports = bare.sockets[0].getsockname()[1], app.listener.port
        figures = await _compare(*ports, options, options.clients, "", None)
        figures |= host.contention(app, options.seconds, training=False)
        with _apart(options.pin) as core:
            figures |= await _compare(*ports, options, 1, "_one", core)
        bare.close()
    return figures


async def _compare(
    echo_port: int,
    port: int,
    options: argparse.Namespace,
    clients: int,
    suffix: str,
    core: int | None,
) -> Round:
    """Play against the echo and then against the server."""
    load = {"clients": clients, "seconds": options.seconds, "values": options.values}
    echoed = await crowd.play(echo_port, bare=True, core=core, **load)
    served = await crowd.play(port, core=core, **load)
    return {
        f"fps_echo{suffix}": echoed["fps"],
        f"fps_serve{suffix}": served["fps"],
        f"serve_over_echo{suffix}": served["fps"] / echoed["fps"],
        f"echo_p50_ms{suffix}": echoed["p50_ms"],
        f"echo_p99_ms{suffix}": echoed["p99_ms"],
        f"p50_ms{suffix}": served["p50_ms"],
        f"p99_ms{suffix}": served["p99_ms"],
    }


@contextlib.contextmanager
def _apart(pin: bool) -> Iterator[int | None]:
    """Keep the server and its one client on a core each; give the client's core.

    Left alone, the scheduler now and then puts both on one core, where a bare echo is several
    times faster than on two (nobody sleeps, nobody is woken): its luck would decide.
    """
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if not pin or len(cores) < 2:
        yield None
        return
    os.sched_setaffinity(0, cores[:1])
    try:
        yield cores[1]
    finally:
        os.sched_setaffinity(0, cores)
