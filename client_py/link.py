"""The client's end of one connection: a Frame out, its Action back.

What can go wrong:

    LinkError
    ├── Unreachable      no connection could be made
    ├── Rejected         the server said no to the Hello; trying again will not help
    ├── Distrusted       the server did not show that it is the right one; no use trying again
    ├── ServerClosed     the server said Bye or Error, went away, or broke the protocol
    └── LinkTimeout      the server did not answer in time
"""

# ruff: noqa: N818 - these say what happened, which need not be an error

from __future__ import annotations

import secrets
import socket
import ssl
import time
from collections import deque
from contextlib import suppress
from dataclasses import replace

from server.net import proof, wire
from server.net.wire import (
    Action,
    Bye,
    Challenge,
    Error,
    Frame,
    Hello,
    Ping,
    Pong,
    Preview,
    Proof,
    Reject,
    Welcome,
)

_MAX_REPLY_BYTES = 1 << 20  # no answer of a sane server comes near
_CHUNK_BYTES = 1 << 16


class LinkError(Exception):
    """A connection that cannot be used; the message says why."""


class Unreachable(LinkError):
    """No connection could be made."""


class Rejected(LinkError):
    """The server said no to the Hello; trying again will not help."""


class Distrusted(LinkError):
    """The server did not show that it is the right one; trying again will not help."""


class ServerClosed(LinkError):
    """The server ended the connection."""


class LinkTimeout(LinkError):
    """The server did not answer in time."""


class Link:
    """One blocking connection to a server."""

    __slots__ = ("_hurried", "_messages", "_socket", "_splitter", "_timeout_s")

    def __init__(
        self,
        host: str,
        port: int,
        *,
        timeout_s: float,
        connect_timeout_s: float,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        try:
            self._socket = socket.create_connection((host, port), connect_timeout_s)
        except OSError as error:
            raise Unreachable(_plain(error)) from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self._socket = _encrypted(self._socket, tls, host)
        self._socket.settimeout(timeout_s)
        self._timeout_s = timeout_s
        self._hurried = False  # the socket's timeout is shorter than timeout_s now
        self._splitter = wire.Splitter(_MAX_REPLY_BYTES)
        self._messages: deque[bytes] = deque()  # complete payloads, not read yet

    def greet(self, hello: Hello, token: str = "") -> Welcome:  # nosec B107
        """Say Hello and give the server's Welcome; raise Rejected at its no.

        With a token, both sides show that they know it, and neither sends it.
        """
        if token:
            hello = replace(hello, nonce=secrets.token_bytes(proof.NONCE_BYTES))
        data = wire.encode(hello)
        said, expected = data[wire.HEADER_BYTES :], b""
        self.send(data)
        deadline = time.monotonic() + self._timeout_s
        while True:
            message = self._receive(deadline)
            if isinstance(message, Challenge):
                expected = proof.by_server(token, message.nonce, said)
                self.send(wire.encode(Proof(proof.by_client(token, message.nonce, said))))
            elif isinstance(message, Welcome):
                if token and not (expected and proof.equal(message.proof, expected)):
                    raise Distrusted(
                        "it did not show that it knows the token; is it the right server, and was "
                        "it started with the token?"
                    )
                return message
            elif isinstance(message, Reject):
                raise Rejected(message.reason)
            self._hurry(deadline)

    def exchange(self, frame: Frame, preview: Preview | None = None) -> Action:
        """Send a Frame and wait for its Action, whatever else arrives before it.

        A picture goes right before the Frame: nothing answers it.
        """
        data = wire.encode_frame(frame)
        self.send(data if preview is None else wire.encode(preview) + data)
        return self.answer(frame.sequence)

    def answer(self, sequence: int) -> Action:
        """Wait for the Action to the frame of this number."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            message = self._receive(deadline)
            # An answer that came after its frame was given up belongs to nobody.
            if type(message) is Action and message.sequence == sequence:
                return message
            self._hurry(deadline)

    def wake(self) -> None:
        """End the wait for an answer at once; safe in a signal handler."""
        with suppress(OSError):  # closed already: nobody waits
            # Not the TLS socket's own: what is said after it would go out in clear.
            socket.socket.shutdown(self._socket, socket.SHUT_RD)

    def close(self, reason: str) -> None:
        """Say Bye, if anybody still listens, and close."""
        with suppress(OSError):  # the server went first
            self._socket.sendall(wire.encode(Bye(reason[: wire.MAX_TEXT])))
        self._socket.close()

    def drop(self) -> None:
        """Close without a Bye, so that the session can be resumed."""
        self._socket.close()

    def send(self, data: bytes) -> None:
        """Send bytes as they are; what went wrong, the next wait for an answer says."""
        if self._hurried:
            self._socket.settimeout(self._timeout_s)
            self._hurried = False
        try:
            self._socket.sendall(data)
        except TimeoutError:
            raise LinkTimeout(f"the server took nothing in for {self._timeout_s:g} s") from None
        except OSError:
            pass  # the read that follows says why, in the server's own words if it left any

    def _receive(self, deadline: float) -> Action | wire.Control:
        """Give the next message; answer a Ping, raise at a Bye."""
        if not self._messages:
            self._fill(deadline)
        try:
            value = wire.unpack(self._messages.popleft())
            if type(value) is list:
                return wire.read_action(value)
            if type(value) is not dict:
                raise wire.InvalidError("a message is a map or an array")
            message = wire.read_control(value)
        except wire.WireError as error:
            raise ServerClosed(f"the server broke the protocol: {error}") from error
        if isinstance(message, Ping):
            self.send(wire.encode(Pong()))
        elif isinstance(message, Bye | Error):
            raise ServerClosed(message.reason)
        return message

    def _fill(self, deadline: float) -> None:
        """Read until at least one message is complete."""
        while True:
            try:
                data = self._socket.recv(_CHUNK_BYTES)
            except TimeoutError:
                raise LinkTimeout(f"no answer for {self._timeout_s:g} s") from None
            except OSError as error:
                raise ServerClosed(_plain(error)) from error
            if not data:
                raise ServerClosed("the server closed the connection")
            self._messages.extend(self._splitter.feed(data))
            if self._messages:
                return
            if self._splitter.fault is not None:
                raise ServerClosed(f"the server broke the protocol: {self._splitter.fault}")
            self._hurry(deadline)

    def _hurry(self, deadline: float) -> None:
        """Wait no longer than the rest of the time; the usual answer never comes here."""
        remaining_s = deadline - time.monotonic()
        if remaining_s <= 0:
            raise LinkTimeout(f"no answer for {self._timeout_s:g} s")
        self._socket.settimeout(remaining_s)
        self._hurried = True


def _encrypted(plain: socket.socket, tls: ssl.SSLContext, host: str) -> socket.socket:
    """Begin TLS on a new connection; who cannot show a certificate for its address is not heard."""
    try:
        return tls.wrap_socket(plain, server_hostname=host)
    except ssl.SSLCertVerificationError as error:
        plain.close()
        raise Distrusted(
            f"its certificate is not to be trusted ({error.verify_message}); name the "
            "right one, or its authority, with --tls-ca"
        ) from error
    except OSError as error:
        plain.close()
        raise Unreachable(f"no TLS there: {_plain(error)}") from error


def _plain(error: OSError) -> str:
    return error.strerror or str(error)
