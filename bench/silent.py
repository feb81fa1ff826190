"""A server that welcomes a client and never answers its frames: what waiting costs the client."""

from __future__ import annotations

import asyncio
from typing import cast

from server.net import wire

WELCOME = wire.Welcome("session", heartbeat_s=20.0, max_message_bytes=1 << 20)


class Silence(asyncio.Protocol):
    """Answers the first message, which is the Hello, and nothing else."""

    def __init__(self, asked: asyncio.Event) -> None:
        self._asked = asked
        self._welcomed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin a connection."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Welcome the client; note that it has asked for an action."""
        if self._welcomed:
            self._asked.set()
        else:
            self._transport.write(wire.encode(WELCOME))
        self._welcomed = True


async def listen(asked: asyncio.Event) -> asyncio.Server:
    """Start a silent server on a free loopback port; the event is set once a client waits."""
    loop = asyncio.get_running_loop()
    return await loop.create_server(lambda: Silence(asked), "127.0.0.1", 0)
