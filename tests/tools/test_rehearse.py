"""Rehearsals of game files in real MAME, and games that live outside the project."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from live import ROOT
from test_adding_a_game import blocks

from server import emulators
from server.emulators import LaunchError, Seat
from tools import gamefile
from tools.exploring import skeleton

MAME = shutil.which("mame", path=f"{os.environ.get('PATH', '')}:/usr/games")
needs_mame = pytest.mark.skipif(MAME is None, reason="MAME is not installed")
pytestmark = pytest.mark.timeout(300)
BUILT_IN = ROOT / "client_lua" / "games"


def rehearse(directory: Path, *options: str, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, str(ROOT / "main.py"), "rehearse", *options],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=200,
    )
    text = done.stdout + done.stderr
    assert done.returncode == code, text
    return text


@pytest.fixture
def own(tmp_path: Path) -> Callable[..., Path]:
    """Write a game of one's own: that of docs/adding-a-game.md, with something replaced."""
    (text,) = [block.text for block in blocks() if block.language == "lua"]

    def write(name: str, old: str = "--", new: str = "--", place: str = "games") -> Path:
        assert old in text
        directory = tmp_path / place
        directory.mkdir(exist_ok=True)
        file = directory / f"{name}.lua"
        file.write_text(text.replace(old, new), encoding="utf-8")
        start = skeleton.start_file({"system": "a2600", "cart": "ale:freeway"})
        file.with_suffix(".toml").write_text(start, encoding="utf-8")
        return file

    return write


# --- rehearsals ---------------------------------------------------------------------------------


@needs_mame
def test_a_good_game_is_summed_up(tmp_path: Path, own: Callable[..., Path]) -> None:
    own("mine")
    text = rehearse(tmp_path, "mame:mine", "--frames", "3000")
    assert "observation: 11 of 11 values (float32) changed" in text
    walked = re.search(r"reward progress: \+([\d.]+) and -([\d.]+) in (\d+) decisions", text)
    assert walked is not None
    assert float(walked[1]) > 1 and float(walked[2]) > 1 and int(walked[3]) > 600
    assert "mame:mine: nothing that a server would refuse" in text
    assert rehearse(tmp_path, "mame:mine", "--frames", "3000") == text  # the dice have a seed
    assert rehearse(tmp_path, "mame:mine", "--frames", "3000", "--seed", "2") != text


@needs_mame
@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("shape = { 11 }", "shape = { 10 }", "observation.read gave 44 bytes; 10 float32 values"),
        ("return { crossed,", "return { ", "reward gave 1 numbers; rewards names 2"),
        ("walked / WAY", "0 / 0", "reward 'progress' is .*nan, not a finite number"),
        ('"Reset Game"', '"Rest Game"', "MAME has no input 'Rest Game' at :SWB"),
        ('inputs = { "up", "down" }', 'inputs = { "up", "dwn" }', "names no input 'dwn' for mame"),
        ("actions = {", "acts = {", "actions is missing: a table"),
        ("frame_skip = 4", "frame_skip = {", r"cannot load the game: .*broken\.lua"),
        ("local SCORE,", "local SKORE,", r"broken\.lua:\d+: .*nil"),
    ],
)
def test_what_is_wrong_is_named(
    tmp_path: Path, own: Callable[..., Path], old: str, new: str, words: str
) -> None:
    own("broken", old, new)
    text = rehearse(tmp_path, "mame:broken", "--frames", "400", code=1)
    assert "mame:broken is not right yet" in text
    assert re.search(words, text), text


@needs_mame
def test_a_game_that_never_begins_is_warned_of(tmp_path: Path, own: Callable[..., Path]) -> None:
    own("asleep", "return frame >= READY", "return false")
    text = rehearse(tmp_path, "mame:asleep", "--frames", "300")
    assert "warning: no decision was made" in text


@pytest.mark.skipif(
    not (shutil.which("cl65") and shutil.which("fceux", path="/usr/games:/usr/bin")),
    reason="FCEUX or cc65 is not installed",
)
def test_every_lua_emulator_can_rehearse(tmp_path: Path) -> None:
    text = rehearse(tmp_path, "fceux:catch", "--frames", "900")
    assert "fceux:catch: nothing that a server would refuse" in text


def test_what_cannot_be_rehearsed_is_told(tmp_path: Path) -> None:
    told = rehearse(tmp_path, "ale:pong", code=2)
    assert "'ale:pong' must be EMULATOR:GAME with one of the emulators mame" in told
    assert "no game 'nothing' for MAME; there are:" in rehearse(tmp_path, "mame:nothing", code=2)
    assert "cannot read" in rehearse(tmp_path, "mame:./nothing.lua", code=2)


# --- games of one's own -------------------------------------------------------------------------


def seat(tmp_path: Path) -> Seat:
    return Seat("one", "127.0.0.1:9", 7, tmp_path)


def test_own_games_are_found_by_name_and_by_path(
    tmp_path: Path, own: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, elsewhere = own("mine"), own("other", place="elsewhere")
    assert "mine" not in emulators.games()
    monkeypatch.chdir(tmp_path)
    assert emulators.games()["mine"] == ("mame",)
    assert emulators.game_file("mine") == here
    assert emulators.game_file("./elsewhere/other.lua") == elsewhere
    assert emulators.game_file(str(elsewhere.with_suffix(""))) == elsewhere
    assert emulators.game_file("pong2600") == BUILT_IN / "pong2600.lua"
    assert gamefile.comment("mine")[0].startswith("Freeway: the left chicken crosses")


@needs_mame
def test_the_emulator_is_told_the_whole_path(
    tmp_path: Path, own: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = own("mine")
    monkeypatch.chdir(tmp_path)
    for game in ("mine", "games/mine.lua", str(file)):
        made = emulators.command("mame", game, seat(tmp_path))
        assert made.environment["COINOP_GAME"] == str(file)


def test_an_own_game_of_a_known_name_goes_first(
    tmp_path: Path, own: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = own("pong2600")
    monkeypatch.chdir(tmp_path)
    assert emulators.game_file("pong2600") == file


def test_files_that_are_no_games_do_not_disturb(
    tmp_path: Path, own: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = own("mine")
    file.with_name("notes.toml").write_text("not [ toml")
    monkeypatch.chdir(tmp_path)
    assert "mine" in emulators.games() and "notes" not in emulators.games()
    file.with_suffix(".toml").write_text("[fceux]\ncart = 'x'\n")
    with pytest.raises(LaunchError, match=r"mine\.toml has no table \[mame\]"):
        emulators.command("mame", str(file), seat(tmp_path))
    file.with_suffix(".toml").write_text("not [ toml")
    with pytest.raises(LaunchError, match=r"mine\.toml is not TOML"):
        emulators.command("mame", str(file), seat(tmp_path))
