"""Control from outside: requests as lines, a real server's socket, ctl and attached watchers."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from live import PATIENCE_S, ROOT, Server, Steady

from server import record, request
from server.console import demo
from server.controls import Command, Verb
from server.request import Do, Request, RequestError
from server.stats import DialView, Snapshot
from tools.control import Line, NoServerError, find

Start = Callable[..., Server]


# --- the lines, without a socket --------------------------------------------------------------

texts = st.text(st.characters(exclude_categories=("C", "Z")), max_size=40)
commands = st.builds(
    Command, st.sampled_from(Verb), name=texts, value=texts, over=st.integers(0, 2**40)
)


@given(commands, texts)
def test_a_command_survives_its_line(command: Command, who: str) -> None:
    line = request.encode(Request(Do.COMMAND, command, who))
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    assert request.read(line) == Request(Do.COMMAND, command, who[:32])


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"hello", "not a line of JSON"),
        (b"[1]", "JSON object"),
        (b"{}", "do = None is none of status, get"),
        (b'{"do":"command","verb":"fly"}', "none of stop, save"),
        (b'{"do":"command","verb":"set","over":-1}', "over = -1"),
        (b'{"do":"command","verb":"set","over":true}', "over = True"),
        (b'{"do":"command","verb":"set","name":7}', "name must be text"),
        (b'{"do":"command","verb":"set","who":"a\\u001b[2J"}', "who must be text"),
        (b'{"do":"watch","every_s":"soon"}', "every_s"),
        (b"\xff\xfe", "not a line"),
        (b"[" * 100_000, "not a line"),
    ],
)
def test_what_is_not_understood_is_named(line: bytes, words: str) -> None:
    with pytest.raises(RequestError, match=words):
        request.read(line)


@given(st.binary(max_size=60))
def test_no_line_breaks_the_reader(line: bytes) -> None:
    with contextlib.suppress(RequestError):
        request.read(line)


def test_a_snapshot_travels_whole() -> None:
    dial = DialView("epsilon", "0.5", "", "0.5", "its schedule", "share", "0 to 1", "Random.")
    snapshot = demo.snapshot(clients=3, agents=2)
    sent = json.loads(record.to_json(snapshot))
    assert record.from_plain(Snapshot, sent) == snapshot
    assert record.from_plain(DialView, json.loads(record.to_json(dial))) == dial
    assert record.from_plain(Snapshot, {**sent, "of_a_newer_server": 1}) == snapshot


# --- a real server ----------------------------------------------------------------------------


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return tmp_path / "runs"


def ctl(runs: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "main.py"), "ctl", "--runs-dir", str(runs), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def test_a_server_is_steered_and_goes_on_as_it_was_left(start: Start, runs: Path) -> None:
    server = start("--min-replay", "100")
    player = Steady(server.port)
    path = find(runs, "")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with Line(path) as line:
        assert line.obey(Command(Verb.SET, "epsilon", "0.25"), "test") == "epsilon natural → 0.25"
        assert line.obey(Command(Verb.SET, "n_step", "7"), "test") == "n step natural → 7"
        player.plays_on()
        snapshot = line.status()
        assert snapshot.controls.epsilon == snapshot.agents[0].epsilon == 0.25
        assert len(snapshot.clients) == 1
        with pytest.raises(RequestError, match="epsilon = 2 is out of range: 0 to 1"):
            line.obey(Command(Verb.SET, "epsilon", "2"), "test")
        with pytest.raises(RequestError, match="none of status"):
            line._socket.sendall(b"{}\n")
            line._answer()
        assert line.obey(Command(Verb.SAVE), "test") == "saved"
        assert line.obey(Command(Verb.SYNC), "test") == "weights in play are new"
        assert line.obey(Command(Verb.TARGET), "test") == "target network is new"
        assert "frames forgotten" in line.obey(Command(Verb.FLUSH), "test")
        ramp = line.obey(Command(Verb.SET, "learning_rate", "1e-5", 10**6), "test")
        assert ramp.startswith("learning rate natural → 1e-05 at frame 1,000,")
        line.obey(Command(Verb.STOP), "test")
        line.wait_for_end()
        assert not path.exists()
    assert server.wait() == 0
    curve = (runs / "default" / "curves.jsonl").read_text().splitlines()
    told = [line for line in map(json.loads, curve) if line["kind"] == "marker"]
    assert [(line["name"], line["old"], line["new"], line["who"]) for line in told[:2]] == [
        ("epsilon", None, 0.25, "test"),
        ("n_step", None, 7, "test"),
    ]
    assert {line["agent"] for line in told} == {"game"} and told[-1]["frames"] >= 20
    again = start()
    again.wait_for("live settings as they were left: epsilon 0.25, n_step 7, learning_rate 1e-05")
    assert again.port  # it listens, for us too
    with Line(path) as line:
        dials = {dial.name: dial for dial in line.status().dials}
        assert dials["epsilon"].value == "0.25" and dials["n_step"].value == "7"
        assert dials["learning_rate"].value == "0.0005"  # hardly on its way yet
        assert dials["learning_rate"].chosen.startswith("1e-05 at frame 1,000,")
        assert line.obey(Command(Verb.UNDO), "test").endswith("→ natural (undone)")


def test_the_command_line(start: Start, runs: Path) -> None:
    missing = ctl(runs, "status")
    assert missing.returncode == 2
    assert "no server runs the run 'default'" in missing.stderr
    assert "python main.py --run default" in missing.stderr
    server = start("--run", "pong")
    assert server.port
    assert "run pong on 127.0.0.1" in ctl(runs, "status").stdout
    assert ctl(runs, "get", "n_step").stdout == "3\n"
    assert "max_replay_ratio   none" in ctl(runs, "get").stdout
    assert ctl(runs, "set", "epsilon", "0.1", "--over", "1M").stdout == (
        "epsilon natural → 0.1 at frame 1,000,000\n"
    )
    refused = ctl(runs, "--run", "pong", "set", "epsilon", "7")
    assert (refused.returncode, refused.stderr) == (
        1,
        "ctl: epsilon = 7 is out of range: 0 to 1 share\n",
    )
    assert json.loads(ctl(runs, "status", "--json").stdout)["run"] == "pong"
    stopped = ctl(runs, "stop")
    assert stopped.stdout == "stopping\nstopped\n"
    assert server.wait() == 0
    journal = (runs / "pong" / "journal.jsonl").read_text()
    assert json.loads(journal)["who"] == "ctl"


def test_a_dead_servers_socket_is_replaced_and_a_living_ones_kept(start: Start, runs: Path) -> None:
    first = start()
    assert first.port
    first.process.send_signal(signal.SIGKILL)
    first.process.wait()
    path = runs / "default" / "control.sock"
    assert path.is_socket()
    with pytest.raises(NoServerError, match="Connection refused"):
        Line(path)
    second = start()
    assert second.port
    third = start()
    assert third.wait() == 2 and "in use by another server" in third.text
    with Line(path) as line:
        assert line.status().run == "default"


def test_a_watcher_that_does_not_read_hurts_nobody(start: Start, runs: Path) -> None:
    server = start()
    player = Steady(server.port)
    path = find(runs, "")
    lazy = [Line(path) for _ in range(5)]
    for line in lazy:
        line._socket.sendall(request.encode(Request(Do.WATCH, every_s=0.0)))
    with Line(path) as watcher:
        seen = watcher.watch(0.05)
        first = next(seen)["uptime_s"]
        deadline = time.monotonic() + PATIENCE_S
        while next(seen)["uptime_s"] < first + 3:
            assert time.monotonic() < deadline
    player.plays_on()
    before = memory(server.process.pid)
    player.plays_on(400)
    assert memory(server.process.pid) - before < 20e6
    for line in lazy:
        line.__exit__()
    player.finish()
    assert server.stop() == 0


def memory(pid: int) -> int:
    """Read how much memory a process has, in bytes."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_bad_lines_and_too_many_connections(start: Start, runs: Path) -> None:
    server = start()
    assert server.port
    path = find(runs, "")

    def raw(data: bytes) -> Any:
        with Line(path) as line:
            line._socket.sendall(data)
            return line._answer()

    with pytest.raises(RequestError, match="at most 65536 bytes"):
        raw(b"x" * 100_000 + b"\n")
    with pytest.raises(RequestError, match="not a line of JSON"):
        raw(b"GET / HTTP/1.1\r\n")
    ends = [Line(path) for _ in range(64)]
    with pytest.raises((RequestError, BrokenPipeError, ConnectionResetError)):
        raw(b'{"do":"status"}\n')
    for end in ends:
        end.__exit__()
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            assert raw(b'{"do":"status"}\n')["run"] == "default"
            break
        except (RequestError, OSError):  # the server has not seen them go yet
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_a_run_deep_down_has_a_socket_too(start: Start, tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    server = start("--runs-dir", str(deep))
    assert server.port
    with Line(find(deep, "")) as line:
        assert line.status().run == "default"
    with socket.socket(socket.AF_UNIX) as end, pytest.raises(OSError, match="too long"):
        end.connect(str(find(deep, "")))
