"""The listener's clocks and back-pressure, on real sockets in one loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

import pytest
import uvloop

from server.net import wire
from server.net.listener import (
    Connection,
    Limits,
    Listener,
    ListenError,
    Taker,
    is_loopback,
    received,
)
from server.net.wire import Frame, Hello, Welcome
from server.spaces import Actions, Discrete, Observation, Spaces

SPACES = Spaces(Observation("uint8", (4,)), Actions((Discrete("stick", 3),), ()), ("score",))


RUNNERS: dict[str, Callable[[Coroutine[Any, Any, None]], None]] = {
    "asyncio": asyncio.run,
    "uvloop": uvloop.run,
}


@pytest.fixture(autouse=True, params=["asyncio", "uvloop", "asyncio, inlet", "uvloop, inlet"])
def way(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each test on both loops, with bytes that come by the transport and past it."""
    runner, _, inlet = request.param.partition(", ")
    with (
        mock.patch.object(Desk, "by_inlet", bool(inlet)),
        mock.patch.object(Desk, "run", staticmethod(RUNNERS[runner])),
    ):
        yield


class Desk:
    """Welcomes everyone and notes what happens."""

    by_inlet = False
    run: Callable[[Coroutine[Any, Any, None]], None] = staticmethod(asyncio.run)

    def __init__(self) -> None:
        self.connections: list[Connection] = []
        self.frames: list[Frame] = []
        self.previews: list[wire.Preview] = []
        self.keeps_previews = True
        self.lost: list[str] = []
        self.faults: list[Exception] = []
        self.turned_away: list[tuple[str, str]] = []
        self.broken = False
        self.cannot_take = False

    def greet(self, connection: Connection, hello: Hello) -> None:
        if self.broken:
            raise RuntimeError("broken for the test")
        self.connections.append(connection)
        connection.welcome(
            Welcome("s", 1.0, 1000),
            hello.spaces,
            self.frames.append,
            self.lost.append,
            self.previews.append if self.keeps_previews else None,
            Taker(connection.read, self.take) if self.by_inlet else None,
        )

    def take(self, descriptor: int) -> bytes | None:
        """Take nothing: all of it is to be read."""
        if self.cannot_take:
            raise RuntimeError("broken for the test")
        return received(descriptor)

    def refused(self, connection: Connection, hello: Hello, reason: str) -> None:
        self.turned_away.append((hello.client, reason))

    def fault(self, connection: Connection, error: Exception) -> None:
        self.faults.append(error)


def on_loop(test: Callable[[Desk, Listener], Awaitable[None]]) -> None:
    """Run a test beside a listener whose clock the test may turn."""

    async def run() -> None:
        desk = Desk()
        listener = Listener(
            desk=desk,
            limits=Limits(
                message_bytes=2000,
                unfinished_bytes=3000,
                silent=3,
                per_address=6,
                hello_s=5.0,
                silence_s=6.0,
            ),
        )
        await listener.start("127.0.0.1", 0)
        try:
            await test(desk, listener)
        finally:
            await listener.close("done")
            while Peer.opened:
                writer = Peer.opened.pop().writer
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()

    Desk.run(run())


class Peer:
    """The other side."""

    opened: ClassVar[list[Peer]] = []

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        Peer.opened.append(self)
        self.reader, self.writer = reader, writer

    @classmethod
    async def connect(cls, listener: Listener, *, hello: bool = True) -> Peer:
        peer = cls(*await asyncio.open_connection("127.0.0.1", listener.port))
        if hello:
            peer.writer.write(wire.encode(Hello("t", "1", "g", "g", SPACES)))
            assert isinstance(await peer.receive(), Welcome)
        else:
            await asyncio.sleep(0.01)
        return peer

    async def receive(self) -> object:
        header = await self.reader.read(4)
        if not header:
            return None
        return wire.read_control(
            wire.unpack(await self.reader.readexactly(int.from_bytes(header, "little")))
        )


def descriptors() -> int:
    """Give the number of descriptors that are open."""
    return len(list(Path("/dev/fd").iterdir()))


def turn_clock(listener: Listener, seconds: float) -> None:
    """Let time pass for the listener."""
    now = listener.now_s
    listener.now_s = lambda: now() + seconds
    listener.mind_clocks()


def test_who_never_says_hello_is_told_and_closed() -> None:
    async def test(desk: Desk, listener: Listener) -> None:
        peer = await Peer.connect(listener, hello=False)
        turn_clock(listener, 4.9)
        turn_clock(listener, 0.2)
        assert await peer.receive() == wire.Reject("no Hello within 5 s")
        assert await peer.receive() is None

    on_loop(test)


def test_the_oldest_silent_connection_makes_room() -> None:
    async def test(desk: Desk, listener: Listener) -> None:
        peers = [await Peer.connect(listener, hello=False) for _ in range(4)]
        told = await peers[0].receive()
        assert told == wire.Reject("too many connections that say nothing")

    on_loop(test)


def test_one_address_has_only_so_many_connections() -> None:
    async def test(desk: Desk, listener: Listener) -> None:
        peers = [await Peer.connect(listener) for _ in range(6)]
        one_more = await Peer.connect(listener, hello=False)
        assert await one_more.receive() == wire.Reject(
            "too many connections from 127.0.0.1: 6 are allowed (--max-per-address)"
        )
        assert await one_more.receive() is None
        peers[0].writer.write(wire.encode(wire.Bye("home")))
        assert await peers[0].receive() is None
        await asyncio.sleep(0.05)
        await Peer.connect(listener)  # there is room again

    on_loop(test)


def test_unfinished_messages_of_all_have_a_limit_and_the_longest_goes() -> None:
    async def test(desk: Desk, listener: Listener) -> None:
        small, large, last = [await Peer.connect(listener) for _ in range(3)]
        part = (1999).to_bytes(4, "little")
        small.writer.write(part + bytes(600))
        large.writer.write(part + bytes(1800))
        await asyncio.sleep(0.05)
        last.writer.write(part + bytes(600))  # 3,012 bytes in all
        told = await large.receive()
        assert isinstance(told, wire.Error)
        assert "over 3,000 bytes (--max-unfinished-bytes)" in told.reason
        assert await large.receive() is None
        again = await Peer.connect(listener)  # what it kept is free again
        again.writer.write(part + bytes(1700))
        await asyncio.sleep(0.05)
        for peer in (small, last):
            peer.writer.write(bytes(1999 - 600))  # the whole is no message, and they are told
            assert "msgpack" in str(await peer.receive())
        assert desk.faults == []

    on_loop(test)


def test_an_idle_client_is_pinged_then_closed() -> None:
    async def test(desk: Desk, listener: Listener) -> None:
        peer = await Peer.connect(listener)
        turn_clock(listener, 2.1)
        assert await peer.receive() == wire.Ping()
        turn_clock(listener, 4.0)
        assert await peer.receive() == wire.Error("nothing heard for 6 s")
        assert await peer.receive() is None
        await asyncio.sleep(0.01)
        assert desk.lost == ["nothing heard for 6 s"]

    on_loop(test)


def test_who_says_bye_but_does_not_read_is_cut_off() -> None:
    async def test(desk: Desk, listener: Listener) -> None:
        peer = await Peer.connect(listener)
        (connection,) = desk.connections
        for _ in range(2000):
            connection.write(bytes(10_000))
        connection.resume_writing()  # read from it once more, as the kernel might let us
        peer.writer.write(wire.encode(wire.Bye("home")))
        await asyncio.sleep(2.3)
        assert desk.lost == ["home"]

    on_loop(test)


def test_a_ping_is_answered_and_a_bye_ends() -> None:
    async def test(desk: Desk, listener: Listener) -> None:
        peer = await Peer.connect(listener)
        peer.writer.write(wire.encode(wire.Ping()) + wire.encode(wire.Bye("home")))
        assert await peer.receive() == wire.Pong()
        assert await peer.receive() is None
        assert desk.lost == ["home"]

    on_loop(test)


@pytest.mark.parametrize("kept", [True, False])
def test_a_preview_is_taken_or_dropped_and_never_answered(kept: bool) -> None:
    async def test(desk: Desk, listener: Listener) -> None:
        desk.keeps_previews = kept
        peer = await Peer.connect(listener)
        previews = [wire.Preview(5, 3, bytes([shade] * 45)) for shade in (1, 2)]
        frame = Frame(0, 0, [0.0], bytes(4))
        for preview in previews:
            peer.writer.write(wire.encode(preview))
        peer.writer.write(wire.encode_frame(frame) + wire.encode(wire.Ping()))
        assert await peer.receive() == wire.Pong()
        assert desk.previews == (previews if kept else [])
        assert desk.frames == [frame]

    on_loop(test)


def test_a_broken_preview_closes_its_connection_with_the_reason() -> None:
    async def test(desk: Desk, listener: Listener) -> None:
        other = await Peer.connect(listener)
        peer = await Peer.connect(listener)
        peer.writer.write(wire.encode(wire.Preview(5, 3, bytes(44))))
        told = "a preview of 5x3 RGB pixels has 45 bytes, not 44 bytes"
        assert await peer.receive() == wire.Error(told)
        assert await peer.receive() is None
        other.writer.write(wire.encode(wire.Ping()))
        assert await other.receive() == wire.Pong()
        assert desk.lost == [told] and desk.previews == []

    on_loop(test)


def test_who_does_not_read_is_not_read_from_and_then_closed() -> None:
    async def test(desk: Desk, listener: Listener) -> None:
        peer = await Peer.connect(listener)
        (connection,) = desk.connections
        for _ in range(2000):  # more than the kernel and both sides' buffers hold
            connection.write(bytes(10_000))
        assert connection.stuck_s is not None
        peer.writer.write(wire.encode_frame(Frame(0, 0, [0.0], bytes(4))))
        await asyncio.sleep(0.05)
        assert not desk.frames
        turn_clock(listener, 6.1)
        assert desk.lost == []
        await asyncio.sleep(2.2)  # the time that its last message has
        assert desk.lost == ["replies not read for 6 s"]

    on_loop(test)


def test_who_reads_again_goes_on() -> None:
    async def test(desk: Desk, listener: Listener) -> None:
        peer = await Peer.connect(listener)
        (connection,) = desk.connections
        sent = 0
        while connection.stuck_s is None:
            connection.write(bytes(10_000))
            sent += 10_000
        await peer.reader.readexactly(sent)
        await asyncio.sleep(0.05)
        assert connection.stuck_s is None
        peer.writer.write(wire.encode_frame(Frame(0, 0, [0.0], bytes(4))))
        await asyncio.sleep(0.05)
        assert [frame.sequence for frame in desk.frames] == [0]

    on_loop(test)


def test_many_frames_at_once_are_taken_one_a_turn() -> None:
    async def test(desk: Desk, listener: Listener) -> None:
        peer = await Peer.connect(listener)
        other = await Peer.connect(listener)
        frames = [wire.encode_frame(Frame(n, 0, [0.0], bytes(4))) for n in range(50)]
        peer.writer.write(b"".join(frames))
        other.writer.write(wire.encode_frame(Frame(1000, 0, [0.0], bytes(4))))
        while len(desk.frames) < 51:
            await asyncio.sleep(0.001)
        order = [frame.sequence for frame in desk.frames]
        assert [n for n in order if n < 1000] == list(range(50))
        assert order.index(1000) < 10

    on_loop(test)


def test_an_error_of_ours_closes_one_connection_and_is_reported() -> None:
    async def test(desk: Desk, listener: Listener) -> None:
        other = await Peer.connect(listener)
        desk.broken = True
        peer = await Peer.connect(listener, hello=False)
        peer.writer.write(wire.encode(Hello("t", "1", "g", "g", SPACES)))
        told = await peer.receive()
        assert isinstance(told, wire.Error)
        assert "an error of its own" in told.reason
        assert [str(error) for error in desk.faults] == ["broken for the test"]
        other.writer.write(wire.encode(wire.Ping()))
        assert await other.receive() == wire.Pong()

    on_loop(test)


def test_a_message_may_come_in_pieces_and_with_others() -> None:
    async def test(desk: Desk, listener: Listener) -> None:
        peer = await Peer.connect(listener)
        first, second, third = (
            wire.encode_frame(Frame(1000 + number, 0, [0.0], bytes(4))) for number in range(3)
        )
        for piece in (first[:7], first[7:] + second[:1], second[1:], third):
            peer.writer.write(piece)
            await asyncio.sleep(0.02)
        assert [frame.sequence for frame in desk.frames] == [1000, 1001, 1002]

    on_loop(test)


def test_the_end_and_a_reset_of_a_connection_are_seen() -> None:
    async def test(desk: Desk, listener: Listener) -> None:
        before = descriptors()
        peer, other = await Peer.connect(listener), await Peer.connect(listener)
        peer.writer.write(wire.encode_frame(Frame(1000, 0, [0.0], bytes(4))))
        peer.writer.close()  # what it said before counts
        linger = struct.pack("ii", 1, 0)
        sock = other.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        other.writer.transport.abort()
        while len(desk.lost) < 2:
            await asyncio.sleep(0.01)
        assert desk.lost == ["the connection was lost"] * 2
        assert [frame.sequence for frame in desk.frames] == [1000]
        await asyncio.sleep(0.02)
        assert descriptors() <= before

    on_loop(test)


def test_a_reset_behind_words_that_need_no_reply_is_seen() -> None:
    async def test(desk: Desk, listener: Listener) -> None:
        for number, said in enumerate((wire.encode(wire.Pong()), wire.encode(wire.Ping())[:3])):
            peer = socket.create_connection(("127.0.0.1", listener.port))
            peer.sendall(wire.encode(Hello("t", "1", "g", "g", SPACES)))
            while len(desk.connections) == number:
                await asyncio.sleep(0.01)
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peer.sendall(said)
            peer.close()  # both before the loop polls again
            before = len(desk.lost)
            async with asyncio.timeout(5):
                while len(desk.lost) == before:
                    await asyncio.sleep(0.01)

    on_loop(test)


def test_who_cannot_take_bytes_closes_one_connection_only() -> None:
    async def test(desk: Desk, listener: Listener) -> None:
        peer, other = await Peer.connect(listener), await Peer.connect(listener)
        desk.cannot_take = True
        peer.writer.write(wire.encode(wire.Ping()))
        told = await peer.receive()
        desk.cannot_take = False
        if desk.by_inlet:
            assert isinstance(told, wire.Error)
            assert [str(error) for error in desk.faults] == ["broken for the test"]
        else:
            assert told == wire.Pong()
        other.writer.write(wire.encode(wire.Ping()))
        assert await other.receive() == wire.Pong()

    on_loop(test)


def test_without_another_descriptor_the_transport_reads() -> None:
    async def test(desk: Desk, listener: Listener) -> None:
        with mock.patch.object(os, "dup", side_effect=OSError("too many open files")):
            peer = await Peer.connect(listener)
        assert desk.connections[0]._inlet is None
        peer.writer.write(wire.encode(wire.Ping()))
        assert await peer.receive() == wire.Pong()

    on_loop(test)


def test_a_port_in_use_is_named() -> None:
    async def test(desk: Desk, listener: Listener) -> None:
        second = Listener(desk=desk, limits=Limits())
        with pytest.raises(ListenError, match=f"port {listener.port} on 127.0.0.1 is in use"):
            await second.start("127.0.0.1", listener.port)

    on_loop(test)


@pytest.mark.parametrize(
    ("host", "loopback"), [("127.0.0.1", True), ("::1", True), ("0.0.0.0", False), ("", False)]
)
def test_what_counts_as_loopback(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback
