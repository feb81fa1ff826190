"""What would stop every client for a moment, and what became of it.

``python -m bench.stalls PART`` measures one part in a process that has done nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import io
import json
import re
import statistics
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

import config
from bench.figures import Round
from server import record
from server.console import demo
from server.console.dashboard import drawn, render
from server.console.look import Look

ABOUT = "a full garbage collection before and after the freeze, AdamW's class, a redraw"
OPTIONS = {"--rounds": 5}
_REPEATS = 5
_DRAWS = 41
_WIDTH, _HEIGHT = 120, 40


async def measure(options: argparse.Namespace) -> Round:
    """Measure one round: each part in a fresh process."""
    figures: Round = {}
    for part in _PARTS:
        command = [sys.executable, "-m", "bench.stalls", part]
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        output, _ = await process.communicate()
        if process.returncode:
            raise RuntimeError(f"the part {part} failed with code {process.returncode}")
        figures |= json.loads(output)
    return figures


def _collector() -> Round:
    """Collect all that a server has loaded, before and after it is frozen."""
    import server.app  # noqa: F401 - for the objects it brings

    gc.collect()
    figures: Round = {"gc_objects": len(gc.get_objects()), "gc_full_ms": _median_ms(gc.collect)}
    gc.freeze()
    return {**figures, "gc_frozen_ms": _median_ms(gc.collect)}


def _optimizer() -> Round:
    """Take the first step of AdamW, through torch's function and then through its class."""
    import torch
    from torch.optim.adamw import adamw

    def tensors(count: int) -> list[torch.Tensor]:
        return [torch.zeros(1000) for _ in range(count)]

    began = time.perf_counter()
    flat, gradient, average, square = tensors(4)
    adamw(
        [flat], [gradient], [average], [square], [], [torch.zeros(())],
        fused=True, foreach=False, amsgrad=False, beta1=0.9, beta2=0.999, lr=1e-3,
        weight_decay=0.0, eps=1e-8, maximize=False,
    )  # fmt: skip
    called, memory_mb = time.perf_counter(), _own_mb()
    parameter = torch.zeros(1000, requires_grad=True)
    parameter.grad = torch.zeros(1000)
    torch.optim.AdamW([parameter]).step()
    return {
        "adamw_function_ms": 1e3 * (called - began),
        "adamw_class_ms": 1e3 * (time.perf_counter() - called),
        "adamw_class_mb": _own_mb() - memory_mb,
    }


def _redraw() -> Round:
    """Draw the dashboard of a busy server, and see how long another thread has to wait for it."""
    snapshot = demo.snapshot(clients=16)
    console = Console(file=io.StringIO(), width=_WIDTH, height=_HEIGHT, force_terminal=True)

    def draw() -> None:
        drawn(console, render(snapshot, Look(), width=_WIDTH, height=_HEIGHT))

    draw()
    redraw_ms = _median_ms(draw)
    sys.setswitchinterval(config.Trainer().switch_interval_s)
    holds_ms = [_longest_wait_ms(draw) for _ in range(_DRAWS)]
    return {
        "redraw_ms": redraw_ms,
        "redraw_share_percent": redraw_ms / config.Console().refresh_s / 10,
        "redraw_hold_ms": statistics.median(holds_ms),
        "snapshot_json_ms": _median_ms(lambda: record.to_json(snapshot)),
    }


def _longest_wait_ms(work: Callable[[], None]) -> float:
    """Do work in a thread; give the longest time for which it kept Python's lock from this one."""
    thread = threading.Thread(target=work)
    longest_s, last = 0.0, time.perf_counter()
    thread.start()
    while thread.is_alive():
        now = time.perf_counter()
        longest_s, last = max(longest_s, now - last), now
    return 1e3 * longest_s


_PARTS: dict[str, Callable[[], Round]] = {
    "collector": _collector,
    "optimizer": _optimizer,
    "redraw": _redraw,
}


def _median_ms(work: Callable[[], object]) -> float:
    spent_s = []
    for _ in range(_REPEATS):
        began = time.perf_counter()
        work()
        spent_s.append(time.perf_counter() - began)
    return 1e3 * statistics.median(spent_s)


def _own_mb() -> float:
    """Read the memory of this process's own."""
    text = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(re.findall(r"RssAnon:\s+(\d+) kB", text)[0]) / 1e3


if __name__ == "__main__":
    json.dump(_PARTS[sys.argv[1]](), sys.stdout)
