"""The benchmarks run and write the figures that their readers rely on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FIGURES = {
    "serve": {
        "fps_echo",
        "fps_serve",
        "serve_over_echo",
        "serve_over_echo_one",
        "p50_ms",
        "p99_ms",
    },
    "memory": {"anonymous_mb_settled", "anonymous_mb_end", "mapped_mb_end", "replay_file_mb"},
    "hold": {
        "fps_offered",
        "fps_answered",
        "p50_ms",
        "p99_ms",
        "steps_per_s",
        "bare_steps_per_s",
        "steps_over_bare",
        "fps_saturated",
        "fps_saturated_no_training",
    },
}


@pytest.mark.parametrize("name", FIGURES)
def test_a_short_benchmark_gives_all_its_figures(name: str, tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    options = ["--rounds", "1", "--seconds", "0.5", "--clients", "4", "--json", str(file)]
    shown = subprocess.run(
        [sys.executable, "-m", "bench", name, *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    figures = json.loads(file.read_text())
    assert set(figures) >= FIGURES[name]
    assert all(isinstance(value, float | int) and value > 0 for value in figures.values())
    assert all(figure in shown.stdout for figure in FIGURES[name])
