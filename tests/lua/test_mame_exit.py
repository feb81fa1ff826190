"""MAME leaves without a crash; at its own normal end, with a boot script, it often does crash."""

from __future__ import annotations

from pathlib import Path

import pytest
from live import Server
from mame import Start, needs_mame

pytestmark = [needs_mame, pytest.mark.timeout(300)]
ROUNDS, OF_EACH = 5, 2  # twenty exits: together two that are done, and two whose server leaves


def test_twenty_exits_of_twenty_are_clean(mame: Start, tmp_path: Path) -> None:
    done, left = [], []
    for number in range(ROUNDS):
        server = Server(tmp_path / f"runs{number}")
        names = [f"stays{place}" for place in range(OF_EACH)]
        finishing = [mame(server.port, 150, once="1") for _ in range(OF_EACH)]
        staying = [mame(server.port, once="1", name=name) for name in names]
        try:
            for process in finishing:
                process.communicate(timeout=60)
                done.append(process.returncode)
            for name in names:
                server.wait_for(f"{name} at .* joined agent pong2600")
            assert server.stop() == 0
        finally:
            server.kill()
        for process in staying:
            process.communicate(timeout=60)
            left.append(process.returncode)
    assert done == [0] * (ROUNDS * OF_EACH)  # all frames played
    assert left == [1] * (ROUNDS * OF_EACH)  # the server is gone, and a new start may help
