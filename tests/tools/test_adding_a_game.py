"""docs/adding-a-game.md, followed from its first line to its last."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from live import ROOT, Server

from server.learn.replay import Layout, Replay

MAME = shutil.which("mame", path=f"{os.environ.get('PATH', '')}:/usr/games")
pytestmark = [
    pytest.mark.skipif(MAME is None, reason="MAME is not installed"),
    pytest.mark.timeout(1200),
]
PAGE = (ROOT / "docs" / "adding-a-game.md").read_text(encoding="utf-8")
EPISODE_PATIENCE_S = 400.0  # two minutes of the game, on a busy machine


@dataclass(frozen=True)
class Block:
    """A block of code in the page."""

    language: str
    file: str
    text: str


def blocks() -> Iterator[Block]:
    for match in re.finditer(r"^```(\w+) ?(\S*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL):
        yield Block(match[1], match[2], match[3])


class Reader:
    """Somebody who does what the page says, and compares what they see with it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.commands: list[str] = []
        self._output = ""

    def follow(self, block: Block) -> None:
        if block.language == "sh":
            for line in block.text.splitlines():
                self._run(line)
        elif block.language == "text":
            self._compare(block.text)
        else:
            file = self.directory / block.file
            assert file.exists(), f"{file} was not written by an earlier step"
            file.write_text(block.text, encoding="utf-8")

    def _run(self, line: str) -> None:
        python, main, *arguments = shlex.split(line)
        assert (python, main) == ("python", "main.py")
        self.commands.append(line)
        if "--launch" in arguments:
            self._train(arguments)
            return
        done = subprocess.run(
            [sys.executable, str(ROOT / "main.py"), *arguments],
            cwd=self.directory,
            env={**os.environ, "COLUMNS": "160"},
            capture_output=True,
            text=True,
            timeout=900,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        self._output = done.stdout

    def _compare(self, text: str) -> None:
        """Every line of the page must be in the output; its '...' stands for anything."""
        for line in text.splitlines():
            parts = (re.escape(part).replace(r"\ ", " ") for part in line.split("..."))
            pattern = ".*".join(re.sub(" +", " +", part) for part in parts)
            assert re.search(f"(?m)^{pattern}", self._output), f"{line!r} not in:\n{self._output}"

    def _train(self, arguments: list[str]) -> None:
        runs = self.directory / "runs"
        server = Server(runs, *arguments, directory=self.directory)
        try:
            for number in (1, 2):
                server.wait_for(f"mame-freeway-{number} at .* joined agent freeway")
            deadline = time.monotonic() + EPISODE_PATIENCE_S
            while not re.search(r"[1-9]\d* episodes\)", server.text):
                assert time.monotonic() < deadline, server.text
                time.sleep(0.5)
            assert server.stop() == 0
        finally:
            server.kill()
        assert "11 float32 values, actions vertical(3), rewards crossing+progress" in server.text
        assert "ended with code" not in server.text
        self._check_replay(runs / "freeway" / "agents" / "freeway" / "replay.bin")

    def _check_replay(self, file: Path) -> None:
        replay = Replay.to_read(file, Layout(20000, "float32", 11, 1, 0))
        replay.check_valid()
        assert replay.head > 2000
        seen = replay.column("observation")[: replay.head]
        assert np.abs(seen).max() <= 1.1
        assert (seen.std(axis=0) > 0.05).all()  # the chicken walks, and ten cars drive
        rewards = replay.column("reward")[: replay.head]
        assert (rewards > 0).any() and (rewards < 0).any()


def test_the_page_from_start_to_end(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    for block in blocks():
        reader.follow(block)
    verbs = [line.split()[2] for line in reader.commands]
    assert verbs == ["explore", "rehearse", "explore", "rehearse", "--run"]


def test_what_the_page_says_of_options_is_so() -> None:
    help_text = subprocess.run(
        [sys.executable, "main.py", "explore", "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    named = set(re.findall(r"--(?!run\b|launch|show|runs-dir)[a-z]+", PAGE))
    assert {"--cart", "--start", "--boot", "--ram", "--option", "--json", "--seed"} <= named
    for option in named:
        assert option in help_text, option


def test_the_readme_leads_to_the_page() -> None:
    assert "docs/adding-a-game.md" in (ROOT / "README.md").read_text(encoding="utf-8")
