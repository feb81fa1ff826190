"""The page about a run: whole in itself, and true to what the run has left."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

import main
from server.journal import Journal, Kind, Ramp, new_change
from tools.report import _round_values, page, read


def make_run(directory: Path) -> None:
    directory.mkdir(parents=True)
    (directory / "settings.json").write_text(
        json.dumps({"settings": {"run": {"run": "<b>odd</b>"}}, "versions": {"python": "3.11"}})
    )
    start = {"kind": "interval", "agent": "pong", "time_s": 1.7e9}
    lines = [
        {**start, "frames": 100 * n, "steps": n, "return_mean": n - 21.0, "loss": None}
        for n in range(1500)
    ]
    lines.append(
        {"kind": "evaluation", "agent": "pong", "frames": 149_000, "mean": 12.5, "episodes": 10}
    )
    # Another agent has 30,000 frames of the run's, and came after the first change.
    lines += [{**start, "agent": "late", "frames": 1000 * n, "return_mean": n} for n in range(31)]
    changes = [
        new_change(50_000, "epsilon", None, Ramp(0.5, 0.1, 50_000, 1000), "keys"),
        new_change(80_000, "epsilon", 0.1, None, "ctl", Kind.UNDO),
    ]
    for change, places in zip(
        changes, ({"pong": 50_000}, {"pong": 60_000, "late": 20_000}), strict=True
    ):
        marker = {"kind": "marker", "name": "epsilon", "who": change.who, "time_s": change.time_s}
        lines += [{**marker, "agent": agent, "frames": at} for agent, at in places.items()]
    lost = {"kind": "marker", "agent": "pong", "name": "n_step", "who": "keys", "frames": 7}
    lines.append({**lost, "time_s": changes[0].time_s})  # the journal does not know of it
    text = "\n".join(json.dumps(line) for line in lines)
    (directory / "curves.jsonl").write_text(text + '\n{"kind": "interval", "fra')
    written = Journal.open(directory / "journal.jsonl")
    for change in changes:
        written.write(change)
    written.close()


def test_the_page_tells_what_the_run_left(tmp_path: Path) -> None:
    make_run(tmp_path / "pong")
    text = page(read(tmp_path / "pong"))
    for part in (
        *("Coinop: pong", "149,900 frames", "1,499 gradient steps", "1 damaged lines"),
        *("Agent pong", "last evaluation", '<td class="n">12.5</td>', "Mean return while training"),
        *("epsilon: natural → 0.1 over 1,000 frames, by keys", "(undone), by ctl"),
        *("&lt;b&gt;odd&lt;/b&gt;", "3.11"),
    ):
        assert part in text
    assert "<b>odd" not in text and "Loss" not in text and "http" not in text
    body = text[text.index("<body>") : text.index("</html>")]
    tree = ElementTree.fromstring(body)
    lines = tree.findall(".//polyline")
    assert len(lines) == 3
    points = lines[1].attrib["points"].split()
    assert len(points) == 500
    *pong, late = tree.findall(".//figure")
    for figure in pong:  # both changes, in every chart, numbered
        assert marks(figure, 149_900) == {"1": 50_000, "2": 60_000}
    assert marks(late, 30_000) == {"2": 20_000}  # by its own frames


def marks(figure: ElementTree.Element, until: int) -> dict[str | None, float]:
    """Give the frames at which changes are marked, by their numbers."""
    numbers = [text.text for text in figure.findall(".//text[@class='mark']")]
    places = [float(line.attrib["x1"]) for line in figure.findall(".//line[@class='mark']")]
    frames = [pytest.approx((x - 64) / 484 * until, abs=until / 5000) for x in places]
    return dict(zip(numbers, frames, strict=True))


def test_the_command(tmp_path: Path) -> None:
    make_run(tmp_path / "pong")
    assert main.main(["report", "--runs-dir", str(tmp_path), "--run", "pong"]) == 0
    assert (tmp_path / "pong" / "report.html").read_text().startswith("<!doctype html>")
    assert main.main(["report", "--runs-dir", str(tmp_path), "--run", "none"]) == 2


def test_a_run_without_curves_has_a_page_too(tmp_path: Path) -> None:
    make_run(tmp_path / "pong")
    (tmp_path / "pong" / "curves.jsonl").unlink()
    (tmp_path / "pong" / "journal.jsonl").unlink()
    text = page(read(tmp_path / "pong"))
    assert "no curves yet" in text and "Nobody changed anything" in text


@pytest.mark.parametrize(
    ("low", "high", "values"),
    [
        (-20.5, -13.0, [-20.0, -18.0, -16.0, -14.0]),
        (0.0, 1.0, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (1369.0, 1971.0, [1400.0, 1600.0, 1800.0]),
        (5.0, 5.0, [5.0]),
    ],
)
def test_the_lines_across_a_chart_are_round(low: float, high: float, values: list[float]) -> None:
    assert _round_values(low, high) == pytest.approx(values)
