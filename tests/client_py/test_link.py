"""The link against a scripted server on loopback."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from client_py.link import Distrusted, Link, LinkTimeout, Rejected, ServerClosed, Unreachable
from server.net import wire
from tests.client_py.peer import HELLO, Line, Peer, Script, action, frame

pytestmark = pytest.mark.timeout(20)


@contextmanager
def linked(*scripts: Script, timeout_s: float = 5.0) -> Iterator[Link]:
    with Peer(*scripts) as peer:
        link = Link("127.0.0.1", peer.port, timeout_s=timeout_s, connect_timeout_s=5.0)
        try:
            yield link
        finally:
            link.close("test over")


def test_hello_welcome_lockstep_and_bye() -> None:
    seen = []

    def script(line: Line) -> None:
        seen.append(line.greet("abc"))
        seen.extend(line.play())

    with linked(script) as link:
        welcome = link.greet(HELLO)
        assert (welcome.session, welcome.resumed) == ("abc", False)
        for sequence in range(50):
            assert link.exchange(frame(sequence)).sequence == sequence
    assert seen[0] == HELLO
    assert [f.sequence for f in seen[1:-1]] == list(range(50))
    assert seen[-1] == wire.Bye("test over")


def test_answers_byte_by_byte() -> None:
    def script(line: Line) -> None:
        line.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        line.receive()
        stream = wire.encode(wire.Welcome("s", 1.0, 1000))
        for byte in stream:
            line.send(bytes([byte]))
        for _ in range(3):
            for byte in action(line.receive().sequence, 2):
                line.send(bytes([byte]))
        line.receive()

    with linked(script) as link:
        link.greet(HELLO)
        for sequence in range(3):
            assert link.exchange(frame(sequence)).discrete == [2]


def test_many_messages_in_one_chunk() -> None:
    def script(line: Line) -> None:
        line.receive()
        line.send(
            wire.encode(wire.Welcome("s", 1.0, 1000))
            + action(98, 0)
            + wire.encode(wire.Ping())
            + action(0, 1)
            + action(1, 2)[:7]
        )
        got = [line.receive() for _ in range(3)]
        assert sorted(type(message).__name__ for message in got) == ["Frame", "Frame", "Pong"]
        line.send(action(1, 2)[7:])
        assert isinstance(line.receive(), wire.Bye)

    with linked(script) as link:
        link.greet(HELLO)
        assert link.exchange(frame(0)).discrete == [1]
        assert link.exchange(frame(1)).discrete == [2]


def test_stale_actions_are_skipped() -> None:
    def script(line: Line) -> None:
        line.greet()
        line.receive()
        line.send(action(3, 0) + action(6, 0) + action(7, 1))
        line.receive()

    with linked(script) as link:
        link.greet(HELLO)
        assert link.exchange(frame(7)).discrete == [1]


def test_ping_is_answered_while_waiting() -> None:
    def script(line: Line) -> None:
        line.greet()
        line.receive()
        line.send(wire.encode(wire.Ping()))
        assert line.receive() == wire.Pong()
        line.answer(0, 1)
        line.receive()

    with linked(script) as link:
        link.greet(HELLO)
        assert link.exchange(frame(0)).discrete == [1]


def test_both_sides_prove_the_token() -> None:
    def script(line: Line) -> None:
        line.greet(token="sesame")
        line.play(1)

    with linked(script) as link:
        assert link.greet(HELLO, "sesame").proof
        assert link.exchange(frame(0)).discrete == [0]


@pytest.mark.parametrize("shown", [b"", b"x" * 32])
def test_a_server_that_does_not_prove_the_token_is_not_played_for(shown: bytes) -> None:
    def script(line: Line) -> None:
        hello = line.receive()
        if shown:
            line.challenge(hello, "sesame")
        line.send(wire.encode(wire.Welcome("s", 1.0, 1000, proof=shown)))

    with linked(script) as link, pytest.raises(Distrusted, match="did not show that it knows"):
        link.greet(HELLO, "sesame")


def test_no_two_hellos_have_the_same_nonce() -> None:
    nonces = []

    def script(line: Line) -> None:
        nonces.append(line.greet(token="sesame").nonce)

    for _ in range(2):
        with linked(script) as link:
            link.greet(HELLO, "sesame")
    assert len(set(nonces)) == 2 and b"" not in nonces


def test_rejected_with_the_servers_reason() -> None:
    def script(line: Line) -> None:
        line.receive()
        line.send(wire.encode(wire.Reject("this agent expects 128 uint8")))

    with linked(script) as link, pytest.raises(Rejected, match="expects 128 uint8"):
        link.greet(HELLO)


@pytest.mark.parametrize(
    ("last", "reason"),
    [
        (wire.encode(wire.Bye("going down")), "going down"),
        (wire.encode(wire.Error("a bad frame")), "a bad frame"),
        (b"", "closed the connection"),
        (action(0, 1)[:6], "closed the connection"),
        (b"\xff\xff\xff\xff", "over the limit"),
        (b"\x01\x00\x00\x00\xc1", "broke the protocol"),
        (b"\x01\x00\x00\x00\x07", "a map or an array"),
    ],
)
def test_the_end_says_why(last: bytes, reason: str) -> None:
    def script(line: Line) -> None:
        line.greet()
        line.receive()
        line.send(last)

    with linked(script) as link:
        link.greet(HELLO)
        with pytest.raises(ServerClosed, match=reason):
            link.exchange(frame(0))


def test_reason_of_a_server_that_left_before_the_frame() -> None:
    with linked(lambda line: (line.greet(), line.send(wire.encode(wire.Bye("full"))))[0]) as link:
        link.greet(HELLO)
        with pytest.raises(ServerClosed, match=r"full|reset|closed"):
            link.exchange(frame(0))


def test_timeout_when_nothing_comes() -> None:
    def script(line: Line) -> None:
        line.greet()
        line.receive()
        assert isinstance(line.receive(), wire.Bye)

    with linked(script, timeout_s=0.2) as link:
        link.greet(HELLO)
        with pytest.raises(LinkTimeout):
            link.exchange(frame(0))


@pytest.mark.parametrize("noise", [action(5, 0), wire.encode(wire.Pong())])
def test_timeout_when_only_noise_comes(noise: bytes) -> None:
    def script(line: Line) -> None:
        line.greet()
        line.receive()
        line.socket.settimeout(0.02)
        while True:
            line.send(noise)
            try:
                assert isinstance(line.receive(), wire.Bye)
                return
            except TimeoutError:
                pass

    with linked(script, timeout_s=0.3) as link:
        link.greet(HELLO)
        with pytest.raises(LinkTimeout):
            link.exchange(frame(0))


def test_an_answer_after_the_timeout_is_not_paired_with_the_next_frame() -> None:
    def script(line: Line) -> None:
        line.greet()
        line.receive()
        line.receive()  # the next frame: the first was given up
        line.send(action(0, 0) + action(1, 2))
        line.receive()

    with linked(script, timeout_s=0.5) as link:
        link.greet(HELLO)
        with pytest.raises(LinkTimeout):
            link.exchange(frame(0))
        assert link.exchange(frame(1)).discrete == [2]


def test_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(Unreachable, match="refused"):
        Link("127.0.0.1", port, timeout_s=1.0, connect_timeout_s=1.0)
