"""The benchmark of learning: a tiny run of it, how it goes on, and how curves are summed up."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
import torch

from bench import chart, learn
from bench import exam as exam_module
from bench.chart import Point
from bench.exam import Exam
from server.learn import checkpoint as checkpoints
from server.learn.checkpoint import Checkpoint
from server.learn.network import HybridNetwork, Shape
from server.spaces import Actions, Discrete, Observation, Spaces

ROOT = Path(__file__).parents[2]
needs_sb3 = pytest.mark.skipif(
    importlib.util.find_spec("stable_baselines3") is None, reason="requirements-bench.txt"
)


def command(results: Path, who: str, *options: str) -> subprocess.CompletedProcess[str]:
    tiny = ["--seeds", "1", "--minutes", "0.15", "--every", "4", "--episodes", "1", "--who", who]
    return subprocess.run(
        [sys.executable, "-m", "bench", "learn", *tiny, "--results", str(results), *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_tiny_training_is_examined_and_not_repeated(tmp_path: Path) -> None:
    done = command(tmp_path, "ours", "--json", str(tmp_path / "mine.json"))
    assert done.returncode == 0, done.stderr
    told = json.loads((tmp_path / "mine.json").read_text())
    (curve,) = told["curves"]["ours"]
    assert [point["wall_s"] for point in curve] == sorted(point["wall_s"] for point in curve)
    assert curve[-1]["wall_s"] == 9
    assert curve[-1]["frames"] > 0
    assert all(-21 <= point["mean"] == point["returns"][0] <= 21 for point in curve)
    assert re.search(r"time to \+10: (not reached|[\d.]+ min)", done.stdout)  # one game may be luck
    picture = (tmp_path / "curves.svg").read_text()
    assert ElementTree.fromstring(picture).tag.endswith("svg")
    assert not (tmp_path / "ours-1" / "run").exists()  # the replay is large
    # Again, after an exam went missing: it alone is taken.
    summary = tmp_path / "ours-1.json"
    summed_up = summary.read_text()
    summary.unlink()
    returns = tmp_path / "ours-1" / "returns.json"
    kept = json.loads(returns.read_text())
    gone = sorted(kept)[-1]
    returns.write_text(json.dumps({k: v for k, v in kept.items() if k != gone}))
    again = command(tmp_path, "ours")
    assert again.returncode == 0, again.stderr
    assert "trains" not in again.stderr
    assert again.stderr.count("mean return") == 1
    assert json.loads(returns.read_text()) == kept  # the same seeds, the same episodes
    assert summary.read_text() == summed_up
    # What is summed up needs no networks.
    shutil.rmtree(tmp_path / "ours-1")
    assert command(tmp_path, "ours").returncode == 0
    assert not (tmp_path / "ours-1").exists()
    other = command(tmp_path, "ours", "--sticky", "0.25")
    assert other.returncode == 2 and "another benchmark" in other.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux holds processes on cores")
def test_trainings_run_at_once_each_on_cores_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = threading.Barrier(2, timeout=10)  # of one: nobody would wait for another
    seats: list[set[int]] = []

    def curve(plan: learn.Plan, who: str, seed: int) -> chart.Curve:
        seats.append(os.sched_getaffinity(0))
        together.wait()
        return [Point(1.0, seed, 1, (float(who == "ours"),))]

    cores = (sorted(os.sched_getaffinity(0)) * 2)[:2]
    monkeypatch.setattr(learn, "_curve", curve)
    monkeypatch.setattr(learn, "_all_cores", lambda: cores)
    plan = learn.Plan(Exam("pong", "features", 1), 1.0, 1.0, 1, "", tmp_path)
    before = os.sched_getaffinity(0)
    curves = learn._curves(plan, ["ours", "sb3"], 2)
    assert os.sched_getaffinity(0) == before
    assert sorted(map(min, seats[:2])) == cores and all(len(seat) == 1 for seat in seats)
    assert {who: [(c[0].frames, c[0].mean) for c in all_of] for who, all_of in curves.items()} == {
        "ours": [(1, 1.0), (2, 1.0)],
        "sb3": [(1, 0.0), (2, 0.0)],
    }


def test_who_fails_ends_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()

    def curve(plan: learn.Plan, who: str, seed: int) -> chart.Curve:
        if who == "sb3":
            raise learn.LearnError("the rival failed")
        try:
            while True:
                plan.sleep()
        finally:
            ended.set()

    monkeypatch.setattr(learn, "_curve", curve)
    monkeypatch.setattr(learn, "_all_cores", lambda: [min(os.sched_getaffinity(0))] * 2)
    plan = learn.Plan(Exam("pong", "features", 1), 1.0, 1.0, 1, "", tmp_path)
    with pytest.raises(learn.LearnError, match="the rival failed"):
        learn._curves(plan, ["ours", "sb3"], 3)
    assert ended.is_set()


def test_cores_that_are_not_there_are_refused(tmp_path: Path) -> None:
    many = command(tmp_path, "ours", "--cores", "4096")
    assert many.returncode == 2 and "--cores 4096 cannot be had: there are" in many.stderr


@needs_sb3
def test_the_rival_is_trained_and_examined_in_the_same_way(tmp_path: Path) -> None:
    done = command(tmp_path, "sb3", "--observation", "ram")
    assert done.returncode == 0, done.stderr
    (curve,) = json.loads((tmp_path / "curves.json").read_text())["curves"]["sb3"]
    assert [point["wall_s"] for point in curve] == sorted(point["wall_s"] for point in curve)
    assert curve[-1]["wall_s"] == 9
    assert curve[-1]["frames"] > 0
    assert all(-21 <= point["mean"] <= 21 for point in curve)


@needs_sb3
def test_the_rival_plays_as_its_authors_code_does(tmp_path: Path) -> None:
    from stable_baselines3 import DQN

    from bench import exam
    from bench.rival import AleEnv, Diary

    env = AleEnv("pong", "features", 1)
    model = DQN("MlpPolicy", env, policy_kwargs={"net_arch": [16, 8]}, device="cpu")
    diary = Diary(tmp_path, 0.0, 1.0, 1.0)
    diary.init_callback(model)
    diary._write(7.0)
    (path,) = tmp_path.iterdir()
    assert exam.told(path) == {"wall_s": 7.0, "frames": 0, "steps": 0}
    play = exam._rival(path, Exam("pong", "features", 1))
    rng = np.random.default_rng(1)
    for _ in range(50):
        seen = rng.normal(size=10).astype(np.float32)
        assert play(seen.tobytes(), False) == model.predict(seen, deterministic=True)[0]


@needs_sb3
def test_a_lost_life_ends_an_episode_of_the_rivals_but_not_the_game() -> None:
    from bench.rival import AleEnv

    env = AleEnv("breakout", "ram", 1)
    seen, _ = env.reset()
    assert seen.shape == (128,) and seen.min() >= 0 and seen.max() <= 1
    ends = 0
    for _ in range(4000):
        seen, reward, terminal, _, _ = env.step(np.int64(0))
        assert reward in (0.0, 1.0)
        if terminal:
            ends += 1
            if env._over:
                break
            assert env.reset()[0].tolist() == seen.tolist()  # the same game goes on
    assert ends == 5


def test_exams_are_many_different_games_and_always_the_same() -> None:
    lengths: list[int] = []

    def play(seen: bytes, first: bool) -> int:
        """Follow the ball; a player without dice plays four different games otherwise."""
        if first:
            lengths.append(0)
        lengths[-1] += 1
        return 1 if seen[54] < seen[51] else 2

    exam = Exam("pong", "ram", 6)
    returns = exam.take(play)
    assert len(set(lengths)) > 4
    assert Exam("pong", "ram", 2).take(play) == returns[:2]


def test_a_noisy_network_is_examined_without_its_noise(tmp_path: Path) -> None:
    spaces = Spaces(Observation("float32", (10,)), Actions((Discrete("s", 3),), ()), ("r",))
    shape = Shape((16,), noisy=True)
    network = HybridNetwork(spaces, shape)  # no noise was drawn
    tensors = {f"online.{name}": value for name, value in network.state_dict().items()}
    plain = {"spaces": spaces.to_plain(), "shape": shape.to_plain()}
    checkpoints.save(tmp_path, Checkpoint(tensors, plain))
    play = exam_module._ours(tmp_path / checkpoints.NAME)
    seen = torch.randn(200, 10, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        wanted = network(seen).values.argmax(1).tolist()
    assert [play(row.numpy().tobytes(), True) for row in seen] == wanted


def curve(*means: float) -> list[Point]:
    return [Point(60.0 * n, 1000 * n, n, (m - 1, m + 1)) for n, m in enumerate(means, start=1)]


def test_curves_are_summed_up_by_the_newest_network_of_each_seed() -> None:
    curves = [curve(-20, 0, 10), curve(-10, -5, 12), curve(-15, 11, 20)]
    band = chart.band(curves, chart.minutes, [0.5, 1.0, 2.5, 3.0, 9.0])
    assert band == [
        (1.0, -20, -15, -10),
        (2.5, -5, 0, 11),
        (3.0, 10, 12, 20),
        (9.0, 10, 12, 20),
    ]
    assert [learn.reached_s(c, 10.0) for c in curves] == [180.0, 180.0, 120.0]
    assert learn.reached_s(curves[0], 10.5) is None


@pytest.mark.parametrize("means", [(-21.0,), (-21.0, -21.0), (0.0, 0.001), (-21.0, 400.0)])
def test_every_curve_can_be_drawn(means: tuple[float, ...]) -> None:
    text = chart.svg("a < b & c", {"ours": [curve(*means)], "other": [curve(*means), curve(3.0)]})
    root = ElementTree.fromstring(text)
    names = [element.text for element in root.iter() if element.tag.endswith("text")]
    assert {"a < b & c", "ours", "other", "minutes of wall time"} <= set(names)
    lines = [element for element in root.iter() if element.tag.endswith("polyline")]
    assert len(lines) == 4
    for line in lines:
        for pair in line.attrib["points"].split():
            x, y = map(float, pair.split(","))
            assert 0 <= x <= chart.WIDTH and 0 <= y <= chart.HEIGHT
