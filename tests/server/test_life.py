"""A server's life in real processes: start, stop, resume, refuse, survive."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from live import ROOT, Client, Server

from server import VERSION, document
from server.learn import checkpoint as checkpoints
from server.learn.replay import Layout, Replay
from server.net import wire

Start = Callable[..., Server]
EAGER = ("--min-replay", "200", "--batch-size", "16", "--heartbeat-s", "0.5")


def agent_directory(tmp_path: Path, run: str = "default") -> Path:
    return tmp_path / "runs" / run / "agents" / "game"


def played(server: Server, frames: int) -> Client:
    client = Client(server.port)
    assert isinstance(client.hello(), wire.Welcome)
    client.play(frames)
    return client


def test_ctrl_c_says_bye_saves_and_ends_well(start: Start, tmp_path: Path) -> None:
    server = start(*EAGER)
    client = played(server, 400)
    server.wait_for(r"steps +[1-9]")
    server.process.send_signal(signal.SIGINT)
    bye = client.receive()
    assert bye == wire.Bye("the server is shutting down")
    assert client.receive() is None
    assert server.wait() == 0, server.text
    saved = checkpoints.read(agent_directory(tmp_path) / checkpoints.NAME)
    assert saved.plain["frames"] == 400
    assert saved.plain["learner"]["steps"] > 0
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port), timeout=1)


SLOW_DISK = """
import os, sys, time, main
sync = os.fsync
os.fsync = lambda descriptor: (time.sleep(float(os.environ["SYNC_S"])), sync(descriptor))[1]
sys.exit(main.main(sys.argv[1:]))
"""


def test_a_second_ctrl_c_forces(start: Start) -> None:
    server = start(script=SLOW_DISK, SYNC_S="0.5")  # so that there is an end to be forced
    client = played(server, 5)
    server.process.send_signal(signal.SIGINT)
    assert isinstance(client.receive(), wire.Bye)
    server.process.send_signal(signal.SIGINT)
    assert server.wait() == 130
    assert "forced to stop" in server.text


def test_starting_again_resumes_and_fresh_starts_over(start: Start, tmp_path: Path) -> None:
    first = start(*EAGER)
    client = played(first, 500)
    first.wait_for(r"steps +[1-9]")
    assert first.stop() == 0
    client.close()
    before = checkpoints.read(agent_directory(tmp_path) / checkpoints.NAME)
    second = start(*EAGER, "--no-training")
    steps = before.plain["learner"]["steps"]
    second.wait_for(f"agent game resumed: 500 frames, {steps:,} steps, 500 frames in the replay")
    client = played(second, 10)
    assert second.stop() == 0
    client.close()
    after = checkpoints.read(agent_directory(tmp_path) / checkpoints.NAME)
    assert after.plain["frames"] == 510
    assert set(after.tensors) == set(before.tensors)
    for name in before.tensors:  # weights, target and optimizer: untouched while not training
        assert after.tensors[name].equal(before.tensors[name]), name
    third = start(*EAGER, "--fresh")
    played(third, 10).close()
    assert third.stop() == 0
    assert "resumed" not in third.text
    assert "starting over; the old run is kept as" in third.text
    kept = [path for path in (tmp_path / "runs").iterdir() if path.name.startswith("default.")]
    assert len(kept) == 1
    old = checkpoints.read(kept[0] / "agents" / "game" / checkpoints.NAME)
    assert old.plain["frames"] == 510


def test_a_killed_server_keeps_its_replay_and_newest_checkpoint(
    start: Start, tmp_path: Path
) -> None:
    server = start(*EAGER, "--save-interval-s", "1")
    client = played(server, 300)
    server.wait_for(r"info +saved")
    client.play(321)
    server.process.kill()
    server.process.wait()
    client.close()
    again = start(*EAGER)
    again.wait_for(r"agent game resumed: 621 frames, .* 621 frames in the replay")
    played(again, 5).close()
    assert again.stop() == 0
    layout = Layout(20000, "float32", 4, 1, 0)
    replay = Replay.to_read(agent_directory(tmp_path) / "replay.bin", layout)
    assert replay.head == 626
    replay.check_valid()


def test_frames_without_a_checkpoint_are_told(start: Start, tmp_path: Path) -> None:
    server = start()
    played(server, 30).close()
    server.process.kill()
    server.process.wait()
    again = start()
    again.wait_for("agent game has no checkpoint: its 30 frames are kept, its network starts anew")
    assert again.stop() == 0


def test_a_damaged_checkpoint_is_told_and_the_backup_used(start: Start, tmp_path: Path) -> None:
    server = start("--save-interval-s", "1")
    client = played(server, 50)
    server.wait_for(r"(?s)saved.*saved")
    assert server.stop() == 0
    client.close()
    path = agent_directory(tmp_path) / checkpoints.NAME
    path.write_bytes(path.read_bytes()[:-100])
    again = start()
    again.wait_for(r"warning +the checkpoint .* is damaged: .*; using .*previous.* instead")
    again.wait_for("agent game resumed")
    assert again.stop() == 0


def test_a_checkpoint_of_another_network_is_refused_with_both_described(
    start: Start, tmp_path: Path
) -> None:
    server = start()
    played(server, 10).close()
    assert server.stop() == 0
    again = start("--hidden-sizes", "64")
    assert again.wait() == 2
    assert re.search(
        r"has a network with hidden_sizes = \[32, 32\], the settings ask for hidden_sizes = \[64\]",
        again.text,
    )
    assert "--hidden-sizes 32,32" in again.text


def test_a_checkpoint_of_other_spaces_is_refused_with_both_described(
    start: Start, tmp_path: Path
) -> None:
    server = start()
    played(server, 10).close()
    assert server.stop() == 0
    file = agent_directory(tmp_path) / "agent.json"
    about, _ = document.read(file)
    document.write(file, {**about, "rewards": ["points"]})
    again = start()
    assert again.wait() == 2
    assert "rewards score, not for 4 float32 values, actions stick(3), rewards points" in again.text


def test_a_replay_of_another_size_is_refused_in_words(start: Start) -> None:
    server = start()
    played(server, 10).close()
    assert server.stop() == 0
    again = start("--replay-capacity", "30000")
    assert again.wait() == 2
    assert "holds 20,000 frames of 4 float32 values" in again.text
    assert "asked for is 30,000 frames" in again.text


def test_a_save_under_way_does_not_meet_the_last_one(start: Start, tmp_path: Path) -> None:
    server = start("--save-interval-s", "1", script=SLOW_DISK, SYNC_S="0.7")
    client = played(server, 50)
    server.wait_for("info +saved")
    time.sleep(1.3)  # in the middle of the next save
    assert server.stop() == 0
    client.close()
    for name in (checkpoints.NAME, checkpoints.BACKUP):
        assert checkpoints.read(agent_directory(tmp_path) / name).plain["frames"] == 50


def test_nobody_reads_what_it_prints(tmp_path: Path) -> None:
    """As in ``python main.py | head``: the pipe breaks, the server must not."""
    options = ["--runs-dir", str(tmp_path / "runs"), "--port", "0", "--status-interval-s", "0.1"]
    options += ["--replay-capacity", "20000"]
    process = subprocess.Popen(
        [sys.executable, "main.py", *options], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    port = int(re.findall(r"listening on 127.0.0.1:(\d+)", process.stdout.readline())[0])
    process.stdout.close()
    client = Client(port)
    assert isinstance(client.hello(), wire.Welcome)
    client.play(10)
    time.sleep(0.5)
    client.play(10)
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0
    assert checkpoints.read(agent_directory(tmp_path) / checkpoints.NAME).plain["frames"] == 20


def test_a_closed_terminal_ends_in_good_order(start: Start, tmp_path: Path) -> None:
    server = start()
    played(server, 10).close()
    assert server.stop(signal.SIGHUP) == 0
    assert checkpoints.read(agent_directory(tmp_path) / checkpoints.NAME).plain["frames"] == 10


def test_a_device_that_is_not_there_is_named(start: Start) -> None:
    server = start("--device", "mps")
    assert server.wait() == 2
    assert "device = 'mps' is not there; this machine has: cpu" in server.text


def test_a_port_in_use_is_named(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        # Whoever mistyped a port need not wait for torch to hear of it.
        script = "import sys, main; sys.exit(main.main(sys.argv[1:]) + ('torch' in sys.modules))"
        server = start("--port", str(port), script=script)
        assert server.wait() == 2
    assert f"port {port} on 127.0.0.1 is in use by another program" in server.text
    assert "Traceback" not in server.text


def test_a_run_in_use_is_refused(start: Start) -> None:
    first = start()
    assert first.port
    second = start()
    assert second.wait() == 2
    assert f"in use by another server (process {first.process.pid})" in second.text
    third = start("--run", "other")
    assert third.port
    assert third.stop() == first.stop() == 0


def test_other_machines_need_a_token(start: Start) -> None:
    server = start("--host", "0.0.0.0", COINOP_TOKEN="")
    assert server.wait() == 2
    assert "a token is needed" in server.text
    short = start("--host", "0.0.0.0", COINOP_TOKEN="sesame")
    assert short.wait() == 2
    assert "the token has 6 characters: it needs 16 or more" in short.text


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--batch-size", "0"], "batch_size = 0 is out of range: 1 to 65536"),
        (["--launch", "pong"], "must be emulator:game=count"),
        (["--launch", "mess:pong"], "unknown emulator 'mess'"),
        (["--launch", "ale:pongg"], "ale-py has no game 'pongg'; did you mean pong"),
        (["--run", "../x"], "must be 1 to 64 letters"),
        (["--token-file", "/nowhere/token"], "cannot read token_file = /nowhere/token"),
    ],
)
def test_wrong_options_end_with_one_clear_line(
    start: Start, options: list[str], words: str
) -> None:
    server = start(*options)
    assert server.wait() == 2
    assert words in server.text
    assert len(server.lines) == 1


def test_a_full_disk_is_shown_training_goes_on_and_the_old_checkpoint_stays(
    start: Start, tmp_path: Path
) -> None:
    server = start(*EAGER, "--save-interval-s", "1", "--replay-storage", "memory")
    client = played(server, 300)
    server.wait_for("info +saved")
    # From now on the kernel refuses the server's writes to files, as a full disk does.
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (100, 100))
    server.wait_for(r"error +cannot write the checkpoint .*checkpoint.safetensors: File too large")
    path = agent_directory(tmp_path) / checkpoints.NAME
    good = path.read_bytes()
    steps = int(re.findall(r"steps +([\d,]+)", server.text)[-1].replace(",", ""))
    deadline = time.monotonic() + 20
    while int(re.findall(r"steps +([\d,]+)", server.text)[-1].replace(",", "")) <= steps:
        assert time.monotonic() < deadline
        client.play(20)
        time.sleep(0.1)
    assert path.read_bytes() == good
    assert checkpoints.read(path).plain["frames"] >= 300
    assert [entry.name for entry in path.parent.glob("*.new")] == []
    assert server.stop() == 1
    assert "the last save failed; the checkpoint before it is kept" in server.text


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_disk_that_is_really_full(start: Start, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(runs)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("this machine does not let us mount a small disk")
    try:
        server = start(*EAGER, "--save-interval-s", "1", "--replay-storage", "memory")
        client = played(server, 300)
        server.wait_for("info +saved")
        with pytest.raises(OSError, match="No space left"), (runs / "filler").open("wb") as filler:
            while True:
                filler.write(bytes(4096))
        server.wait_for("error +cannot write the checkpoint .*: No space left on device")
        client.play(50)
        (runs / "filler").unlink()
        saves = server.text.count("saved")
        deadline = time.monotonic() + 20
        while server.text.count("saved") == saves:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert server.stop() == 0
    finally:
        subprocess.run(["umount", "-l", str(runs)], check=False)


def test_a_dead_trainer_is_loud_saves_and_ends_with_an_error(start: Start, tmp_path: Path) -> None:
    script = """
import sys, main
from server.learn.learner import Learner
steps = []
train = Learner.train
def fail_at_the_fifth(self, *rest):
    steps.append(1)
    if len(steps) == 5:
        raise RuntimeError("the disk caught fire")
    return train(self, *rest)
Learner.train = fail_at_the_fifth
sys.exit(main.main(sys.argv[1:]))
"""
    server = start(*EAGER, script=script)
    client = played(server, 200)  # just enough to train on: the last one is answered before that
    assert server.wait() == 1
    assert isinstance(client.receive(), wire.Bye)
    assert (
        "coinop: the trainer of agent game died: RuntimeError: the disk caught fire" in server.text
    )
    saved = checkpoints.read(agent_directory(tmp_path) / checkpoints.NAME)
    assert saved.plain["learner"]["steps"] == 16


def test_a_server_alone_says_how_to_connect_an_emulator(start: Start) -> None:
    server = start()
    server.wait_for(rf"python -m client_py --ale pong --server 127\.0\.0\.1:{server.port}")
    assert server.stop(signal.SIGTERM) == 0


def test_without_a_compiler_python_answers(start: Start, tmp_path: Path) -> None:
    server = start("--no-training", PATH=str(tmp_path), XDG_CACHE_HOME=str(tmp_path))
    server.wait_for("nothing compiled by cc, gcc or clang: Python answers, half as fast")
    played(server, 50)
    assert server.stop() == 0
    with_one = start("--no-training")
    played(with_one, 50)
    assert with_one.stop() == 0
    assert "nothing compiled" not in with_one.text
    layout = Layout(20000, "float32", 4, 1, 0)
    replay = Replay.to_read(agent_directory(tmp_path) / "replay.bin", layout)
    assert replay.head == 100
    replay.check_valid()


def test_the_settings_and_versions_of_a_run_are_kept(start: Start, tmp_path: Path) -> None:
    server = start("--gamma", "0.9")
    assert server.port
    assert server.stop() == 0
    kept = json.loads((tmp_path / "runs" / "default" / "settings.json").read_text())
    assert kept["settings"]["learner"]["gamma"] == 0.9
    assert kept["versions"]["torch"] == torch.__version__
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert kept["versions"]["coinop"] == VERSION == project["version"]
    assert kept["seed"] == 1


def test_launched_emulators_play_and_end_with_the_server(start: Start) -> None:
    server = start("--launch", "gym:CartPole-v1=2", *EAGER)
    server.wait_for(r"clients 2 .*steps +[1-9]")
    number = server.process.pid
    tasks = Path(f"/proc/{number}/task").glob("*/children")
    children = [child for task in tasks for child in task.read_text().split()]
    assert len(children) == 2
    assert server.stop() == 0
    assert not any(Path(f"/proc/{child}").exists() for child in children)


def test_an_emulator_that_cannot_start_is_reported_with_its_last_words(start: Start) -> None:
    server = start("--launch", "gym:NoSuchGame-v0")
    server.wait_for(
        r"emulator gym-NoSuchGame-v0-1 ended with code 2: .*NoSuchGame.*; not started again"
    )
    assert server.stop() == 0


def test_help_is_quick_and_needs_no_torch() -> None:
    shown = subprocess.run(
        [sys.executable, "-X", "importtime", "main.py", "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "examples:" in shown.stdout
    assert "torch" not in shown.stderr
