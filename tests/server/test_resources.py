"""A server that runs out of something, or whose clock jumps: it says so, and the games go on."""

from __future__ import annotations

import re
import resource
from collections.abc import Callable
from pathlib import Path

import pytest
from live import Client, Server, Steady, until

from server.net import wire

Start = Callable[..., Server]
EAGER = ("--min-replay", "200", "--batch-size", "16", "--heartbeat-s", "0.5")
FAKETIME = next(iter(sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))), None)
FEW_DESCRIPTORS = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (70, 70))
import main
sys.exit(main.main(sys.argv[1:]))
"""
# Root may write whatever it likes, until it gives that power (CAP_DAC_OVERRIDE) up.
OBEYING = """
import ctypes, os, sys
PR_CAPBSET_DROP, CAP_DAC_OVERRIDE = 24, 1
if os.geteuid() == 0:
    assert ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0) == 0
os.execv(sys.executable, [sys.executable, "main.py", *sys.argv[1:]])
"""


def test_who_comes_when_no_descriptor_is_to_spare_is_told(start: Start) -> None:
    server = start(*EAGER, script=FEW_DESCRIPTORS)
    player = Steady(server.port)
    crowd = [Client(server.port) for _ in range(20)]
    answers = [client.receive() for client in crowd[5:]]  # 6 connections fit beside the reserve
    assert all(isinstance(answer, wire.Reject) for answer in answers), answers
    assert "limit of open files is too low (ulimit -n)" in answers[-1].reason
    player.plays_on(50)
    for client in crowd:
        client.close()
    until(lambda: isinstance(Client(server.port).hello(client="later"), wire.Welcome))
    player.finish()
    assert server.stop() == 0, server.text


def test_only_so_many_lost_sessions_are_kept(start: Start) -> None:
    server = start("--no-training", "--max-clients", "3")
    sessions = []
    for number in range(5):
        client = Client(server.port)
        sessions.append(client.hello(client=f"guest-{number}").session)
        client.play(2)
        client.close()
        server.wait_for(f"guest-{number} at .* left")
    for session, kept in zip(sessions, (False, False, True), strict=False):
        client = Client(server.port)
        assert client.hello(resume=session).resumed is kept
    assert server.stop() == 0, server.text


def test_a_server_outlives_the_loss_of_every_descriptor(start: Start) -> None:
    server = start(*EAGER, "--save-interval-s", "1", "--curve-interval-s", "0.5")
    player = Steady(server.port)
    server.wait_for("info +saved")
    pid = server.process.pid
    _, most = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    taken = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (taken, most))
    server.wait_for("error +cannot write the checkpoint .*: Too many open files")
    before = server.steps
    player.plays_on(100)
    until(lambda: server.steps > before)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (most, most))
    told = server.text.count("saved")
    until(lambda: server.text.count("saved") > told)
    player.finish()
    assert server.stop() == 0, server.text


def test_a_learner_out_of_memory_is_started_again(start: Start) -> None:
    server = start(*EAGER, "--trainer", "process")
    player = Steady(server.port)
    until(lambda: len(server.children()) == 1)
    (learner,) = server.children()
    resource.prlimit(learner, resource.RLIMIT_AS, (1 << 28, 1 << 28))  # not even torch fits
    server.wait_for(
        r"warning +the learner of agent game fell: ended with code 1: .*; started again"
    )
    player.plays_on(50)
    until(lambda: server.steps > 0)
    player.finish()
    assert server.stop() == 0, server.text


@pytest.mark.skipif(FAKETIME is None, reason="libfaketime is not installed (apt: faketime)")
@pytest.mark.parametrize("jump", ["+400d", "-400d"])
def test_a_clock_that_jumps_disturbs_nobody(start: Start, tmp_path: Path, jump: str) -> None:
    clock = tmp_path / "clock"
    clock.write_text("+0\n")
    server = start(
        *EAGER,
        "--save-interval-s",
        "1",
        LD_PRELOAD=str(FAKETIME),
        FAKETIME_TIMESTAMP_FILE=str(clock),
        FAKETIME_NO_CACHE="1",
        DONT_FAKE_MONOTONIC="1",
    )
    player = Steady(server.port)
    server.wait_for("info +saved")
    clock.write_text(f"{jump}\n")
    told, before = server.text.count("saved"), server.steps
    player.plays_on(200)
    until(lambda: server.text.count("saved") > told + 1)
    until(lambda: server.steps > before)
    player.finish()
    assert not re.search("warning|error", server.text), server.text
    assert server.stop() == 0, server.text


def test_a_run_directory_that_may_not_be_written(start: Start, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir(mode=0o555)
    server = start(script=OBEYING)
    assert server.wait() == 2
    assert re.search("cannot .*runs.*: Permission denied", server.text), server.text


def test_a_run_directory_that_becomes_read_only(start: Start, tmp_path: Path) -> None:
    server = start(*EAGER, "--save-interval-s", "1", script=OBEYING)
    player = Steady(server.port)
    server.wait_for("info +saved")
    home = tmp_path / "runs" / "default" / "agents" / "game"
    home.chmod(0o555)
    server.wait_for("error +cannot write the checkpoint .*: Permission denied")
    before = server.steps
    player.plays_on(50)
    until(lambda: server.steps > before)
    home.chmod(0o755)
    told = server.text.count("saved")
    until(lambda: server.text.count("saved") > told)
    player.finish()
    assert server.stop() == 0, server.text
