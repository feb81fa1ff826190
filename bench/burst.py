"""What it costs to write replies to clients that sleep: one by one, or all in one burst.

``python -m bench.burst PORT CLIENTS`` is the other side: it connects and reads.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

from bench.figures import Round
from server.net import wire

_PAUSE_S = 0.002  # for the clients to read, and to fall asleep again


def measure(clients: int, seconds: float) -> Round:
    """Give the microseconds per reply of both ways, packing included, taken in turn."""
    ways = {"write_apart_us": _apart, "write_burst_us": _burst}
    spent_s: dict[str, list[float]] = {name: [] for name in ways}
    with _sleepers(clients) as sockets:
        deadline = time.perf_counter() + 2 * seconds
        while not spent_s["write_burst_us"] or time.perf_counter() < deadline:
            for name, way in ways.items():
                time.sleep(_PAUSE_S)
                began = time.perf_counter()
                way(sockets)
                spent_s[name].append(time.perf_counter() - began)
    return {name: 1e6 * statistics.median(times) / clients for name, times in spent_s.items()}


def _apart(sockets: list[socket.socket]) -> None:
    for number, client in enumerate(sockets):
        client.send(_reply(number))


def _burst(sockets: list[socket.socket]) -> None:
    replies = [_reply(number) for number in range(len(sockets))]
    for client, reply in zip(sockets, replies, strict=True):
        client.send(reply)


def _reply(number: int) -> bytes:
    return wire.encode_action(70_000 + number, [3], [], 0)


@contextlib.contextmanager
def _sleepers(clients: int) -> Iterator[list[socket.socket]]:
    """Connect a process whose clients sleep until they are written to."""
    with socket.create_server(("127.0.0.1", 0), backlog=clients) as server:
        port = server.getsockname()[1]
        reader = subprocess.Popen([sys.executable, "-m", "bench.burst", str(port), str(clients)])
        sockets: list[socket.socket] = []
        try:
            for _ in range(clients):
                sockets.append(_nodelay(server.accept()[0]))
            yield sockets
        finally:
            for one in sockets:
                one.close()
            reader.wait(10)


def _nodelay(connection: socket.socket) -> socket.socket:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def main() -> None:
    """Read from all connections until they are closed."""
    port, clients = (int(text) for text in sys.argv[1:])
    selector = selectors.DefaultSelector()
    for _ in range(clients):
        client = socket.create_connection(("127.0.0.1", port))
        selector.register(client, selectors.EVENT_READ, client.recv)
    while selector.get_map():
        for key, _ in selector.select():
            receive: Callable[[int], bytes] = key.data
            if not receive(4096):
                selector.unregister(key.fileobj)


if __name__ == "__main__":
    main()
