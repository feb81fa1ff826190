"""The only user of clients' sockets, but for what lane.c receives by inlets and sends by outlets.

It accepts them, moves their bytes, and minds their clocks.

What a connection means is decided by its ``Desk``. A connection that breaks the rules is told so
and closed; no exception of one connection reaches another or the loop.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import secrets
import socket
import ssl
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, cast
from typing import Protocol as Interface

from server.net import wire
from server.net.proof import NONCE_BYTES
from server.net.protocol import Event, Protocol
from server.net.wire import (
    Bye,
    Error,
    Frame,
    Hello,
    Ping,
    Pong,
    Preview,
    Proof,
    Reject,
    Welcome,
    WireError,
)
from server.spaces import Spaces

_LINGER_S = 2.0  # to deliver the last message before a connection is cut
_PACE_S = 0.001  # between frames of a client that does not wait for answers
_WRITE_LIMIT_BYTES = 64 * 1024  # unsent replies before we stop reading from a client
_CHUNK_BYTES = 1 << 16  # read at once
_INSIDE = "127.0.0.1"
_UNPROVEN = "wrong or missing token; start the client with this server's token"


@dataclass(frozen=True, slots=True)
class Limits:
    """What clients may take of the server; whoever asks for more is refused, and told why."""

    message_bytes: int = 1 << 20
    unfinished_bytes: int = 1 << 26  # of messages that are not whole yet, of all connections
    connections: int = 1 << 16
    silent: int = 256  # connections that have not said Hello
    per_address: int = 256  # connections
    hello_s: float = 10.0
    silence_s: float = 60.0  # of a client that plays


class Taker(NamedTuple):
    """Who takes a client's usual frames before they are read."""

    message: Callable[[bytes], None]  # one that has the length of a usual frame
    socket: Callable[[int], bytes | None]  # what there is; gives back the unusual, b"" at the end


class ListenError(OSError):
    """The server cannot listen there; the message names the address and the fix."""


def received(descriptor: int) -> bytes | None:
    """Give what has come by a socket that does not block; b"" at the end, None if nothing has."""
    try:
        return os.read(descriptor, _CHUNK_BYTES)
    except (BlockingIOError, InterruptedError):
        return None
    except OSError:
        return b""


class Desk(Interface):
    """Who decides what becomes of a connection."""

    def greet(self, connection: Connection, hello: Hello) -> None:
        """Answer a Hello with ``connection.welcome`` or ``connection.reject``.

        Where there is a token, the client has shown by then that it knows it.
        """

    def refused(self, connection: Connection, hello: Hello, reason: str) -> None:
        """Learn of a client that was turned away because it does not know the token."""

    def fault(self, connection: Connection, error: Exception) -> None:
        """Learn of an error of ours that one connection met."""


class Connection(asyncio.Protocol):
    """One client's socket."""

    _direct = True  # whether bytes may go out without passing ``write``

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._now_s = listener.now_s
        self._protocol = Protocol(
            max_message_bytes=listener.limits.message_bytes, token=listener.token
        )
        self._hello: Hello | None = None  # of a client that is being challenged
        self._transport: asyncio.Transport = cast(asyncio.Transport, None)  # until it is made
        self._plain_fd: int | None = None  # where bytes go out as they are
        # The same for code in C, -1 while it must not: where others wait, or after the last word.
        self.outlet = ctypes.c_int32(-1)
        self._on_frame: Callable[[Frame], None] | None = None
        self._taker: Taker | None = None
        self._inlet: int | None = None  # the descriptor that bytes come by, past the transport
        self._on_lost: Callable[[str], None] | None = None
        self._on_preview: Callable[[Preview], None] | None = None
        self._lost = False
        self._held = False  # whether frames wait for their time
        self.unfinished_bytes = 0  # of a message, counted by the listener
        self._reason = "the connection was lost"
        self.host = ""
        self.address = ""
        self.opened_s = 0.0
        self.heard_s = 0.0
        self.pinged_s = 0.0
        self.stuck_s: float | None = None  # since when the client does not read its replies

    # --- asyncio's side ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin a connection."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_WRITE_LIMIT_BYTES)
        sock = transport.get_extra_info("socket")
        if sock is not None and transport.get_extra_info("sslcontext") is None:
            self._plain_fd = sock.fileno()
            self.outlet.value = self._plain_fd if self._direct else -1
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # Bounds what the kernel holds for a client that does not read its (tiny) replies.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _WRITE_LIMIT_BYTES)
        peer = transport.get_extra_info("peername")
        self.host = str(peer[0]) if peer else "unknown"
        self.address = f"{peer[0]}:{peer[1]}" if peer else self.host
        self.opened_s = self.heard_s = self._listener.now_s()
        self._listener.opened(self)

    def data_received(self, data: bytes) -> None:
        """Take bytes from the client."""
        self.heard_s = self._now_s()
        if self._taker is None or not self._protocol.may_be_usual(data):
            self.read(data)
            return
        try:
            self._taker.message(data)
        except Exception as error:  # the rim of one connection: reported, and it alone is closed
            self._fail(error)

    # --- bytes that come past the transport ---------------------------------------------------

    def _open_inlet(self) -> None:
        """Have the client's socket read by who takes its frames: a few calls instead of many."""
        if self._taker is None or self._plain_fd is None or not self._direct:
            return
        try:
            self._inlet = os.dup(self._plain_fd)  # a loop does not watch one descriptor twice
        except OSError:  # too many: the transport goes on reading
            return
        self._transport.pause_reading()
        self._read_if_free()

    def _close_inlet(self) -> None:
        if self._inlet is not None:
            self._stop_reading()
            os.close(self._inlet)
            self._inlet = None

    def _ready(self) -> None:
        """Have what came taken, unless it goes on with what is not whole yet."""
        self.heard_s = self._now_s()
        assert self._taker is not None and self._inlet is not None
        take = received if self.unfinished_bytes else self._taker.socket
        try:
            data = take(self._inlet)
        except Exception as error:  # the rim of one connection, as above
            self._fail(error)
            return
        if data:
            self.read(data)
            if self._inlet is not None:
                # uvloop calls only once after a reset, and what came before hid it from us.
                self._stop_reading()
                self._read_if_free()
        elif data is not None and self._inlet is not None:  # the transport finds out why
            self._close_inlet()
            self._transport.resume_reading()

    def _stop_reading(self) -> None:
        if self._inlet is None:
            self._transport.pause_reading()
        else:
            asyncio.get_running_loop().remove_reader(self._inlet)

    # --- what they mean -----------------------------------------------------------------------

    def read(self, data: bytes) -> None:
        """Find out what bytes say, and have it done."""
        frame = self._protocol.lone_frame(data)
        if frame is None:
            self._work(self._protocol.receive(data))
            self._listener.keep(self, self._protocol.buffered_bytes)
            return
        try:
            self._on_frame(frame)  # type: ignore[misc]  # set by the welcome
        except Exception as error:  # the rim of one connection, as above
            self._fail(error)

    def _work(self, events: Iterator[Event], waiting: Frame | None = None) -> None:
        """Do what the events ask for, one frame at a time: nobody's flood is another's delay."""
        frame = waiting
        try:
            if frame is not None:
                self._on_frame(frame)  # type: ignore[misc]  # set by the welcome
            for event in events:
                if type(event) is not Frame:
                    self._control(event)
                elif frame is None:
                    frame = event
                    self._on_frame(frame)  # type: ignore[misc]
                else:
                    self._hold(events, event)
                    return
        except Exception as error:  # the rim of one connection, as above
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._listener.desk.fault(self, error)
        self.close(Error("the server met an error of its own with this connection"))

    def _hold(self, events: Iterator[Event], waiting: Frame) -> None:
        """Leave the rest for later, and read nothing more until it is done."""
        self._held = True
        self._stop_reading()
        asyncio.get_running_loop().call_later(_PACE_S, self._go_on, events, waiting)

    def _go_on(self, events: Iterator[Event], waiting: Frame) -> None:
        self._held = False
        self.heard_s = self._now_s()
        if self._transport.is_closing():
            return
        self._work(events, waiting)
        self._listener.keep(self, self._protocol.buffered_bytes)
        self._read_if_free()

    def _read_if_free(self) -> None:
        if self._held or self.stuck_s is not None or self._transport.is_closing():
            return
        if self._inlet is None:
            self._transport.resume_reading()
        else:
            asyncio.get_running_loop().add_reader(self._inlet, self._ready)

    def pause_writing(self) -> None:
        """Stop reading from a client that does not read."""
        self.stuck_s = self._listener.now_s()
        self._stop_reading()

    def resume_writing(self) -> None:
        """Go on: the client reads again."""
        self.stuck_s = None
        self.heard_s = self._now_s()  # it was silent because we did not listen
        self._read_if_free()

    def connection_lost(self, error: Exception | None) -> None:
        """End a connection."""
        self._lost = True
        self.outlet.value = -1
        self._close_inlet()
        self._listener.closed(self)
        if self._on_lost is not None:
            self._on_lost(self._reason)

    @property
    def core(self) -> int | None:
        """The core that a client on this machine sent its last bytes from, if the kernel tells."""
        sock = self._transport.get_extra_info("socket")
        option = getattr(socket, "SO_INCOMING_CPU", None)
        if sock is None or option is None or not self.host.startswith(("127.", "::1")):
            return None
        found: int = sock.getsockopt(socket.SOL_SOCKET, option)
        return found

    # --- the desk's side --------------------------------------------------------------------

    @property
    def closing(self) -> bool:
        """Whether nothing can be said to the client any more."""
        return self._transport.is_closing()

    def welcome(
        self,
        welcome: Welcome,
        spaces: Spaces,
        on_frame: Callable[[Frame], None],
        on_lost: Callable[[str], None],
        on_preview: Callable[[Preview], None] | None = None,
        taker: Taker | None = None,
    ) -> None:
        """Let the client play; say who takes its frames and who learns when it is gone.

        Pictures that nobody takes are dropped. Who takes frames unread gives back by ``read`` what
        turns out to be none.
        """
        self._on_frame, self._on_lost, self._on_preview = on_frame, on_lost, on_preview
        self._taker = taker
        self._listener.greeted(self)
        self.write(self._protocol.welcome(welcome, spaces))
        self._open_inlet()

    def reject(self, reason: str) -> None:
        """Turn the client away."""
        self.close(Reject(reason))

    def break_off(self, reason: str) -> None:
        """Close for what the client did wrong, playing or not."""
        self.close((Reject if self._on_frame is None else Error)(reason))

    def write(self, data: bytes) -> None:
        """Send bytes, unless the connection is on its way out.

        At once if nothing waits before them: the loop itself would write at the end of its turn.
        """
        transport = self._transport
        if transport.is_closing():
            return
        if self._plain_fd is None or transport.get_write_buffer_size():
            transport.write(data)
            return
        try:
            sent = os.write(self._plain_fd, data)
        except OSError:  # no room, or nobody there: the transport knows what to do
            sent = 0
        if sent < len(data):
            self.outlet.value = -1  # nothing may overtake the rest
            transport.write(data[sent:])
        elif self._direct:
            self.outlet.value = self._plain_fd

    def close(self, farewell: Reject | Bye | Error) -> None:
        """Say a last word and close."""
        if self._transport.is_closing():
            return
        self._reason = farewell.reason
        self.write(self._protocol.close(farewell))
        self._listener.keep(self, 0)
        self._end()

    def _end(self) -> None:
        """Close as soon as what was said is delivered."""
        self.outlet.value = -1
        self._close_inlet()
        self._transport.close()
        # A client that does not read would keep a closing transport open for ever.
        asyncio.get_running_loop().call_later(_LINGER_S, self._cut)

    def _cut(self) -> None:
        """End a connection whose last words are not read: no byte of it stays in the kernel."""
        sock = self._transport.get_extra_info("socket")
        if not self._lost and sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._transport.abort()

    # --- what a client says besides frames --------------------------------------------------

    def _control(self, event: Event) -> None:
        match event:
            case Hello() if self._listener.token:
                self._hello = event
                self.write(self._protocol.challenge(secrets.token_bytes(NONCE_BYTES)))
            case Hello():
                self._listener.desk.greet(self, event)
            case Proof():
                self._admit(event)
            case Ping():
                self.write(wire.encode(Pong()))
            case Preview():
                if self._on_preview is not None:
                    self._on_preview(event)
            case Bye():
                self._reason = event.reason
                self._end()
            case WireError():
                self.break_off(str(event))

    def _admit(self, answer: Proof) -> None:
        """Let the desk greet who knows the token, and nobody else."""
        assert self._hello is not None
        hello, self._hello = self._hello, None
        if self._protocol.is_proven(answer):
            self._listener.desk.greet(self, hello)
            return
        self._listener.desk.refused(self, hello, _UNPROVEN)
        self.reject(_UNPROVEN)


class Listener:
    """The server's front door."""

    def __init__(
        self,
        *,
        desk: Desk,
        limits: Limits,
        token: str = "",
        connect: Callable[[Listener], Connection] = Connection,
    ) -> None:
        self.desk = desk
        self._connect = connect  # makes the connections
        self.token = token  # what clients must know; empty: whoever reaches us may play
        self.limits = limits
        self.address = ""
        self.port = 0
        self._from: Counter[str] = Counter()  # connections by where they come from
        self._unfinished_bytes = 0  # kept of messages that are not whole yet, of all connections
        self._servers: list[asyncio.Server] = []
        self._silent: dict[Connection, None] = {}  # not greeted yet, oldest first
        self._greeted: dict[Connection, None] = {}
        self.now_s: Callable[[], float] = time.monotonic

    async def start(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> None:
        """Listen, or say clearly why not."""
        self.port = await self._listen(host, port, tls)
        self.address = f"{host}:{self.port}"

    async def start_inside(self) -> str:
        """Listen for this machine too, without TLS, on a port that is free; give the address."""
        return f"{_INSIDE}:{await self._listen(_INSIDE, 0, None)}"

    async def _listen(self, host: str, port: int, tls: ssl.SSLContext | None) -> int:
        loop = asyncio.get_running_loop()
        try:
            server = await loop.create_server(
                lambda: self._connect(self),
                host,
                port,
                ssl=tls,
                ssl_handshake_timeout=self.limits.hello_s if tls else None,
            )
        except OSError as error:
            raise _refusal(host, port, error) from error
        self._servers.append(server)
        found: int = server.sockets[0].getsockname()[1]
        return found

    @property
    def lone(self) -> Connection | None:
        """The connection that plays, where there is only one."""
        return next(iter(self._greeted)) if len(self._greeted) == 1 else None

    def stop_accepting(self) -> None:
        """Take no new connections."""
        for server in self._servers:
            server.close()

    async def close(self, reason: str) -> None:
        """Say Bye to everyone and wait a moment for it to arrive."""
        self.stop_accepting()
        for connection in [*self._greeted, *self._silent]:
            connection.close(Bye(reason))
        deadline = self.now_s() + _LINGER_S + 0.5
        while (self._greeted or self._silent) and self.now_s() < deadline:
            await asyncio.sleep(0.01)

    def opened(self, connection: Connection) -> None:
        """Count a new connection; the oldest silent one makes room if there are too many."""
        self._silent[connection] = None
        self._from[connection.host] += 1
        if len(self._silent) + len(self._greeted) > self.limits.connections:
            connection.reject(
                f"no room for more than {self.limits.connections} connections: the server's limit "
                "of open files is too low (ulimit -n)"
            )
        elif self._from[connection.host] > self.limits.per_address:
            connection.reject(
                f"too many connections from {connection.host}: {self.limits.per_address} are "
                "allowed (--max-per-address)"
            )
        elif len(self._silent) > self.limits.silent:
            oldest = next(iter(self._silent))
            del self._silent[oldest]
            oldest.reject("too many connections that say nothing")

    def greeted(self, connection: Connection) -> None:
        """Count a connection that was welcomed."""
        self._silent.pop(connection, None)
        self._greeted[connection] = None

    def keep(self, connection: Connection, unfinished_bytes: int) -> None:
        """Count what a connection keeps of an unfinished message; who keeps most is closed."""
        self._unfinished_bytes += unfinished_bytes - connection.unfinished_bytes
        connection.unfinished_bytes = unfinished_bytes
        if self._unfinished_bytes > self.limits.unfinished_bytes:
            largest = max([*self._greeted, *self._silent], key=lambda other: other.unfinished_bytes)
            largest.break_off(
                f"unfinished messages of all clients are over {self.limits.unfinished_bytes:,} "
                "bytes (--max-unfinished-bytes), and yours was the longest"
            )

    def closed(self, connection: Connection) -> None:
        """Forget a connection."""
        self.keep(connection, 0)
        self._from[connection.host] -= 1
        if not self._from[connection.host]:
            del self._from[connection.host]
        self._silent.pop(connection, None)
        self._greeted.pop(connection, None)

    def mind_clocks(self) -> None:
        """Close who never says Hello, who fell silent and who does not read; ping the idle."""
        now = self.now_s()
        for connection in list(self._silent):
            if now - connection.opened_s > self.limits.hello_s:
                connection.reject(f"no Hello within {self.limits.hello_s:g} s")
        for connection in list(self._greeted):
            if connection.stuck_s is not None:  # we do not read from it either, so it is silent
                if now - connection.stuck_s > self.limits.silence_s:
                    connection.close(Error(f"replies not read for {self.limits.silence_s:g} s"))
            elif now - connection.heard_s > self.limits.silence_s:
                connection.close(Error(f"nothing heard for {self.limits.silence_s:g} s"))
            elif now - max(connection.heard_s, connection.pinged_s) > self.limits.silence_s / 3:
                connection.pinged_s = now
                connection.write(wire.encode(Ping()))


def is_loopback(host: str) -> bool:
    """Say whether only this machine can reach that address."""
    try:
        found: list[Any] = socket.getaddrinfo(host, None)
    except OSError:
        return False
    return all(str(entry[4][0]).startswith("127.") or entry[4][0] == "::1" for entry in found)


def check_free(host: str, port: int) -> None:
    """Raise the ListenError that starting a Listener there would raise now."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in found:
            with socket.socket(family, kind, protocol) as end:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                end.bind(address)
    except OSError as error:
        raise _refusal(host, port, error) from error


def _refusal(host: str, port: int, error: OSError) -> ListenError:
    if error.errno == errno.EADDRINUSE:
        return ListenError(
            f"port {port} on {host} is in use by another program; "
            "choose another with --port, or end that program"
        )
    return ListenError(f"cannot listen on {host}:{port}: {error.strerror}")
