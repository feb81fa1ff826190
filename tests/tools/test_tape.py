"""A tape recorded from a live server, played back against another one."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
from live import ROOT, SPACES, Client, Server

from server.learn.replay import Layout, Replay
from server.net import tape as tapes
from server.net import wire
from server.net.tape import Entry, Kind, Tape, TapeError

COLUMNS = ("observation", "choice", "reward", "flags", "source", "version", "next", "prev")
TOKEN = "sesame, open"
Start = Callable[..., Server]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    servers: list[Server] = []

    def begin(*options: str, **rest: str) -> Server:
        servers.append(Server(tmp_path / "runs", "--no-training", *options, **rest))
        return servers[-1]

    yield begin
    for server in servers:
        server.kill()
    while Client.opened:
        Client.opened.pop().close()


def replay(tape: Path, server: Server, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "main.py", "replay", str(tape), "--server"]
    return subprocess.run(
        [*command, f"127.0.0.1:{server.port}", *options],
        cwd=ROOT,
        env={**os.environ, "COINOP_TOKEN": TOKEN},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def contents(tmp_path: Path, run: str) -> dict[str, Any]:
    path = tmp_path / "runs" / run / "agents" / "game" / "replay.bin"
    stored = Replay.to_read(path, Layout.of(SPACES, 20_000))
    stored.check_valid()
    kept = {name: stored.column(name)[: stored.head].copy() for name in COLUMNS}
    return {"head": stored.head, **kept}


def play_three(server: Server) -> None:
    """Play by turns, with ends of episodes, a lost connection, a skipped number and a repeat."""
    rng = np.random.default_rng(5)
    clients = [Client(server.port) for _ in range(3)]
    welcomes = [client.hello(token=TOKEN) for client in clients]
    for turn in range(60):
        for number, client in enumerate(clients):
            flags = wire.TERMINAL if turn % 20 == 19 else wire.START if turn % 20 == 0 else 0
            client.frame(rng.normal(size=4).astype(np.float32).tobytes(), flags, float(number))
            assert isinstance(client.receive(), wire.Action)
        if turn == 30:
            clients[0].close()
            server.wait_for("left: the connection was lost")
            back = Client(server.port)
            assert back.hello(token=TOKEN, resume=welcomes[0].session).resumed
            back.sequence = clients[0].sequence - 1  # the last one once more
            clients[0] = back
        if turn == 40:
            clients[1].sequence += 5
    for client in clients:
        client.send(wire.encode(wire.Bye("done")))
        assert client.receive() is None


def test_the_same_frames_in_give_the_same_replay(start: Start, tmp_path: Path) -> None:
    tape = tmp_path / "game.tape"
    first = start("--run", "first", "--record", str(tape), COINOP_TOKEN=TOKEN)
    play_three(first)
    assert first.stop() == 0
    second = start("--run", "second", COINOP_TOKEN=TOKEN)
    done = replay(tape, second, "--speed", "0")
    assert done.returncode == 0, done.stderr
    assert "replayed 180 frames of 4 clients" in done.stdout
    assert second.stop() == 0
    once, again = contents(tmp_path, "first"), contents(tmp_path, "second")
    assert once["head"] == again["head"] == 179  # one was sent twice, and is stored once
    for name in COLUMNS:
        np.testing.assert_array_equal(once[name], again[name], name)


def test_nothing_on_a_tape_helps_to_guess_the_token(start: Start, tmp_path: Path) -> None:
    tape = tmp_path / "game.tape"
    server = start("--record", str(tape), COINOP_TOKEN=TOKEN)
    wrong, right = Client(server.port), Client(server.port)
    assert isinstance(wrong.hello(token="guess", nonce=b"w" * 32), wire.Reject)
    assert isinstance(right.hello(token=TOKEN, nonce=b"r" * 32), wire.Welcome)
    right.play(3)
    assert server.stop() == 0
    entries = list(tapes.read(tape, pytest.fail))
    said = [msgpack.unpackb(entry.payload) for entry in entries if entry.payload]
    kinds = [value["type"] for value in said if isinstance(value, dict)]
    assert sorted(set(kinds)) == ["bye", "hello", "reject", "welcome"]
    assert all(not value.get("nonce") for value in said if isinstance(value, dict))
    assert all(not value.get("proof") for value in said if isinstance(value, dict))
    assert TOKEN.encode() not in tape.read_bytes()
    assert [entry.kind for entry in entries].count(Kind.OPENED) == 2
    assert tape.stat().st_mode & 0o077 == 0


def test_a_server_that_does_otherwise_is_found_out(start: Start, tmp_path: Path) -> None:
    tape = tmp_path / "game.tape"
    first = start("--record", str(tape))
    client = Client(first.port)
    client.hello()
    client.play(5)
    assert first.stop() == 0
    full = start("--run", "other", COINOP_TOKEN="another")
    done = replay(tape, full, "--speed", "100")
    assert done.returncode == 1
    assert "client 1 was welcome, and now is not: wrong or missing token" in done.stderr


def test_a_tape_is_never_overwritten_and_a_wrong_file_is_named(
    start: Start, tmp_path: Path
) -> None:
    there = tmp_path / "there"
    there.write_text("precious")
    server = start("--record", str(there))
    assert server.wait() == 2
    assert f"record = {there} is there already; name another file" in server.text
    assert there.read_text() == "precious"
    for text in (b"", b"precious", b"\xff\xff\xff\xff", b"\x01\0\0\0\xc1", b"\x01\0\0\0\x01"):
        there.write_bytes(text)
        with pytest.raises(TapeError, match=r"is no tape|is damaged"):
            list(tapes.read(there, lambda text: None))
    with pytest.raises(TapeError, match="cannot read"):
        list(tapes.read(tmp_path / "nowhere", pytest.fail))


def test_a_tape_cut_anywhere_gives_what_is_whole_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "tape"
    tape = Tape.create(path, pytest.fail)
    number = tape.opened()
    for word in (b"\x91\x01", b"\x91\x02", wire.encode(wire.Ping())[4:]):
        tape.note(number, Kind.SAID, word)
    tape.close()
    whole = list(tapes.read(path, pytest.fail))
    assert [entry[1:] for entry in whole[:2]] == [
        (1, Kind.OPENED, b""),
        (1, Kind.SAID, b"\x91\x01"),
    ]
    data, cut = path.read_bytes(), tmp_path / "cut"
    for size in range(len(data)):
        cut.write_bytes(data[:size])
        told: list[str] = []
        entries: list[Entry] = []
        try:
            entries = list(tapes.read(cut, told.append))
        except TapeError:
            assert size < data.index(b"tape") + 200
        assert entries == whole[: len(entries)]
        assert told or entries == [] or data[:size].endswith(entries[-1].payload)


def test_a_full_disk_ends_the_recording_and_nothing_else(start: Start, tmp_path: Path) -> None:
    tape = tmp_path / "game.tape"
    server = start("--record", str(tape), "--replay-storage", "memory")
    client = Client(server.port)
    client.hello()
    client.play(5)
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (100, 100))
    client.play(50)
    server.wait_for(r"error +recording to .*game.tape has stopped: File too large")
    client.play(50)
