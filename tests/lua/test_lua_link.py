"""link.lua on every Lua: a scripted line for the odd cases, a real server for the normal one."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from live import SPACES, Server
from lua import VERSIONS, Lua

from server.net import proof, wire
from server.net.wire import Frame, FrameReader, Hello, Source, Welcome

HELLO = {
    "client": "lua",
    "client_version": "1",
    "game": "game",
    "agent": "game",
    "observation": {"dtype": "float32", "shape": [4]},
    "actions": {"discrete": [{"name": "stick", "choices": 3}]},
    "rewards": ["score"],
}
OBSERVATION = np.arange(4, dtype=np.float32).tobytes()


class Line:
    """A transport whose other side is a script; time passes only when somebody waits."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.reachable = True
        self.opened = 0
        self.heard: list[Any] = []  # what the client said on this connection
        self.waiting: list[bytes | None] = []  # chunks to deliver; None is a closed connection
        self.answer: Callable[[Any], list[bytes | None]] = lambda message: []
        self.log: list[str] = []

    def open(self, host: bytes, port: int) -> Any:
        self.opened += 1
        self.waiting = []
        if not self.reachable:
            return None, b"refused"
        return True

    def send(self, data: bytes) -> bool:
        for payload in wire.Splitter(1 << 20).feed(data):
            value = wire.unpack(payload)
            message = (
                FrameReader(SPACES)(value) if isinstance(value, list) else wire.read_control(value)
            )
            self.heard.append(message)
            self.waiting += self.answer(message)
        return True

    def receive(self, wait_s: float, wanted: int) -> Any:
        if self.waiting:
            chunk = self.waiting.pop(0)
            return (None, b"closed") if chunk is None else chunk
        self.now += wait_s
        return b""

    def close(self) -> None:
        self.waiting = []

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def make_link(lua: Lua, line: Any, **options: Any) -> Any:
    table = lua.table({"host": "127.0.0.1", "port": 9797, "hello": HELLO, **options})
    transport = lua.runtime.table()
    for name in ("open", "send", "receive", "close", "sleep"):
        transport[name.encode()] = getattr(line, name)
    table[b"transport"] = transport
    table[b"wire"] = lua.load("wire.lua")
    table[b"proof"] = lua.load("proof.lua")
    table[b"clock"] = lambda: line.now
    table[b"log"] = lambda text: line.log.append(text.decode())
    return lua.load("link.lua")[b"new"](table)


def exchange(lua: Lua, link: Any, flags: int = 0, preview: bytes | None = None) -> Any:
    frame = lua.table({"flags": flags, "rewards": [0.5]})
    frame[b"observation"] = OBSERVATION
    frame[b"preview"] = preview
    return lua.plain(link[b"exchange"](link, frame))


@pytest.fixture(params=VERSIONS)
def lua(request: pytest.FixtureRequest) -> Lua:
    return Lua(request.param)


def polite(message: Any, resumed: bool = False) -> list[bytes | None]:
    """Answer as a server does."""
    if isinstance(message, Hello):
        return [wire.encode(Welcome("session", 20.0, 1 << 20, {"level": 3}, resumed))]
    if isinstance(message, Frame):
        return [wire.encode_action(message.sequence, [2], [], Source.POLICY)]
    return []


def test_a_frame_for_an_action(lua: Lua) -> None:
    line = Line()
    line.answer = polite
    link = make_link(lua, line)
    first, second = exchange(lua, link), exchange(lua, link)
    assert first[b"discrete"] == second[b"discrete"] == [2]
    assert first[b"source"] == 0
    hello, *frames = line.heard
    assert hello == Hello("lua", "1", "game", "game", SPACES)
    # The first frame on a new session starts an episode, whatever the game thought.
    assert [(f.sequence, f.flags) for f in frames] == [(0, wire.START), (1, 0)]
    assert frames[0].observation == OBSERVATION
    assert lua.plain(link[b"settings"]) == {b"level": 3}


def test_any_chunking_of_the_answers(lua: Lua) -> None:
    line = Line()
    line.answer = lambda message: [
        bytes([byte]) for chunk in polite(message) if chunk for byte in chunk
    ]
    link = make_link(lua, line)
    assert exchange(lua, link)[b"discrete"] == [2]
    line.answer = lambda message: [wire.encode(wire.Ping()) + b"".join(polite(message))]  # type: ignore[arg-type]
    assert exchange(lua, link)[b"discrete"] == [2]
    assert line.heard[-1] == wire.Pong()


def test_a_stale_answer_is_nobodys(lua: Lua) -> None:
    line = Line()
    line.answer = polite
    link = make_link(lua, line)
    exchange(lua, link)
    line.answer = lambda message: [
        wire.encode_action(0, [1], [], Source.POLICY),
        wire.encode_action(message.sequence, [0], [], Source.POLICY),
    ]
    assert exchange(lua, link)[b"discrete"] == [0]


def test_without_a_server_the_game_goes_on_and_attempts_back_off(lua: Lua) -> None:
    line = Line()
    line.reachable = False
    link = make_link(lua, line)
    for _ in range(600):
        assert exchange(lua, link) is None
        line.now += 1 / 60
    # 10 s of play: attempts at 0, 0.5, 1.5, 3.5 and 7.5 s.
    assert line.opened == 5
    assert "trying again in 0.5 s" in line.log[0]
    line.reachable, line.answer = True, polite
    line.now += 20
    assert exchange(lua, link)[b"discrete"] == [2]
    frame = line.heard[-1]
    assert (frame.sequence, frame.flags) == (600, wire.START)


def test_it_can_wait_for_the_server_instead(lua: Lua) -> None:
    line = Line()
    line.reachable = False
    opened = line.open

    def third_time_lucky(host: bytes, port: int) -> Any:
        line.reachable = line.opened >= 2
        return opened(host, port)

    line.open, line.answer = third_time_lucky, polite  # type: ignore[method-assign]
    link = make_link(lua, line, wait=True)
    assert exchange(lua, link)[b"discrete"] == [2]
    assert line.opened == 3
    assert line.now == pytest.approx(1001.5, abs=0.1)


@pytest.mark.parametrize("resumed", [True, False])
def test_a_lost_connection_offers_its_session(lua: Lua, resumed: bool) -> None:
    line = Line()
    line.answer = polite
    link = make_link(lua, line)
    exchange(lua, link)
    cut = iter([True])

    def once_cut(message: Any) -> list[bytes | None]:
        if isinstance(message, Frame) and next(cut, False):
            return [None]
        return polite(message, resumed)

    line.answer = once_cut
    assert exchange(lua, link)[b"discrete"] == [2]
    hello, frame = line.heard[-2:]
    assert hello.resume == "session"
    # Sent again under its number; a start only if the session is a new one.
    assert (frame.sequence, frame.flags) == (1, 0 if resumed else wire.START)


@pytest.mark.parametrize("once", [False, True])
def test_with_several_servers_another_takes_over_without_a_pause(lua: Lua, once: bool) -> None:
    line, ports = Line(), []
    line.answer = polite
    opened, gone = line.open, set()

    def elsewhere(host: bytes, port: int) -> Any:
        ports.append(port)
        return (None, b"refused") if port in gone else opened(host, port)

    line.open = elsewhere  # type: ignore[method-assign]
    others = [["127.0.0.1", 9798], ["127.0.0.1", 9799]]
    link = make_link(lua, line, others=others, once=once)
    exchange(lua, link)
    gone |= {9797, 9798}
    cut = iter([True])
    line.answer = lambda message: (
        [None] if isinstance(message, Frame) and next(cut, False) else polite(message)
    )
    began = line.now
    assert exchange(lua, link)[b"discrete"] == [2]
    assert ports == ([9797, 9798, 9799] if once else [9797, 9797, 9798, 9799])
    assert line.now - began < 0.5
    frame = line.heard[-1]
    assert (frame.sequence, frame.flags) == (1, wire.START)  # nothing is linked across the gap
    gone.add(9799)
    line.answer = lambda message: [None]
    assert exchange(lua, link) is None
    assert (link[b"refused"] is not None) is once


def test_a_preview_goes_before_its_frame_and_only_once(lua: Lua) -> None:
    line = Line()
    line.answer = polite
    link = make_link(lua, line)
    preview = wire.Preview(2, 1, bytes(6))
    assert exchange(lua, link, preview=wire.encode(preview))[b"discrete"] == [2]
    assert [type(message) for message in line.heard] == [Hello, wire.Preview, Frame]
    assert line.heard[1] == preview
    cut = iter([True])

    def once_cut(message: Any) -> list[bytes | None]:
        if isinstance(message, Frame) and next(cut, False):
            return [None]
        return polite(message, True)

    line.answer, line.heard = once_cut, []
    assert exchange(lua, link, preview=wire.encode(preview))[b"discrete"] == [2]
    assert [type(message) for message in line.heard] == [wire.Preview, Frame, Hello, Frame]


def test_a_server_that_does_not_answer_is_lost_after_the_timeout(lua: Lua) -> None:
    line = Line()
    line.answer = polite
    link = make_link(lua, line, timeout_s=3)
    exchange(lua, link)
    line.answer = lambda message: [] if isinstance(message, Frame) else polite(message)
    before = line.now
    assert exchange(lua, link) is None
    assert 3 <= line.now - before < 8
    assert any("no answer for 3" in text for text in line.log)


def proving(token: str, shown: bytes | None = None) -> Callable[[Any], list[bytes | None]]:
    """Answer as a server with a token does; it shows what it is told to, or its proof."""
    hellos: list[Hello] = []

    def answer(message: Any) -> list[bytes | None]:
        if isinstance(message, Hello):
            hellos.append(message)
            return [wire.encode(wire.Challenge(b"n" * 32))]
        if isinstance(message, wire.Proof):
            said = wire.encode(hellos[-1])[wire.HEADER_BYTES :]
            if message.proof != proof.by_client(token, b"n" * 32, said):
                return [wire.encode(wire.Reject("wrong or missing token"))]
            ours = proof.by_server(token, b"n" * 32, said)
            welcome = Welcome("s", 20.0, 1 << 20, proof=ours if shown is None else shown)
            return [wire.encode(welcome)]
        return polite(message)

    return answer


def test_both_sides_prove_the_token(lua: Lua) -> None:
    line = Line()
    line.answer = proving("sesame")
    link = make_link(lua, line, token="sesame")
    assert exchange(lua, link)[b"discrete"] == [2]
    hello, shown, _ = line.heard
    assert len(hello.nonce) == 32
    assert b"sesame" not in wire.encode(hello) + wire.encode(shown)


@pytest.mark.parametrize("token", ["", "open"])
def test_a_wrong_or_missing_token_is_refused(lua: Lua, token: str) -> None:
    line = Line()
    line.answer = proving("sesame")
    link = make_link(lua, line, token=token)
    assert exchange(lua, link) is None
    assert link[b"refused"] == b"wrong or missing token"


@pytest.mark.parametrize("answer", [polite, proving("sesame", b""), proving("sesame", b"x" * 32)])
def test_a_server_that_does_not_prove_the_token_is_not_played_for(
    lua: Lua, answer: Callable[[Any], list[bytes | None]]
) -> None:
    line = Line()
    line.answer = answer
    link = make_link(lua, line, token="sesame")
    assert exchange(lua, link) is None
    assert link[b"refused"] == b"it did not show that it knows the token"
    assert not [message for message in line.heard if isinstance(message, Frame)]


def test_a_refusal_is_final(lua: Lua) -> None:
    line = Line()
    line.answer = lambda message: [wire.encode(wire.Reject("wrong token"))]
    link = make_link(lua, line)
    for _ in range(5):
        assert exchange(lua, link) is None
        line.now += 60
    assert line.opened == 1
    assert link[b"refused"] == b"wrong token"


def test_garbage_ends_the_connection_with_a_reason(lua: Lua) -> None:
    line = Line()
    line.answer = polite
    link = make_link(lua, line)
    exchange(lua, link)
    line.answer = lambda message: [b"\x01\x00\x00\x00\xc1"] if isinstance(message, Frame) else []
    assert exchange(lua, link) is None
    assert any("broke the protocol" in text for text in line.log)


# --- a real server ----------------------------------------------------------------------------


class RealLine:
    """A transport over a real socket."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self._socket: socket.socket | None = None

    @property
    def now(self) -> float:
        return time.monotonic()

    def open(self, host: bytes, port: int) -> Any:
        try:
            self._socket = socket.create_connection((host.decode(), port), 5)
        except OSError as error:
            return None, str(error).encode()
        return True

    def send(self, data: bytes) -> bool:
        assert self._socket is not None
        self._socket.sendall(data)
        return True

    def receive(self, wait_s: float, wanted: int) -> Any:
        assert self._socket is not None
        self._socket.settimeout(wait_s)
        try:
            return self._socket.recv(4096) or (None, b"closed")
        except TimeoutError:
            return b""

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()

    def sleep(self, seconds: float) -> None:
        pass


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server(tmp_path_factory.mktemp("lua"))
    yield running
    running.stop()
    running.kill()


def test_lockstep_with_a_real_server(lua: Lua, server: Server) -> None:
    line = RealLine()
    link = make_link(lua, line, port=server.port)
    for _ in range(100):
        action = exchange(lua, link)
        assert len(action[b"discrete"]) == 1
        assert 0 <= action[b"discrete"][0] < 3
    link[b"close"](link, b"done")
    server.wait_for("lua at .* left: done")
