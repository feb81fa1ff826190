"""The list of games: complete, honest about what is missing, and quick."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from live import ROOT

from server import emulators
from tools import gamefile

GAMES = sorted(path.stem for path in (ROOT / "client_lua" / "games").glob("*.toml"))
MAME = shutil.which("mame", path=f"{os.environ.get('PATH', '')}:/usr/games")


def shown(*arguments: str, code: int = 0, directory: Path = ROOT, **environment: str) -> str:
    """Run the command in a wide terminal and give what it prints."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "main.py"), "games", *arguments],
        cwd=directory,
        env={**os.environ, "COLUMNS": "160", **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def row(text: str, *start: str) -> str:
    """Give the first line that begins with these words."""
    found = [line for line in text.splitlines() if line.split()[: len(start)] == [*start]]
    assert found, f"{start} not in:\n{text}"
    return found[0]


def test_every_game_is_listed_with_its_emulators() -> None:
    text = shown()
    for game in GAMES:
        first, *others = emulators.games()[game]
        assert row(text, game, first)
        for emulator in others:
            assert any(line.split()[:1] == [emulator] for line in text.splitlines())
    for kind in emulators.kinds():
        assert row(text, kind)
    assert "108 games of the Atari 2600" in row(text, "ale")
    assert "adventure" not in text


def test_all_lists_the_atari_games_too() -> None:
    words = shown("--all").split()
    assert {"adventure", "pong", "zaxxon"} < set(words)
    assert sum(word in emulators.atari_games() for word in words) >= 108


@pytest.mark.skipif(not MAME, reason="MAME is not installed")
def test_an_emulator_that_is_there_is_shown_with_place_and_version() -> None:
    assert f"{MAME} 0." in row(shown(), "mame")
    assert "yes" in row(shown(), "pong2600", "mame")


def test_a_missing_luasocket_is_told_with_what_becomes_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(emulators, "_LUA_PLACES", ("nowhere",))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert "it cannot play; on Debian: apt-get install lua-socket" in (
        emulators.PROGRAMS["fceux"].lack()
    )
    assert "it keeps a core busy" in emulators.PROGRAMS["mame"].lack()
    core = tmp_path / ".luarocks" / "lib" / "lua" / "5.1" / "socket" / "core.so"
    core.parent.mkdir(parents=True)
    core.touch()
    assert not emulators.PROGRAMS["fceux"].lack()
    assert emulators.PROGRAMS["mame"].lack()  # which has another Lua


def test_what_is_missing_is_told_with_the_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setattr(emulators, "_PLACES", str(tmp_path))
    tool(monkeypatch, "games")
    text = capsys.readouterr().out
    fix = "MAME is not installed; on Debian: apt-get install mame"
    assert fix in row(text, "mame")
    assert fix in row(text, "pong2600", "mame")
    tool(monkeypatch, "games", "pong2600")
    assert fix in row(capsys.readouterr().out, "mame")


def tool(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    """Run the command in this process, where emulators can be taken away."""
    import main

    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.setenv(name, "1")
    assert main.main([*arguments]) == 0


@pytest.mark.parametrize("game", GAMES)
def test_a_game_is_shown_with_its_file_and_its_commands(game: str) -> None:
    text = shown(game)
    assert gamefile.comment(game)[0] in text
    emulator = emulators.games()[game][0]
    assert row(text, emulator)
    assert f"make run EMULATOR={emulator} GAME={game}" in text
    assert f"python main.py emulate {emulator}:{game}=4 --server HOST:PORT" in text


@pytest.mark.skipif(not importlib.util.find_spec("lupa"), reason="lupa is not installed")
def test_a_games_file_says_what_it_sees_and_does() -> None:
    text = shown("pong2600")
    assert "10 float32" in row(text, "observation")
    assert "turn[-24..24]" in row(text, "controls")
    assert "score" in row(text, "rewards")
    assert "every 4 frames" in row(text, "decision")
    for game in GAMES:
        assert "problem" not in gamefile.facts(game)


def test_without_a_lua_the_rest_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lupa", None)
    assert "pip install lupa" in gamefile.facts("pong2600")["more"]


def test_atari_games_are_shown_one_by_one_too() -> None:
    text = shown("pong")
    assert "10 float32: own_y" in row(text, "observation")
    assert "ready" in row(text, "ale")
    assert "128 uint8" in row(shown("freeway"), "observation")


def test_an_unknown_game_is_answered_with_near_ones() -> None:
    text = shown("pong260", code=2)
    assert "no game 'pong260'; did you mean pong2600" in text
    assert len(text.splitlines()) == 1


def test_it_is_quick_and_needs_no_torch() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "main.py", "games"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "pong2600" in done.stdout
    assert "torch" not in done.stderr


def test_games_of_ones_own_are_listed_too(tmp_path: Path) -> None:
    own = tmp_path / "games"
    own.mkdir()
    shutil.copy(ROOT / "client_lua" / "games" / "pong2600.lua", own / "mine.lua")
    (own / "mine.toml").write_text('[mame]\nsystem = "a2600"\ncart = "nowhere.bin"\n')
    text = shown(directory=tmp_path)
    assert row(text, "mine", "mame")
    if MAME:
        assert "is expected at" in row(text, "mine", "mame")


def test_a_broken_file_of_ones_own_is_that_games_trouble_alone(tmp_path: Path) -> None:
    own = tmp_path / "games"
    own.mkdir()
    (own / "mine.lua").write_text("-- Mine.\nreturn {}\n")
    (own / "mine.toml").write_text("[mame\n")
    text = shown(directory=tmp_path)
    assert "mine.toml is not TOML" in row(text, "mine", "-")
    for game in GAMES:
        assert row(text, game)
    told = subprocess.run(
        [sys.executable, str(ROOT / "main.py"), "--launch", "mame:mine"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert told.returncode == 2
    assert "mine.toml is not TOML" in told.stderr
