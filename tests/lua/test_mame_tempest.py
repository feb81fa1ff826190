"""Tempest in real MAME: its own hardware, with a small program of ours in place of the game's."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from live import ROOT, Server

from server import emulators
from server.emulators import LaunchError
from server.learn.replay import Layout, Replay

MAME = shutil.which("mame", path=f"{os.environ.get('PATH', '')}:/usr/games")
ASSEMBLER, LINKER = shutil.which("ca65"), shutil.which("ld65")
SOURCE = Path(__file__).parent / "tempest_standin.s"
PROGRAM = "136002-122.r1"  # the ROM with the vectors, seen at $F800
MEMORY = """
MEMORY { ROM: start = $f800, size = $0800, fill = yes; }
SEGMENTS { CODE: load = ROM, type = ro; VECTORS: load = ROM, type = ro, start = $fffa; }
"""
pytestmark = [
    pytest.mark.skipif(MAME is None, reason="MAME is not installed"),
    pytest.mark.timeout(180),
]
assembled = pytest.mark.skipif(not (ASSEMBLER and LINKER), reason="cc65 is not installed")


def run(work: Path, *command: str) -> str:
    done = subprocess.run(
        command,
        cwd=work,
        env={**os.environ, "HOME": str(work)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Make a home with a ROM set of our own in it; MAME warns of its checksums, and runs it."""
    work, roms = tmp_path / "work", tmp_path / "home" / ".coinop" / "roms"
    work.mkdir()
    roms.mkdir(parents=True)
    (work / "standin.cfg").write_text(MEMORY)
    run(work, str(ASSEMBLER), str(SOURCE), "-o", "standin.o")
    run(work, str(LINKER), "-C", "standin.cfg", "standin.o", "-o", "standin.bin")
    listed = re.findall(
        r"^(136002-\S+)\s+(\d+)", run(work, str(MAME), "-listroms", "tempest1"), re.MULTILINE
    )
    contents = {name: bytes(int(size)) for name, size in listed}
    assert len(contents[PROGRAM]) == 0x800
    contents[PROGRAM] = (work / "standin.bin").read_bytes()
    with zipfile.ZipFile(roms / "tempest1.zip", "w") as archive:
        for name, content in contents.items():
            archive.writestr(name, content)
    return tmp_path / "home"


def linked_play(replay: Replay) -> tuple[Any, Any]:
    """Give the places of frames in play and those of the frames that follow them in play."""
    observation, follows = replay.column("observation"), replay.column("next")[: replay.head]
    first = np.flatnonzero(follows >= 0)
    second = follows[first]
    # Both show the state of play and a living player.
    both = observation[first][:, [0, 5]].all(axis=1) & observation[second][:, [0, 5]].all(axis=1)
    return first[both], second[both]


@assembled
def test_the_fleet_plays_from_coin_to_game_over(tmp_path: Path, home: Path) -> None:
    server = Server(
        tmp_path / "runs", "--launch", "mame:tempest", "--client-setting", "start_level=33",
        "--expert-start", "0",  # episodes that the expert had a hand in are counted apart
        HOME=str(home),
    )  # fmt: skip
    try:
        server.wait_for("mame-tempest-1 at .* joined agent tempest")
        server.wait_for(r"[2-9] episodes\)")
        assert server.stop() == 0
    finally:
        server.kill()
    replay = Replay.to_read(
        tmp_path / "runs" / "default" / "agents" / "tempest" / "replay.bin",
        Layout(20_000, "float32", 222, 2, 1),
    )
    replay.check_valid()
    observation, rewards = replay.column("observation"), replay.column("reward")
    # The level that was pushed was chosen: the first value of the block "game".
    assert set(np.round(observation[: replay.head, 28] * 99)) == {33}
    # Lives end, two in each episode.
    flags = replay.column("flags")[: replay.head]
    ends = int(np.count_nonzero(flags == 1))
    assert ends >= 2
    assert np.count_nonzero(rewards[: replay.head] < -0.5) in (2 * ends, 2 * ends + 1)
    # Each action acts in the one tick that follows it: the spinner by what it was turned,
    # fire by one point, zap by ten; and a tick without threats earns its trickle.
    first, second = linked_play(replay)
    assert len(first) > 150
    place = observation[:, 10:26].argmax(axis=1) * 16 + np.round(observation[:, 7] * 16)
    turned = np.floor(replay.column("continuous")[first, 0] * 31 + 0.5)
    assert np.mean((place[first] + turned) % 256 == place[second]) > 0.95
    fire, zap = replay.column("choice")[first].T
    assert {*fire} == {*zap} == {0, 1}
    earned = 0.001 * fire + 0.01 * zap + 0.001
    assert np.mean(np.isclose(rewards[second], earned, atol=1e-5)) > 0.95


def test_without_the_rom_set_one_line_says_where_to_put_it(tmp_path: Path) -> None:
    settings = tmp_path / ".mame"
    settings.mkdir()
    (settings / "mame.ini").write_text(f"# MAME's\nrompath   $HOME/mine;{tmp_path}/shared\n")
    done = subprocess.run(
        [sys.executable, "main.py", "--launch", "mame:tempest", "--runs-dir", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == (
        "coinop: the game 'tempest' needs MAME's ROM set 'tempest1', which you must bring: put "
        f"tempest1.zip into {tmp_path}/.coinop/roms (also looked in {tmp_path}/mine, "
        f"{tmp_path}/shared)\n"
    )


@pytest.mark.parametrize("brought", ["tempest1.zip", "tempest.7z", "tempest1/"])
@pytest.mark.parametrize("place", [".coinop/roms", "own"])
def test_a_set_is_found_in_every_form_and_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, brought: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(emulators, "_MAME_SETTINGS", tmp_path / "mame.ini")
    with pytest.raises(LaunchError, match="tempest1"):
        emulators.check("mame", "tempest")
    (tmp_path / "mame.ini").write_text('rompath   "$HOME/own"\n')
    file = tmp_path / place / brought
    file.mkdir(parents=True) if brought.endswith("/") else file.parent.mkdir(parents=True)
    file.touch()
    seat = emulators.Seat("one", "127.0.0.1:9", 1, tmp_path)
    arguments = emulators.command("mame", "tempest", seat).arguments
    assert arguments[1] == "tempest1"
    assert arguments[arguments.index("-rompath") + 1] == f"{tmp_path}/.coinop/roms;{tmp_path}/own"
