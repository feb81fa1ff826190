"""Pictures of a real game through a real server: seen, kept out of the replay, and harmless."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import png
import pytest
from live import PATIENCE_S, ROOT, Client, Server, Steady

import config
import main
from server.learn.replay import Layout, Replay
from server.net import wire

Start = Callable[..., Server]
FEATURES = 10  # of Pong


def wait_for_picture(path: Path, after_s: float = 0.0) -> npt.NDArray[np.uint8]:
    """Wait for a picture that is newer than some time."""
    deadline = time.monotonic() + PATIENCE_S
    while not path.exists() or path.stat().st_mtime <= after_s:
        assert time.monotonic() < deadline, f"no picture at {path}"
        time.sleep(0.02)
    return png.decode(path.read_bytes())


def play_pong(server: Server, name: str, episodes: int) -> int:
    """Play whole episodes of Pong; give the number of frames that were sent."""
    command = [sys.executable, "-m", "client_py", "--ale", "pong", "--name", name, "--seed", "3"]
    command += ["--server", f"127.0.0.1:{server.port}", "--episodes", str(episodes), "--once"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("episode")]
    return sum(int(line.split(", ")[1].split()[0]) for line in lines)


def stored(server: Server, run: Path) -> Replay:
    """Stop a server and open the replay that it leaves."""
    assert server.stop() == 0
    path = run / "agents" / "pong" / "replay.bin"
    return Replay.to_read(path, Layout(20000, "float32", FEATURES, 1, 0))


def test_atari_screens_become_files_and_change_nothing_in_the_replay(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = []
    for run, options in (("shown", ["--preview-every", "3"]), ("hidden", [])):
        server = start("--run", run, "--no-training", "--epsilon-end", "1", *options)
        frames = play_pong(server, "ale-1", 1)
        if run == "shown":
            picture = wait_for_picture(tmp_path / "runs/shown/previews/ale-1.png")
            assert picture.shape == (120, 160, 3)
            colours = np.unique(picture.reshape(-1, 3), axis=0)
            assert len(colours) >= 3  # the field, a paddle, the score
        replay = stored(server, tmp_path / "runs" / run)
        replay.check_valid()
        assert replay.head == frames
        names = ("observation", "choice", "reward", "flags", "source", "next", "prev")
        columns.append({name: replay.column(name)[:frames].copy() for name in names})
    for name, column in columns[0].items():
        assert np.array_equal(column, columns[1][name]), name
    assert not (tmp_path / "runs/hidden/previews").exists()
    (newest,) = (tmp_path / "runs/shown/previews").iterdir()
    monkeypatch.chdir(tmp_path)
    assert main.main(["snapshot", "--out", "shot.png"]) == 0
    assert (tmp_path / "shot.png").read_bytes() == newest.read_bytes()


def test_the_newest_picture_replaces_the_one_before(start: Start, tmp_path: Path) -> None:
    server = start("--preview-every", "1")
    client = Client(server.port)
    welcome = client.hello(client="raw")
    assert welcome.settings == {"preview_every": 1}
    path, before = tmp_path / "runs/default/previews" / "raw.png", 0.0
    for shade in (10, 200):
        client.send(wire.encode(wire.Preview(320, 256, bytes([shade] * (320 * 256 * 3)))))
        client.play(2)
        picture = wait_for_picture(path, before)
        assert picture.shape == (256, 320, 3)
        assert (picture == shade).all()
        before = path.stat().st_mtime
    assert server.stop() == 0


def test_a_lost_client_that_comes_back_keeps_its_file(start: Start, tmp_path: Path) -> None:
    server = start("--preview-every", "1")
    first, other = Client(server.port), Client(server.port)
    welcome = first.hello(client="raw")
    assert isinstance(other.hello(client="raw"), wire.Welcome)
    for client, shade in ((first, 1), (other, 2)):
        client.send(wire.encode(wire.Preview(1, 1, bytes([shade] * 3))))
        client.play(1)
    previews = tmp_path / "runs/default/previews"
    assert wait_for_picture(previews / "raw.png").tolist() == [[[1, 1, 1]]]
    assert wait_for_picture(previews / "raw-2.png").tolist() == [[[2, 2, 2]]]
    port = first.socket.getsockname()[1]
    first.close()
    server.wait_for(rf"raw at 127\.0\.0\.1:{port} left")
    before = (previews / "raw.png").stat().st_mtime
    again = Client(server.port)
    assert again.hello(client="raw", resume=welcome.session).resumed
    again.send(wire.encode(wire.Preview(1, 1, bytes([3] * 3))))
    assert wait_for_picture(previews / "raw.png", before).tolist() == [[[3, 3, 3]]]
    assert sorted(file.name for file in previews.iterdir()) == ["raw-2.png", "raw.png"]


def test_pictures_nobody_asked_for_are_dropped(start: Start, tmp_path: Path) -> None:
    server = start()
    client = Client(server.port)
    assert client.hello().settings == {"preview_every": 0}
    client.send(wire.encode(wire.Preview(2, 2, bytes(12))))
    client.play(3)
    assert server.stop() == 0
    assert not (tmp_path / "runs/default/previews").exists()


def test_a_broken_picture_closes_its_client_only(start: Start, tmp_path: Path) -> None:
    server = start("--preview-every", "1")
    good = Steady(server.port, client="good")
    for preview, words in (
        (wire.Preview(4, 4, bytes(47)), "a preview of 4x4 RGB pixels has 48 bytes, not 47 bytes"),
        (wire.Preview(400, 1, bytes(1200)), "width must be 1 to 320 pixels, not 400"),
        (wire.Preview(1, 257, bytes(771)), "height must be 1 to 256 pixels, not 257"),
    ):
        bad = Client(server.port)
        assert isinstance(bad.hello(client="bad"), wire.Welcome)
        bad.play(2)
        bad.send(wire.encode(preview))
        told = bad.receive()
        assert isinstance(told, wire.Error)
        assert words in told.reason
        assert bad.receive() is None
        good.plays_on()
    good.finish()
    assert server.stop() == 0
    assert not (tmp_path / "runs/default/previews").exists()


def test_a_server_that_asks_for_pictures_must_accept_them() -> None:
    with pytest.raises(
        config.ConfigError,
        match="preview_every = 60 needs max_message_bytes of 65536 or more, not 65535",
    ):
        config.from_values(
            {"console": {"preview_every": 60}, "server": {"max_message_bytes": 65535}}
        )
    largest = wire.encode(wire.Preview(160, 120, bytes(160 * 120 * 3)))
    assert len(largest) <= 65536
    config.from_values({"server": {"max_message_bytes": 1024}})  # not asked, not needed


def test_it_is_not_set_as_if_it_were_a_games_setting() -> None:
    with pytest.raises(config.ConfigError, match="--preview-every"):
        config.from_values({"server": {"client_setting": ["preview_every=5"]}})


def test_a_flood_of_pictures_delays_nobody(start: Start, tmp_path: Path) -> None:
    server = start("--preview-every", "1")
    good = Steady(server.port, client="good")
    flood = Client(server.port)
    assert isinstance(flood.hello(client="flood"), wire.Welcome)
    for shade in range(200):
        flood.send(wire.encode(wire.Preview(160, 120, bytes([shade] * 57600))))
    good.plays_on(20)
    flood.play(3)  # the pictures before these frames were taken, and none was answered
    assert (wait_for_picture(tmp_path / "runs/default/previews/flood.png") <= 199).all()
    good.finish()
    assert server.stop() == 0


def test_pictures_that_cannot_be_written_are_told_once_and_play_goes_on(
    start: Start, tmp_path: Path
) -> None:
    run = tmp_path / "runs" / "default"
    run.mkdir(parents=True)
    (run / "previews").write_text("in the way")
    server = start("--preview-every", "1")
    client = Client(server.port)
    client.hello(client="raw")
    for _ in range(3):
        client.send(wire.encode(wire.Preview(1, 1, bytes(3))))
        client.play(1)
        time.sleep(1.1)
    server.wait_for("cannot write the picture .*raw.png: ")
    assert server.text.count("cannot write the picture") == 1
    client.play(3)
    assert server.stop() == 0
