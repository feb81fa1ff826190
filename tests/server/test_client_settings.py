"""Settings for game scripts: from the command line, or changed while they play, to every client."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from live import SPACES, Client, Server

import config
from server.app import App
from server.net import wire

Start = Callable[..., Server]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("level=9", 9),
        ("level=-3", -3),
        ("level=0.5", 0.5),
        ("level=2.0", 2),
        ("level=1e30", 1e30),
        ("level=high", "high"),
        ("level=a=b", "a=b"),
        ("level=nan", "nan"),
        ("level=1e999", "1e999"),
    ],
)
def test_a_value_that_is_a_number_becomes_one(text: str, value: Any) -> None:
    got = config.client_settings([text])
    assert got == {"level": value}
    assert type(got["level"]) is type(value)


def test_the_later_one_wins() -> None:
    got = config.client_settings(["level=1", "speed=2", "level=3"])
    assert got == {"level": 3, "speed": 2}


@pytest.mark.parametrize("text", ["level", "level=", "=9", "le vel=9", "x" * 65 + "=1", ""])
def test_another_form_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(config.ConfigError, match="must be name=value, such as start_level=9"):
        config.from_values({"server": {"client_setting": [text]}})


def test_no_more_than_a_message_holds() -> None:
    texts = [f"s{number}=1" for number in range(32)]
    assert len(config.client_settings(texts[:31])) == 31
    with pytest.raises(config.ConfigError, match="32 settings are more than the 31"):
        config.from_values({"server": {"client_setting": texts}})


def test_every_client_is_told_in_its_welcome(start: Start) -> None:
    server = start("--client-setting", "start_level=9", "--client-setting", "mood=calm")
    for name in ("one", "two"):
        client = Client(server.port)
        welcome = client.hello(client=name)
        assert isinstance(welcome, wire.Welcome)
        assert welcome.settings["start_level"] == 9
        assert welcome.settings["mood"] == "calm"
        client.frame()
        assert client.receive().settings is None


class Peer:
    """A client on the loop."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._sequence = 0

    @classmethod
    async def connect(cls, port: int, resume: str = "") -> tuple[Peer, wire.Welcome]:
        peer = cls(*await asyncio.open_connection("127.0.0.1", port))
        peer._writer.write(wire.encode(wire.Hello("t", "1", "game", "game", SPACES, resume=resume)))
        welcome = wire.read_control(await peer._read())
        assert isinstance(welcome, wire.Welcome)
        return peer, welcome

    async def play(self) -> wire.Action:
        """Send a frame and give its answer."""
        frame = wire.Frame(self._sequence, 0, [0.0], bytes(16))
        self._sequence += 1
        self._writer.write(wire.encode_frame(frame))
        return wire.read_action(await self._read())

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()

    async def _read(self) -> Any:
        size = int.from_bytes(await self._reader.readexactly(4), "little")
        return wire.unpack(await self._reader.readexactly(size))


def with_app(tmp_path: Path, test: Callable[[App], Any]) -> None:
    """Run a test beside a whole server on a real socket, in one loop."""
    settings = config.from_values(
        {
            "server": {"port": 0, "client_setting": ["start_level=9"]},
            "run": {"runs_dir": str(tmp_path)},
            "network": {"hidden_sizes": [16]},
            "replay": {"replay_capacity": 4096, "replay_storage": "memory"},
            "trainer": {"training": False},
        }
    )

    async def run() -> None:
        app = App(settings)
        await app.startup()
        try:
            await asyncio.wait_for(test(app), 30)
        finally:
            await app.shutdown()
            gc.unfreeze()

    asyncio.run(run())


def test_a_change_comes_with_the_next_action_once(tmp_path: Path) -> None:
    async def test(app: App) -> None:
        one, _ = await Peer.connect(app.listener.port)
        two, _ = await Peer.connect(app.listener.port)
        assert (await one.play()).settings is None
        app.lobby.set_client_settings({"start_level": 20})
        app.lobby.set_client_settings({"mood": "calm"})
        for peer in (one, two):
            assert (await peer.play()).settings == {"start_level": 20, "mood": "calm"}
            assert (await peer.play()).settings is None
            await peer.close()

    with_app(tmp_path, test)


def test_who_comes_later_or_comes_back_is_welcomed_with_the_change(tmp_path: Path) -> None:
    async def test(app: App) -> None:
        lost, welcome = await Peer.connect(app.listener.port)
        assert welcome.settings["start_level"] == 9
        await lost.play()
        await lost.close()
        while app.lobby.connected:
            await asyncio.sleep(0.01)
        app.lobby.set_client_settings({"start_level": 20})
        back, welcome = await Peer.connect(app.listener.port, welcome.session)
        assert welcome.resumed
        assert welcome.settings["start_level"] == 20
        assert (await back.play()).settings is None
        late, welcome = await Peer.connect(app.listener.port)
        assert welcome.settings["start_level"] == 20
        await back.close()
        await late.close()

    with_app(tmp_path, test)
