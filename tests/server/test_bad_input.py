"""Broken and hostile clients against a real server, while a good one plays on."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import numpy as np
import pytest
from live import FIRST, SPACES, Client, Server, Steady

from server.net import proof, wire
from server.spaces import Actions, Discrete, Observation, Spaces


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server(
        tmp_path_factory.mktemp("bad"),
        *("--client-timeout-s", "2", "--hello-timeout-s", "2", "--max-clients", "64"),
        COINOP_TOKEN="swordfish",
    )
    yield running
    code = running.stop()
    running.kill()
    assert code == 0


@pytest.fixture
def good(server: Server) -> Iterator[Steady]:
    """A good client that must be able to play before, during and after whatever happens."""
    steady = Steady(server.port, token="swordfish")
    yield steady
    steady.plays_on()
    steady.finish()


@pytest.fixture
def bad(server: Server, good: Steady) -> Iterator[Client]:
    client = Client(server.port)
    yield client
    client.close()


@pytest.fixture
def playing(bad: Client) -> Client:
    """A client that is welcome until it misbehaves."""
    assert isinstance(bad.hello(token="swordfish"), wire.Welcome)
    return bad


def ends_with(client: Client, kind: type, words: str) -> None:
    """Expect a last message of a kind, with these words, and then the end."""
    message = client.receive()
    assert isinstance(message, kind), message
    assert words in message.reason
    assert client.receive() is None


def test_an_oversize_length(bad: Client) -> None:
    bad.send((1 << 31).to_bytes(4, "little"))
    ends_with(bad, wire.Reject, "over the limit of 65536")


def test_a_truncated_message(server: Server, good: Steady, playing: Client) -> None:
    data = wire.encode_frame(wire.Frame(0, 0, [0.0], bytes(16)))
    playing.send(data[:-5])
    playing.close()
    good.plays_on(5)
    server.wait_for(r"test at 127\.0\.0\.1:\d+ left: the connection was lost")


@pytest.mark.parametrize(
    ("payload", "words"),
    [(b"\x07", "a map or an array"), (b"\xc1", "not a msgpack value"), (b"\x90", "4 to 7 fields")],
)
def test_a_wrong_msgpack_type(playing: Client, payload: bytes, words: str) -> None:
    playing.send(len(payload).to_bytes(4, "little") + payload)
    ends_with(playing, wire.Error, words)


def test_a_wrong_observation_size(playing: Client) -> None:
    playing.frame(bytes(15))
    ends_with(playing, wire.Error, "has 16 bytes, not 15 bytes")


@pytest.mark.parametrize("value", [np.nan, np.inf, 3e38])
def test_values_that_are_not_finite(playing: Client, value: float) -> None:
    playing.play(3)
    playing.frame(np.array([0, 1, value, 3], np.float32).tobytes())
    ends_with(playing, wire.Error, "frame 1003 has a value that is not finite")


def test_other_spaces_than_the_agents(bad: Client) -> None:
    other = Spaces(Observation("uint8", (128,)), Actions((Discrete("stick", 6),), ()), ("score",))
    answer = bad.hello(other, token="swordfish")
    assert isinstance(answer, wire.Reject)
    assert "agent 'game' expects 4 float32 values" in answer.reason
    assert "you announced 128 uint8 values" in answer.reason
    assert "name another agent (--agent NAME)" in answer.reason


def test_an_observation_that_no_message_holds(bad: Client) -> None:
    large = Spaces(Observation("float32", (300_000,)), Actions((Discrete("s", 2),), ()), ("r",))
    answer = bad.hello(large, token="swordfish", agent="large")
    assert isinstance(answer, wire.Reject)
    assert "an observation of 1,200,000 bytes does not fit" in answer.reason


@pytest.mark.parametrize("token", ["", "swordfisch", "swordfish "])
def test_a_wrong_token(bad: Client, token: str) -> None:
    answer = bad.hello(token=token)
    assert isinstance(answer, wire.Reject)
    assert "token" in answer.reason
    assert "swordfish" not in answer.reason


def test_the_token_is_never_sent_and_the_server_proves_itself(server: Server) -> None:
    client = Client(server.port)
    hello = wire.encode(wire.Hello("test", "1", "game", "game", SPACES, nonce=b"c" * 32))
    client.send(hello)
    challenge = client.receive()
    assert isinstance(challenge, wire.Challenge)
    shown = wire.encode(wire.Proof(proof.by_client("swordfish", challenge.nonce, hello[4:])))
    assert b"swordfish" not in hello + shown
    client.send(shown)
    welcome = client.receive()
    assert isinstance(welcome, wire.Welcome)
    assert welcome.proof == proof.by_server("swordfish", challenge.nonce, hello[4:])


def test_a_recorded_proof_is_worth_nothing_again(server: Server, good: Steady) -> None:
    hello = wire.encode(wire.Hello("thief", "1", "game", "game", SPACES, nonce=b"c" * 32))
    first, second = Client(server.port), Client(server.port)
    first.send(hello)
    shown = wire.encode(wire.Proof(proof.by_client("swordfish", first.receive().nonce, hello[4:])))
    first.send(shown)
    assert isinstance(first.receive(), wire.Welcome)
    second.send(hello)
    assert isinstance(second.receive(), wire.Challenge)
    second.send(shown)
    ends_with(second, wire.Reject, "wrong or missing token")
    server.wait_for(r"warning +thief at .* refused: wrong or missing token")


def test_another_protocol_version(bad: Client) -> None:
    answer = bad.hello(version=9, token="swordfish")
    assert isinstance(answer, wire.Reject)
    assert "speaks protocol version 2, the client speaks 9" in answer.reason


def test_a_number_that_was_used_before(good: Steady, playing: Client) -> None:
    playing.play(5)
    playing.sequence = FIRST + 4  # the last one again: the same answer, and no second frame
    playing.play(1)
    playing.sequence = FIRST + 2
    playing.frame()
    told = playing.receive()
    assert isinstance(told, wire.Error)
    assert told.reason.startswith("frame 1002 after frame 1004: numbers only go up in a session")
    assert playing.receive() is None
    good.plays_on(20)


def test_a_client_that_stops_reading(server: Server, good: Steady, playing: Client) -> None:
    playing.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    playing.socket.settimeout(2)
    with pytest.raises((TimeoutError, ConnectionError)):
        for _ in range(1_000_000):  # bounded by the server, which stops reading from us
            playing.frame()
    good.plays_on(50)
    # Which of the two it is depends on whether the kernel still lets its frames through.
    server.wait_for("left: (replies not read|nothing heard) for 2 s")


def test_a_client_that_floods_gets_every_answer_and_delays_nobody(
    good: Steady, playing: Client
) -> None:
    frames = [wire.encode_frame(wire.Frame(number, 0, [0.0], bytes(16))) for number in range(3000)]
    playing.send(b"".join(frames))
    good.plays_on(20)
    answers = [playing.receive() for _ in range(3000)]
    assert [answer.sequence for answer in answers] == list(range(3000))


def test_200_connections_that_say_nothing(server: Server, good: Steady) -> None:
    crowd = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(200)]
    good.plays_on(100)
    newcomer = Client(server.port)
    assert isinstance(newcomer.hello(token="swordfish"), wire.Welcome)
    newcomer.play(3)
    newcomer.close()
    deadline = time.monotonic() + 10
    for silent in crowd:  # each is told why and closed, within the time that Hello has
        silent.settimeout(max(0.1, deadline - time.monotonic()))
        told = b""
        while chunk := silent.recv(4096):
            told += chunk
        assert b"no Hello within 2 s" in told or b"too many connections" in told
        silent.close()


def test_a_client_that_falls_silent_is_pinged_and_then_closed(playing: Client) -> None:
    playing.play(2)
    assert isinstance(playing.receive(), wire.Ping)
    playing.send(wire.encode(wire.Pong()))
    assert isinstance(playing.receive(), wire.Ping)
    ends_in_silence = [playing.receive() for _ in range(4)]
    errors = [message for message in ends_in_silence if isinstance(message, wire.Error)]
    assert [error.reason for error in errors] == ["nothing heard for 2 s"]


def test_a_full_server_says_so(server: Server, good: Steady) -> None:
    crowd = [Client(server.port) for _ in range(64)]
    answers = [client.hello(token="swordfish") for client in crowd]
    assert isinstance(answers[-1], wire.Reject)
    assert "the server is full: 64 clients (--max-clients)" in answers[-1].reason
    for client in crowd:
        client.send(wire.encode(wire.Bye("done")))
        client.close()


def test_noise_on_the_line(server: Server, good: Steady) -> None:
    rng = np.random.default_rng(0)
    for size in rng.integers(1, 4000, 100):
        client = Client(server.port)
        client.send(rng.bytes(int(size)))
        client.close()
        good.plays_on(1)


def test_a_lost_client_comes_back_to_its_session(server: Server, good: Steady) -> None:
    first = Client(server.port)
    welcome = first.hello(token="swordfish")
    first.play(4)
    port = first.socket.getsockname()[1]
    first.close()
    server.wait_for(rf"test at 127\.0\.0\.1:{port} left: the connection was lost")
    second = Client(server.port)
    again = second.hello(token="swordfish", resume=welcome.session)
    assert isinstance(again, wire.Welcome)
    assert (again.session, again.resumed) == (welcome.session, True)
    second.sequence = FIRST + 4
    second.play(3)
    port = second.socket.getsockname()[1]
    server.wait_for(rf"test at 127\.0\.0\.1:{port} came back to agent game")
    second.close()
