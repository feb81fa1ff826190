"""One client that behaves badly, in a process of its own: ``python -m bench.foe KIND PORT``.

It goes on until it is ended; whenever the server closes it, it comes back.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import random
import socket
import time
from collections.abc import Callable

from bench.load import workload
from server.net import wire

_VALUES = 128
_HELLO = wire.encode(wire.Hello("foe", "1", "bench", "bench", workload(_VALUES)))


def main() -> None:
    """Be as bad as asked, for ever."""
    parser = argparse.ArgumentParser(prog="python -m bench.foe", description=__doc__)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("port", type=int)
    options = parser.parse_args()
    for attempt in itertools.count():
        with contextlib.suppress(OSError), _connected(options.port) as peer:
            KINDS[options.kind](peer, random.Random(attempt))
        time.sleep(0.01)  # so that it is the server that is measured, not the kernel's connects


def _connected(port: int) -> socket.socket:
    peer = socket.create_connection(("127.0.0.1", port), timeout=5)
    peer.sendall(_HELLO)
    return peer


def _frame(number: int) -> bytes:
    return wire.encode_frame(wire.Frame(number, 0, [0.0], bytes(_VALUES)))


def _slow(peer: socket.socket, dice: random.Random) -> None:
    """Send a byte at a time."""
    for byte in b"".join(map(_frame, range(1000))):
        peer.sendall(bytes([byte]))
        time.sleep(0.001)


def _deaf(peer: socket.socket, dice: random.Random) -> None:
    """Send and never read."""
    for number in range(1 << 30):
        peer.sendall(_frame(number))


def _flood(peer: socket.socket, dice: random.Random) -> None:
    """Send without waiting for answers, but read them."""
    peer.settimeout(0.0005)
    for number in range(1 << 30):
        with contextlib.suppress(TimeoutError):
            peer.sendall(_frame(number))
        if number % 16 == 0:
            with contextlib.suppress(TimeoutError):
                peer.recv(65536)


def _repeat(peer: socket.socket, dice: random.Random) -> None:
    """Use the same few numbers again and again, in lockstep."""
    peer.recv(65536)  # the welcome
    while True:
        peer.sendall(_frame(dice.randrange(4)))
        if not peer.recv(65536):
            return


def _again(peer: socket.socket, dice: random.Random) -> None:
    """Send the same frame for ever, in lockstep."""
    peer.recv(65536)
    peer.sendall(_frame(0))
    while peer.recv(65536):
        peer.sendall(_frame(0))


def _garbage(peer: socket.socket, dice: random.Random) -> None:
    """Send noise after a good beginning."""
    peer.sendall(_frame(0) + dice.randbytes(500))
    peer.recv(65536)


KINDS: dict[str, Callable[[socket.socket, random.Random], None]] = {
    "slow": _slow,
    "deaf": _deaf,
    "flood": _flood,
    "repeat": _repeat,
    "again": _again,
    "garbage": _garbage,
}


if __name__ == "__main__":
    main()
