"""What is documented is generated or checked."""

from __future__ import annotations

import dataclasses
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from docs import flamegraph, generate
from server.console import charts, demo, panels, roster
from server.console.look import Look, View
from server.console.screen import render
from server.stats import (
    AgentView,
    ClientView,
    ClusterView,
    Contention,
    DialView,
    GatewayView,
    Governed,
    LearnerView,
    NodeView,
    ReturnWindow,
    Score,
    Snapshot,
)

ROOT = Path(__file__).parents[2]
PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md"]


@pytest.mark.parametrize("path", sorted(generate.pages()), ids=lambda path: path.name)
def test_generated_pages_are_up_to_date(path: Path) -> None:
    assert path.read_text() == generate.pages()[path], "run `make docs`"


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_every_test_that_a_page_names_is_there(page: Path) -> None:
    for path, name in re.findall(r"`(tests/\w+/\w+\.py)::(\w+)`", page.read_text()):
        assert f"\ndef {name}(" in (ROOT / path).read_text(), f"{page.name} names {path}::{name}"


def test_every_promise_names_its_test() -> None:
    rows = (ROOT / "docs" / "reliability.md").read_text().split("\n|")
    promises = [row for row in rows if not row.startswith((" fault |", "---"))]
    assert len(promises) > 30
    for row in promises[1:]:
        assert re.search(r"`tests/\w+/\w+\.py::\w+` \|", row), row


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_figure_on_the_screen_is_defined() -> None:
    text = (ROOT / "docs" / "metrics.md").read_text()
    views = (Snapshot, AgentView, ReturnWindow, Score, ClientView, DialView, Contention, Governed)
    for view in (*views, ClusterView, NodeView, GatewayView, LearnerView):
        for field in dataclasses.fields(view):
            assert f"`{field.name}`" in text, f"docs/metrics.md does not define {field.name}"


def test_every_label_on_the_screen_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    labels: set[str] = set()

    def note(label: str, *_: Any, **__: Any) -> list[Any]:
        labels.add(label)
        return []

    monkeypatch.setattr(panels, "figure", note)
    monkeypatch.setattr(
        panels, "_labelled", lambda parts: [piece for part in parts for piece in note(part[0])]
    )
    for clients in (0, 2):
        snapshot = demo.snapshot(clients=clients)
        played = replace(
            snapshot.agents[0], agreement=0.5, guided_episodes=3, evaluating=1, evaluating_of=4
        )
        snapshot = replace(snapshot, agents=(played,), governed=None)
        for width in (60, 80, 120, 220):
            for view in View:
                render(snapshot, Look(view=view), width=width, height=60)
    labels |= {chart.title for chart in (*charts.LEARNING, *charts.LATENCY)}
    labels |= {column.title.strip() for column in roster._CLIENT_COLUMNS}
    assert len(labels) > 40
    page = (ROOT / "docs" / "metrics.md").read_text()
    rows = re.findall(r"^\| ([^|`]+) \| .*`", page, re.MULTILINE)
    explained = {label for row in rows for label in row.split(", ")}
    assert labels - explained - {"locks, copies"} == set()
    assert "locks, copies |" in page


def test_every_make_target_in_the_readme_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"make ([a-z]+)", (ROOT / "README.md").read_text()):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_make_alone_lists_the_targets() -> None:
    done = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True)
    for target in ("install", "run", "test", "check", "bench", "docs", "soak", "fuzz"):
        assert f"make {target}" in done.stdout
    assert done.stderr == ""  # no rule twice


def test_every_make_target_can_be_made() -> None:
    targets = re.findall(r"(?m)^([a-z]+):.*##", (ROOT / "Makefile").read_text())
    for target in targets:
        dry = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True)
        assert (dry.returncode, dry.stderr) == (0, ""), target


def test_the_flame_graph_shows_both_lanes_and_no_place_on_anybodys_disk() -> None:
    picture = (ROOT / "docs" / "flamegraph.svg").read_text()
    assert "server/batcher.py" in picture and "server/learn/learner.py" in picture
    for title in re.findall(r"<title>([^<]*)", picture):
        assert not re.search(r"(?<![\w.])/\w+/|\b(thread|process) \(?\d", title), title


def test_a_flame_graph_is_freed_from_what_is_this_machines_alone() -> None:
    seen = f"add ({ROOT}/server/batcher.py), run (/usr/lib/python3.11/threading.py), process 47:x, "
    seen += "thread (48): probe"
    freed = "add (server/batcher.py), run (threading.py), process:x, probe"
    assert flamegraph.relative(seen) == freed


def test_every_game_is_described() -> None:
    text = (ROOT / "docs" / "games.md").read_text()
    for path in (ROOT / "client_lua" / "games").glob("*.toml"):
        assert f"| `{path.stem}` |" in text, f"docs/games.md does not describe {path.stem}"
