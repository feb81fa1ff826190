"""The page about a run: whole in itself, and true to what the run has left."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import main
from server.journal import Journal, Kind, Ramp, new_change
from tools.report import page, read


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
    text = "\n".join(json.dumps(line) for line in lines)
    (directory / "curves.jsonl").write_text(text + '\n{"kind": "interval", "fra')
    written = Journal.open(directory / "journal.jsonl")
    written.write(new_change(50_000, "epsilon", None, Ramp(0.5, 0.1, 50_000, 1000), "keys"))
    written.write(new_change(60_000, "epsilon", 0.1, None, "ctl", Kind.UNDO))
    written.close()


def test_the_page_tells_what_the_run_left(tmp_path: Path) -> None:
    make_run(tmp_path / "pong")
    text = page(read(tmp_path / "pong"))
    for part in (
        *("Coinop: pong", "149,900 frames", "1,499 gradient steps", "1 damaged lines"),
        *("Agent pong", "Last evaluation", "<td>12.5</td>", "Mean return while training"),
        *("epsilon: natural → 0.1 over 1,000 frames, by keys", "(undone), by ctl"),
        *("&lt;b&gt;odd&lt;/b&gt;", "3.11"),
    ):
        assert part in text
    assert "<b>odd" not in text and "Loss" not in text and "http" not in text
    body = text[text.index("<body>") : text.index("</html>")]
    tree = ElementTree.fromstring(body)
    lines = tree.findall(".//polyline")
    assert len(lines) == 2
    points = lines[1].attrib["points"].split()
    assert len(points) == 500
    assert len(tree.findall(".//figure//line")) == 2  # both changes, where return_mean is drawn


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
