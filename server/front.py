"""The way in for clients as the settings have it: limits, doors, and which agent a client gets."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from config import Config, client_settings
from server import descriptors
from server.agent import Agent
from server.lobby import Lobby, Refused
from server.net import tls
from server.net.listener import Connection, Limits, Listener, ListenError, is_loopback
from server.net.wire import Hello, Welcome
from server.stats import EventLog

_LEAST_TOKEN = 16  # characters, where other machines can try


def limits(config: Config) -> Limits:
    """Give what clients may take of this server."""
    server = config.server
    return Limits(
        message_bytes=server.max_message_bytes,
        unfinished_bytes=server.max_unfinished_bytes,
        connections=descriptors.connections(),
        silent=server.max_clients,
        per_address=server.max_per_address,
        hello_s=server.hello_timeout_s,
        silence_s=server.client_timeout_s,
    )


def lobby(
    config: Config,
    find_agent: Callable[[Hello], Agent],
    events: EventLog,
    examine: Callable[[Connection, Hello, Welcome], None],
) -> Lobby:
    """Give the desk that lets clients in."""
    server = config.server
    return Lobby(
        find_agent=find_agent,
        max_clients=server.max_clients,
        max_message_bytes=server.max_message_bytes,
        heartbeat_s=server.client_timeout_s / 3,
        resume_window_s=server.resume_window_s,
        client_settings=told_to_clients(config),
        clock=time.monotonic,
        events=events,
        examine=examine,
    )


def told_to_clients(config: Config) -> dict[str, Any]:
    """Give what every client is told: what games were set to, and when to show a picture."""
    # Said even if it is 0: a client may come from a server that asked for pictures.
    asked = {"preview_every": config.console.preview_every}
    return {**client_settings(config.server.client_setting), **asked}


async def listen(listener: Listener, config: Config, port: int) -> str:
    """Open the front door; give the address for emulators of our own.

    Those that speak Lua know no TLS, so with it they come in by a door for this machine only.
    """
    server = config.server
    if not server.tls_cert:
        await listener.start(server.host, port)
        return listener.address
    context = tls.for_server(Path(server.tls_cert), Path(server.tls_key))
    await listener.start(server.host, port, context)
    return await listener.start_inside()


def known_agent(config: Config, agents: Mapping[str, Agent], hello: Hello) -> Agent | None:
    """Give the agent that a client asks for, None if it would be new; Refused says why not."""
    agent = agents.get(hello.agent)
    if agent is None:
        if len(agents) >= config.server.max_agents:
            raise Refused(
                f"agent {hello.agent!r} would be one more than the {len(agents)} this "
                "server trains (--max-agents)"
            )
        return None
    if agent.spaces != hello.spaces:
        raise Refused(
            f"agent {hello.agent!r} expects {agent.spaces.describe()}; you announced "
            f"{hello.spaces.describe()}; start the client with the same observation "
            "and controls, or name another agent (--agent NAME)"
        )
    return agent


def check_open_host(host: str, token: str) -> None:
    """Refuse to be reached from other machines without a token that is hard to guess."""
    if is_loopback(host):
        return
    if not token:
        raise ListenError(
            f"host = {host!r} can be reached from other machines, so a token is "
            "needed: set COINOP_TOKEN or --token-file, or use --host 127.0.0.1"
        )
    if len(token) < _LEAST_TOKEN:  # who listens on the wire may try out tokens at leisure
        raise ListenError(
            f"host = {host!r} can be reached from other machines, and the token has "
            f"{len(token)} characters: it needs {_LEAST_TOKEN} or more; make one with "
            "`openssl rand -hex 32`"
        )
