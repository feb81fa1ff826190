"""Servers for the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from live import Client, Server


@pytest.fixture(autouse=True)
def close_clients() -> Iterator[None]:
    """Close whatever a test left open."""
    yield
    while Client.opened:
        Client.opened.pop().close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Start servers that end with the test."""
    servers: list[Server] = []

    def begin(*options: str, **rest: str) -> Server:
        servers.append(Server(tmp_path / "runs", *options, **rest))
        return servers[-1]

    yield begin
    for server in servers:
        server.kill()
