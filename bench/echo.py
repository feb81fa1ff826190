"""A bare uvloop echo: the upper bound that the server is measured against."""

from __future__ import annotations

import asyncio
from typing import cast


class Echo(asyncio.Protocol):
    """Sends back what it gets."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin a connection."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Send it back."""
        self._transport.write(data)


async def listen() -> asyncio.Server:
    """Start an echo server on a free loopback port."""
    return await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", 0)
