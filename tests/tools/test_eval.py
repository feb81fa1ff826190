"""``python main.py eval`` on runs that real servers left behind."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from live import Server

from main import main
from server import journal
from server.journal import Journal, Kind
from tools import subject as subject_module

CARTPOLE = ("--launch", "gym:CartPole-v1", "--min-replay", "100", "--heartbeat-s", "0.5")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give runs with one agent that has a best, and one that has not."""
    runs = tmp_path_factory.mktemp("runs")
    server = Server(runs, *CARTPOLE, "--eval-interval-s", "1", "--eval-episodes", "1")
    try:
        server.wait_for("the best so far")
        assert server.stop() == 0
    finally:
        server.kill()
    server = Server(runs, "--run", "pong", "--launch", "ale:pong", "--eval-interval-s", "0")
    try:
        server.wait_for(r"frames +[1-9]")
        assert server.stop() == 0
    finally:
        server.kill()
    return runs


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


Evaluate = Callable[..., Done]


@pytest.fixture
def evaluate(runs: Path, capfd: pytest.CaptureFixture[str]) -> Evaluate:
    """Give the command as a function: in this process, with emulators in their own."""

    def run(*options: str) -> Done:
        code = main(["eval", "--runs-dir", str(runs), *options])
        return Done(code, *capfd.readouterr())

    return run


def test_the_same_command_finds_the_same(evaluate: Evaluate, runs: Path, tmp_path: Path) -> None:
    replay = runs / "default" / "agents" / "CartPole-v1" / "replay.bin"
    before = replay.read_bytes(), (runs / "default" / "curves.jsonl").read_text()
    found = []
    for name in ("a.json", "b.json"):
        done = evaluate("--best", "--episodes", "4", "--json", str(tmp_path / name))
        assert done.returncode == 0, done.stderr
        found.append(json.loads((tmp_path / name).read_text()))
    first, second = found
    assert first["returns"] == second["returns"]
    assert len(first["returns"]) == first["score"]["episodes"] == 4
    assert first["score"]["mean"] == pytest.approx(sum(first["returns"]) / 4)
    assert (first["game"], first["checkpoint"], first["sticky"]) == ("gym:CartPole-v1", "best", 0)
    assert "episode 4 of 4: return " in done.stdout
    for word in ("mean  ", "median  ", "interquartile range  ", "min, max  "):
        assert word in done.stdout
    assert before == (replay.read_bytes(), (runs / "default" / "curves.jsonl").read_text())


def test_other_seeds_are_other_episodes_and_the_result_goes_into_the_run(
    evaluate: Evaluate, runs: Path
) -> None:
    returns = []
    for seed in ("1", "2"):
        done = evaluate("--episodes", "5", "--seed", seed)
        assert done.returncode == 0, done.stderr
        path = Path(done.stdout.rpartition("written to ")[2].strip())
        assert path.parent == runs / "default" / "evaluations"
        returns.append(json.loads(path.read_text())["lengths"])
    assert returns[0] != returns[1]


def test_an_atari_game_says_if_its_episodes_are_the_same_over_again(
    evaluate: Evaluate, tmp_path: Path
) -> None:
    out = tmp_path / "pong.json"
    options = ("--game", "pong", "--episodes", "3", "--frame-skip", "30", "--json", str(out))
    done = evaluate("--run", "pong", *options)
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())
    assert (found["game"], found["observation"]) == ("ale:pong", "features")
    assert all(-21 <= value <= 21 for value in found["returns"])
    alike = f"only {found['score']['distinct']} of the 3 episodes differ"
    assert (alike in done.stdout) == (found["score"]["distinct"] < 3)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--run", "nothing"), "no run 'nothing' in"),
        (("--run", "pong", "--best"), "agent 'pong' has no best checkpoint in"),
        (("--agent", "x"), "which agent of run 'default'? There are: CartPole-v1 (plays"),
        (
            ("--game", "breakout"),
            "no agent plays 'breakout'; there are: CartPole-v1 (plays CartPole-v1)",
        ),
        (
            ("--agent", "CartPole-v1", "--game", "breakout"),
            "agent 'CartPole-v1' does not play 'breakout'; there are: CartPole-v1 (",
        ),
        (("--sticky", "0.25"), "cannot be played with --sticky 0.25: only ale games can"),
        (("--game", "gym:NoSuch-v0"), "gym:NoSuch-v0 played 0 of 20 episodes: "),
        (("--game", "gym:Pendulum-v1"), "expects 4 float32 values"),
        (("--game", "sega:sonic"), "unknown emulator 'sega'"),
    ],
)
def test_what_cannot_be_evaluated_is_told_in_one_line(
    evaluate: Evaluate, options: tuple[str, ...], words: str
) -> None:
    done = evaluate(*options)
    assert done.returncode in (1, 2)
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_what_was_pushed_to_the_games_since_the_start_counts(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "default"
    shutil.copytree(runs / "default", run)
    told = {"server": {"client_setting": ["level=3", "lives=5"]}, "emulators": {}, "fleet": []}
    monkeypatch.setattr(subject_module, "_settings", lambda path: told)
    with contextlib.closing(Journal.open(run / journal.NAME)) as book:
        for name, new in (("level", 7), ("level", 9), ("speed", 2), ("lives", 6), ("lives", None)):
            book.write(journal.new_change(1, f"client.{name}", None, new, "test", Kind.SET))
        book.write(journal.new_change(1, "epsilon", None, 0.5, "test", Kind.SET))
    subject = subject_module.find(tmp_path, "default", agent=None, game="", which="latest")
    assert subject.client_settings == {"level": 9, "lives": 5, "speed": 2}
