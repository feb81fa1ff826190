"""Load clients: lockstep players in a process of their own, at full speed or at a given pace.

``python -m bench.load`` is started by the benchmarks. For each pace it prints the line ``start``
when the warm-up is over, and at the end a line of JSON with what its clients saw. The clients stay
connected from one pace to the next.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
import os
import random
import struct
import time
from array import array
from typing import cast

import uvloop

from server.net import wire
from server.spaces import Actions, Discrete, Observation, Spaces

EPISODE_FRAMES = 1000
_SEQUENCE_AT = 6  # header 4, array 1, type byte of the number 1
_FLAGS_AT = 10
_VARIANTS = 32


def workload(values: int) -> Spaces:
    """Give the spaces of the default workload: uint8 values such as console RAM, six choices."""
    return Spaces(Observation("uint8", (values,)), Actions((Discrete("stick", 6),), ()), ("score",))


def frame_bytes(observation: bytes, reward: float) -> bytearray:
    """Give a frame whose sequence number and flags can be patched in place."""
    frame = wire.encode_frame(wire.Frame(0xFFFFFFFF, 0, [reward], observation))
    return bytearray(frame)


class Client(asyncio.Protocol):
    """One lockstep player."""

    def __init__(self, crowd: Crowd, number: int) -> None:
        self._crowd = crowd
        self._number = number
        self._transport = cast(asyncio.Transport, None)
        self._frames = crowd.frames_of(number)
        self._sequence = 0
        self._sent_s = 0.0
        self._due_s = 0.0
        self._buffer = b""
        self._welcomed = crowd.bare

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to play."""
        self._transport = cast(asyncio.Transport, transport)
        self.change_pace()
        if self._crowd.bare:
            self._next()
        else:
            self._transport.write(wire.encode(self._crowd.hello))

    def change_pace(self) -> None:
        """Go on at the crowd's pace of now: what was due before is not made up for."""
        self._due_s = time.perf_counter() + self._crowd.period_s * random.random()

    def data_received(self, data: bytes) -> None:
        """Take a reply and send the next frame."""
        data = self._buffer + data if self._buffer else data
        if len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "little"):
            self._buffer = data
            return
        self._buffer = b""
        if self._welcomed:
            now = time.perf_counter()
            self._crowd.answered(self._number, now - self._sent_s, now - self._due_s)
        elif type(wire.read_control(wire.unpack(data[4:]))) is wire.Welcome:
            self._welcomed = True
        self._next()

    def connection_lost(self, error: Exception | None) -> None:
        """Count a loss."""
        self._crowd.lost += 1

    def _next(self) -> None:
        if not self._crowd.period_s:
            self._send()
            return
        self._due_s += self._crowd.period_s
        wait_s = self._due_s - time.perf_counter()
        if wait_s <= 0:
            self._send()
        else:
            self._crowd.loop.call_later(wait_s, self._send)

    def _send(self) -> None:
        number = self._sequence
        self._sequence = number + 1
        frame = self._frames[number % _VARIANTS]
        place = number % EPISODE_FRAMES
        struct.pack_into(">I", frame, _SEQUENCE_AT, number)
        frame[_FLAGS_AT] = (
            wire.START if place == 0 else wire.TERMINAL if place == EPISODE_FRAMES - 1 else 0
        )
        self._crowd.sends()
        self._sent_s = time.perf_counter()
        self._transport.write(bytes(frame))


class Crowd:
    """All load clients and what they saw."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.loop = asyncio.get_running_loop()
        self.bare: bool = options.bare
        self.period_s = 0.0  # between frames of one client; 0: as fast as it is answered
        self.lost = 0
        self.hello = wire.Hello("load", "1", "bench", "bench", workload(options.values))
        self._values: int = options.values
        self._clients: list[Client] = []
        self._sent = 0
        self._counting = False

    def frames_of(self, number: int) -> list[bytearray]:
        """Make one client's frames."""
        dice = random.Random(number)
        return [
            frame_bytes(dice.randbytes(self._values), dice.choice([-1.0, 0.0, 0.0, 1.0]))
            for _ in range(_VARIANTS)
        ]

    def answered(self, number: int, latency_s: float, late_s: float) -> None:
        """Count one client's reply: its time since its frame was sent, and since it was due."""
        if self._counting:
            self._replies[number] += 1
            self._latencies.append(latency_s)
            self._lateness.append(late_s)

    def sends(self) -> None:
        """Count a frame that is sent."""
        self._sent += self._counting

    async def play(self, options: argparse.Namespace) -> None:
        """Connect everyone, and print what they see at one pace after the other."""
        self._set_pace(options.fps[0], options.clients)
        for number in range(options.clients):
            make = functools.partial(Client, self, number)
            _, client = await self.loop.create_connection(make, "127.0.0.1", options.port)
            self._clients.append(client)
        for fps in options.fps:
            self._set_pace(fps, options.clients)
            print(json.dumps(await self._count(options)), flush=True)

    def _set_pace(self, fps: float, clients: int) -> None:
        self.period_s = clients / fps if fps else 0.0
        for client in self._clients:
            client.change_pace()

    async def _count(self, options: argparse.Namespace) -> dict[str, float]:
        """Warm up, count for a while, and give the figures."""
        await asyncio.sleep(options.warmup)
        self._latencies = array("d")
        self._lateness = array("d")
        self._replies = [0] * options.clients  # by client
        self._sent = 0
        self._counting = True
        began = time.perf_counter()
        print("start", flush=True)
        await asyncio.sleep(options.seconds)
        self._counting = False
        seconds = time.perf_counter() - began
        latencies, lateness = sorted(self._latencies), sorted(self._lateness)
        if not latencies:
            raise SystemExit("no frame was answered")
        return {
            "fps": len(latencies) / seconds,
            "fps_sent": self._sent / seconds,
            "p50_ms": 1e3 * latencies[len(latencies) // 2],
            "p99_ms": 1e3 * latencies[int(len(latencies) * 0.99)],
            "max_ms": 1e3 * latencies[-1],
            "p99_due_ms": 1e3 * lateness[int(len(lateness) * 0.99)],
            "slowest_share": min(self._replies) * options.clients / len(latencies),
            "lost": self.lost,
        }


def main() -> None:
    """Play as the command line says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--values", type=int, default=128)
    parser.add_argument(
        "--fps",
        type=float,
        nargs="+",
        default=[0.0],
        help="paces, one after the other: all clients together; 0: as fast as they are answered",
    )
    parser.add_argument("--warmup", type=float, default=1.0)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--core", type=int, help="run on this core only")
    parser.add_argument("--bare", action="store_true", help="the other side is a bare echo")
    options = parser.parse_args()
    if options.core is not None:
        os.sched_setaffinity(0, {options.core})

    async def run() -> None:
        await Crowd(options).play(options)

    uvloop.run(run())


if __name__ == "__main__":
    main()
