"""A live server under a rain of garbage, while good clients play on.

``COINOP_SIEGE_S=120 python -m pytest tests/server/test_siege.py`` is the long form.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
import threading
import time
from collections.abc import Callable

import pytest
from live import SPACES, Server, Steady

from server.net import wire

SECONDS = float(os.environ.get("COINOP_SIEGE_S", "5"))
GOOD, BAD = 8, 3
HELLO = wire.encode(wire.Hello("foe", "1", "game", "game", SPACES))
FRAMES = b"".join(
    wire.encode_frame(wire.Frame(number, 0, [0.0], bytes(16))) for number in range(20)
)


def garbage(dice: random.Random) -> bytes:
    """Make up a stream: pure noise, a good one that is spoilt, or one that only begins."""
    kind = dice.randrange(4)
    if kind == 0:
        return dice.randbytes(dice.randrange(1, 2000))
    stream = bytearray(HELLO + FRAMES)
    if kind == 1:
        for _ in range(dice.randrange(1, 8)):
            stream[dice.randrange(len(stream))] = dice.randrange(256)
    elif kind == 2:
        del stream[dice.randrange(len(stream)) :]
    else:
        at = dice.randrange(len(HELLO), len(stream))  # welcomed first
        stream[at:at] = dice.randbytes(dice.randrange(1, 200))
    return bytes(stream)


def besiege(port: int, seed: int, done: threading.Event, sent: list[int]) -> None:
    """Open connections, say something wrong, leave in some rude way."""
    dice = random.Random(seed)
    while not done.is_set():
        foe = socket.create_connection(("127.0.0.1", port), timeout=5)
        with foe, contextlib.suppress(OSError):  # the server may close first
            foe.sendall(garbage(dice))
            foe.settimeout(dice.choice([0.001, 0.05]))
            foe.recv(65536)
        sent[0] += 1


@pytest.mark.timeout(60 + 2 * SECONDS)
def test_good_clients_play_on_while_a_server_is_besieged(start: Callable[..., Server]) -> None:
    server = start("--min-replay", "200", "--batch-size", "32")
    good = [Steady(server.port, client=f"good-{number}") for number in range(GOOD)]
    done, sent = threading.Event(), [0]
    foes = [
        threading.Thread(target=besiege, args=(server.port, seed, done, sent), daemon=True)
        for seed in range(BAD)
    ]
    for foe in foes:
        foe.start()
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        for client in good:
            client.plays_on()
    done.set()
    for foe in foes:
        foe.join(10)
    for client in good:
        client.finish()
    assert sent[0] > 20 * SECONDS / 5
    assert server.stop() == 0
    assert "error of its own" not in server.text and "Traceback" not in server.text
