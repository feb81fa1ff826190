"""python main.py snapshot: what it saves, and what it says if there is nothing to save."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import png
import pytest
from live import ROOT

import main
from server.album import write
from server.net.wire import Preview


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Save in a directory of the test's own."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


def add(runs: Path, run: str, client: str, *, age_s: float, shade: int = 1) -> None:
    """Leave a picture as a server would have."""
    path = runs / run / "previews" / f"{client}.png"
    path.parent.parent.mkdir(parents=True, exist_ok=True)
    assert write({path: Preview(4, 3, bytes([shade] * 36))}) is None
    then = time.time() - age_s
    os.utime(path, (then, then))


def snapshot(runs: Path, *options: str) -> int:
    return main.main(["snapshot", "--runs-dir", str(runs), *options])


def shade(path: Path) -> int:
    return int(png.decode(path.read_bytes())[0, 0, 0])


def test_each_client_of_the_newest_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    add(tmp_path / "runs", "old", "mame", age_s=400)
    add(tmp_path / "runs", "new", "mame", age_s=10, shade=2)
    add(tmp_path / "runs", "new", "ale.1", age_s=200, shade=3)
    (tmp_path / "runs" / "new" / "previews" / "ale.new").touch()  # half a picture
    assert snapshot(tmp_path / "runs") == 0
    said = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"saved new-mame-\d{8}-\d{6}\.png: mame in run new, 10 s ago", said[0])
    assert re.fullmatch(r"saved new-ale.1-\d{8}-\d{6}\.png: ale.1 in run new, 3 min ago", said[1])
    files = {shade(Path(line.split()[1].rstrip(":"))) for line in said}
    assert len(said) == 2 and files == {2, 3}
    assert len(list(Path.cwd().iterdir())) == 2


def test_one_client_of_one_run_in_one_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs, target = tmp_path / "runs", tmp_path / "shot.png"
    add(runs, "a", "mame", age_s=3 * 86400, shade=1)
    add(runs, "a", "ale", age_s=3 * 3600, shade=2)
    add(runs, "b", "ale", age_s=1, shade=3)
    assert snapshot(runs, "--run", "a", "--client", "mame", "--out", str(target)) == 0
    assert shade(target) == 1
    assert capsys.readouterr().out == f"saved {target}: mame in run a, 3 days ago\n"
    assert snapshot(runs, "--run", "a", "--out", str(target)) == 0
    assert shade(target) == 2  # the newest of several
    assert capsys.readouterr().out == f"saved {target}: ale in run a, 3 h ago\n"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "no picture in any run of {runs}: start the server with --preview-every 60"),
        (["--run", "dark"], "no picture in {runs}/dark: start the server with --preview-every 60"),
        (["--run", "none"], "no run 'none' in {runs}; there are: dark"),
    ],
)
def test_without_pictures_it_says_how_to_get_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], words: str
) -> None:
    runs = tmp_path / "runs"
    (runs / "dark").mkdir(parents=True)
    assert snapshot(runs, *options) == 1
    assert f"coinop: {words.format(runs=runs)}" in capsys.readouterr().err


def test_without_runs_it_says_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert snapshot(tmp_path / "runs") == 1
    assert "--preview-every 60" in capsys.readouterr().err


def test_a_client_without_a_picture_is_named_with_those_that_have_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for client in ("b", "a"):
        add(tmp_path / "runs", "pong", client, age_s=1)
    assert snapshot(tmp_path / "runs", "--client", "c") == 1
    assert capsys.readouterr().err == (
        "coinop: no picture of client 'c' in run 'pong'; there are: a, b\n"
    )


def test_a_place_that_cannot_be_written_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add(tmp_path / "runs", "pong", "mame", age_s=1)
    assert snapshot(tmp_path / "runs", "--out", str(tmp_path / "no" / "shot.png")) == 1
    told = capsys.readouterr().err
    assert "cannot save the picture" in told and "no/shot.png" in told


def test_it_does_not_wait_for_torch(tmp_path: Path) -> None:
    add(tmp_path / "runs", "pong", "mame", age_s=1)
    script = (
        "import sys, main; code = main.main(sys.argv[1:]); "
        "sys.exit(code or 'torch' in sys.modules or 'numpy' in sys.modules)"
    )
    command = [sys.executable, "-c", script, "snapshot", "--runs-dir", str(tmp_path / "runs")]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
