"""A small HTTP server on this machine's own address where Prometheus reads the figures."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from server.exposition import AGENT_METRICS, CONTENT_TYPE, render
from server.stats import AgentView, Snapshot

_HOST = "127.0.0.1"
_PATIENCE_S = 5.0  # for a request to come whole
_MAX_REQUEST = 1 << 14  # bytes
_COUNTERS = [metric.figure for metric in AGENT_METRICS if metric.kind == "counter"]


class Exporter:
    """Answers GET /metrics; everything else is not found."""

    def __init__(self, snapshot: Callable[[], Snapshot]) -> None:
        self._snapshot = snapshot
        self._shown: dict[str, dict[str, int]] = {}  # by agent: its counters, at their highest
        self._server: asyncio.Server | None = None

    async def start(self, port: int) -> str:
        """Listen; give the address to read from."""
        self._server = await asyncio.start_server(self._serve, _HOST, port, limit=_MAX_REQUEST)
        taken = self._server.sockets[0].getsockname()[1]
        return f"http://{_HOST}:{taken}/metrics"

    def close(self) -> None:
        """Answer nobody any more."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._answer(head.split(b"\r\n", 1)[0]))
                await writer.drain()
        except (TimeoutError, ConnectionError, asyncio.IncompleteReadError):
            pass  # they left, or said nothing
        except asyncio.LimitOverrunError:
            writer.write(_response("431 Request Header Fields Too Large", ""))
        finally:
            writer.close()

    def _answer(self, asked: bytes) -> bytes:
        if asked.split(b" ")[:2] != [b"GET", b"/metrics"]:
            return _response("404 Not Found", "the figures are at /metrics\n")
        snapshot = self._snapshot()
        agents = tuple(map(self._never_lower, snapshot.agents))
        return _response("200 OK", render(replace(snapshot, agents=agents)))

    def _never_lower(self, agent: AgentView) -> AgentView:
        """Show no counter lower than before, though a learner that fell has to catch up.

        Prometheus would take it for one that began at zero, and count all of it again.
        """
        before = self._shown.get(agent.name, {})
        counters = {name: max(getattr(agent, name), before.get(name, 0)) for name in _COUNTERS}
        self._shown[agent.name] = counters
        return replace(agent, **counters)


def _response(status: str, text: str) -> bytes:
    body = text.encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {CONTENT_TYPE}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
