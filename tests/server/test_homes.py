"""Homes of the learner in real servers: a run moves between them, and either side may be killed."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from live import Client, Server, Steady, until

from server.learn import checkpoint as checkpoints
from server.net import wire

Start = Callable[..., Server]
EAGER = ("--min-replay", "200", "--batch-size", "16", "--heartbeat-s", "0.5")
BOARD = "/memfd:coinop"  # what the kernel calls it
HOMES = {
    "thread": ("--trainer", "thread"),
    "workers": ("--trainer", "workers", "--training-workers", "2"),
    "process": ("--trainer", "process"),
}


def gone(pid: int) -> bool:
    """Say whether a process has ended; reaped, or at least no longer ours to reap."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return True
    state, parent = fields[:2]
    return state == "Z" and parent == "1"


def test_a_run_moves_from_home_to_home_and_back(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "runs" / "default" / "agents" / "game" / checkpoints.NAME
    before = 0
    for home in ("thread", "process", "workers", "thread"):
        server = start(*EAGER, *HOMES[home])
        client = Client(server.port)
        assert isinstance(client.hello(), wire.Welcome)
        client.play(300)
        if before:
            assert f"{before:,} steps" in server.wait_for("agent game resumed: .*").group()
        until(lambda server=server, before=before: server.steps > before)  # type: ignore[misc]
        assert server.stop() == 0, server.text
        client.close()
        saved = checkpoints.read(file)
        assert saved.plain["learner"]["steps"] > before
        assert int(saved.tensors["optimizer.step"]) == saved.plain["learner"]["steps"]
        before = saved.plain["learner"]["steps"]


def test_clients_are_served_while_a_killed_learner_comes_back(start: Start) -> None:
    server = start(*EAGER, *HOMES["process"])
    player = Steady(server.port)
    until(lambda: server.steps > 0)
    (learner,) = server.children()
    os.kill(learner, signal.SIGKILL)
    player.plays_on(50)
    server.wait_for(
        r"warning +the learner of agent game fell: ended by signal 9, .*; started again from step "
        r"[\d,]+ of [\d,]+, 1 of at most 3 times in 10 minutes"
    )
    player.plays_on(50)
    until(lambda: server.children() not in ([], [learner]))
    shown = len(server.lines)
    until(lambda: any(re.search(r"steps +[1-9]", line) for line in server.lines[shown:]))
    player.finish()
    (learner,) = server.children()
    assert server.stop() == 0, server.text
    assert gone(learner)


def sharers(board: int) -> set[int]:
    """Give the processes that hold the memory in which a learner shows what it has learned."""
    found = set()
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):  # it has ended, or is somebody else's
            if str(link.readlink()).startswith(BOARD) and link.stat().st_ino == board:
                found.add(int(link.parts[2]))
    return found


def board_of(server: Server) -> int:
    """Give the inode of that memory."""
    (board,) = {
        link.stat().st_ino
        for link in Path(f"/proc/{server.process.pid}/fd").iterdir()
        if str(link.readlink()).startswith(BOARD)
    }
    return board


def test_a_killed_learner_leaves_its_memory_to_the_next_and_to_nobody_else(start: Start) -> None:
    server = start(*EAGER, *HOMES["process"])
    player = Steady(server.port)
    until(lambda: server.steps > 0)
    (first,) = server.children()
    board = board_of(server)
    assert sharers(board) == {server.process.pid, first}
    os.kill(first, signal.SIGKILL)
    server.wait_for("started again from step")
    until(lambda: len(sharers(board)) == 2)
    assert board_of(server) == board
    (second,) = server.children()
    assert sharers(board) == {server.process.pid, second} and second != first
    player.finish()
    assert server.stop() == 0, server.text
    assert sharers(board) == set()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_is_left_of_a_server_that_ends(start: Start, number: int, tmp_path: Path) -> None:
    server = start(*EAGER, *HOMES["process"])
    player = Client(server.port)
    assert isinstance(player.hello(), wire.Welcome)
    player.play(300)
    until(lambda: server.steps > 0)
    (learner,) = server.children()
    board = board_of(server)
    assert sharers(board) == {server.process.pid, learner}
    assert server.stop(number) == (-number if number == signal.SIGKILL else 0)
    until(lambda: gone(learner))
    assert sharers(board) == set()
    directory = tmp_path / "runs" / "default" / "agents" / "game"
    assert [path.name for path in directory.iterdir() if path.suffix in (".new", ".tmp")] == []


def test_a_learner_that_hangs_at_the_end_is_saved_as_it_was(start: Start, tmp_path: Path) -> None:
    script = (
        "import sys, main, server.app; server.app._STOP_S = 1.0; sys.exit(main.main(sys.argv[1:]))"
    )
    server = start(*EAGER, *HOMES["process"], script=script)
    player = Steady(server.port)
    until(lambda: server.steps > 0)
    player.plays_on(300)  # for some heartbeats: something is kept
    (learner,) = server.children()
    os.kill(learner, signal.SIGSTOP)
    player.finish()
    assert server.stop() == 0, server.text
    told = re.findall(r".*the (?:learner|trainer) of agent game .*", server.text)
    assert len(told) == 1 and "it did not end within 1 s and was killed" in told[0]
    assert "what it kept last is saved" in told[0]
    file = tmp_path / "runs" / "default" / "agents" / "game" / checkpoints.NAME
    assert checkpoints.read(file).plain["learner"]["steps"] > 0


def test_a_process_needs_a_replay_that_it_can_map(start: Start) -> None:
    server = start("--trainer", "process", "--replay-storage", "memory")
    assert server.wait() == 2
    assert "trainer = process needs replay_storage = file" in server.text


def test_workers_belong_to_one_home(start: Start) -> None:
    server = start("--training-workers", "4")
    assert server.wait() == 2
    assert "training_workers = 4 needs trainer = workers, not thread" in server.text
