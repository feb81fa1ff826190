"""Learning curves: what is written, what survives a crash, what a full disk does."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from server.console import demo
from server.curves import FIGURES, NAME, TENSORBOARD, Curves, Place
from server.stats import Result, Score

ROOT = Path(__file__).parents[2]
VIEW = replace(demo.snapshot().agents[0], name="pong", frames=5000, steps=70)


def lines(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / NAME).read_text().splitlines()]


def open_curves(directory: Path, problems: list[str] | None = None, now: float = 50.0) -> Curves:
    curves = Curves(
        directory,
        settings={"learner": {"learning_rate": 0.0005, "n_step": 3}, "fleet": ()},
        places=lambda: [Place("pong", 5100, 72), Place("other", 7, 0)],
        on_problem=(problems if problems is not None else []).append,
        clock=lambda: now,
    )
    curves.start()
    return curves


def test_every_kind_of_line_says_when_who_and_where(tmp_path: Path) -> None:
    curves = open_curves(tmp_path)
    curves.started(Place("pong", 4000, 60), 3)
    curves.figures(replace(VIEW, loss=0.5, q_mean=float("nan"), return_mean=None))
    results = [Result(1.0, 9, 1), Result(4.0, 9, 2), Result(4.0, 9, 2)]
    score = Score.of(results, frames=4900, steps=66)
    curves.evaluation("pong", score, scheduled=True, best=True)
    curves.marker("epsilon", None, 0.25, "keyboard")
    curves.close()
    start, interval, evaluation, marker, other = lines(tmp_path)
    for line in (start, interval, evaluation, marker, other):
        assert (line["time_s"], line["uptime_s"]) == (50.0, 0.0)
    assert (start["kind"], start["frames"], start["seed"]) == ("start", 4000, 3)
    assert (interval["agent"], interval["frames"], interval["steps"]) == ("pong", 5000, 70)
    assert set(FIGURES) <= set(interval)
    assert (interval["loss"], interval["q_mean"], interval["return_mean"]) == (0.5, None, None)
    assert (evaluation["frames"], evaluation["steps"]) == (4900, 66)
    assert (evaluation["mean"], evaluation["median"], evaluation["distinct"]) == (3.0, 4.0, 2)
    assert (evaluation["low_quartile"], evaluation["high_quartile"]) == (2.5, 4.0)
    assert (evaluation["scheduled"], evaluation["best"]) == (True, True)
    assert (marker["agent"], marker["frames"], other["agent"]) == ("pong", 5100, "other")
    assert (marker["name"], marker["old"], marker["new"]) == ("epsilon", None, 0.25)
    assert marker["who"] == "keyboard"


def test_tensorboard_shows_the_same(tmp_path: Path) -> None:
    curves = open_curves(tmp_path)
    curves.started(Place("pong", 4000, 60), 3)
    curves.figures(replace(VIEW, loss=0.5, q_mean=float("nan")))
    results = [Result(1.0, 9, 1), Result(4.0, 9, 2), Result(4.0, 9, 2)]
    score = Score.of(results, frames=4900, steps=66)
    curves.evaluation("pong", score, scheduled=True, best=True)
    curves.marker("epsilon", None, 0.25, "keyboard")
    curves.close()
    reader = EventAccumulator(str(tmp_path / TENSORBOARD / "pong"))
    reader.Reload()
    assert [(e.step, e.value) for e in reader.Scalars("learning/loss")] == [(5000, 0.5)]
    assert "learning/q_mean" not in reader.Tags()["scalars"]
    assert [(e.step, e.value) for e in reader.Scalars("evaluation/mean")] == [(4900, 3.0)]
    assert [(e.step, e.value) for e in reader.Scalars("evaluation/median")] == [(4900, 4.0)]
    (start,) = reader.Tensors("start")
    words = start.tensor_proto.string_val[0].decode()
    assert words.startswith("started with seed 3\n\n| setting | value |\n|---|---|\n")
    assert "| learner.learning_rate | 0.0005 |\n| learner.n_step | 3 |" in words
    (marker,) = reader.Tensors("settings")
    assert marker.step == 5100
    assert marker.tensor_proto.string_val[0].decode() == "epsilon: natural → 0.25 (keyboard)"


def test_a_resumed_run_goes_on_with_its_curve_after_a_line_that_a_crash_cut(
    tmp_path: Path,
) -> None:
    curves = open_curves(tmp_path)
    curves.figures(VIEW)
    curves.close()
    with (tmp_path / NAME).open("a") as file:
        file.write('{"kind": "interval", "time_s": 17')
    curves = open_curves(tmp_path, now=90.0)
    curves.figures(replace(VIEW, frames=6000))
    curves.close()
    assert [line["frames"] for line in lines(tmp_path)] == [5000, 6000]
    reader = EventAccumulator(str(tmp_path / TENSORBOARD / "pong"))
    reader.Reload()
    assert [e.step for e in reader.Scalars("learning/steps")] == [5000, 6000]


_FULL_DISK = """
import resource, sys
from pathlib import Path
from tests.server.test_curves import VIEW, open_curves
directory, problems = Path(sys.argv[1]), []
curves = open_curves(directory, problems)
_, most = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (1500, most))  # a little more than two lines
for _ in range(20):
    curves.figures(VIEW)
while not curves._entries.empty():
    pass
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
curves.figures(VIEW)
curves.close()
print(len(problems), problems[0])
"""


def test_a_full_disk_is_one_warning_and_leaves_whole_lines(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FULL_DISK, str(tmp_path)],
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'tests' / 'server'}"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.startswith(f"1 cannot write the learning curve in {tmp_path}: "), done
    assert "training goes on" in done.stdout
    assert 2 <= len(lines(tmp_path)) < 20
    reader = EventAccumulator(str(tmp_path / TENSORBOARD / "pong"))
    reader.Reload()
    assert reader.Scalars("learning/loss")


def test_what_cannot_be_opened_is_one_warning(tmp_path: Path) -> None:
    (tmp_path / NAME).mkdir()
    problems: list[str] = []
    curves = open_curves(tmp_path, problems)
    for _ in range(3):
        curves.figures(VIEW)
    curves.close()
    assert len(problems) == 1
    assert "directory" in problems[0]
