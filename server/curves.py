"""A run's learning curve: figures, evaluations and changed settings, written as they come.

``curves.jsonl`` holds one JSON object a line, ``tensorboard/AGENT/`` the same for TensorBoard. Both
are only ever appended to: a run that is resumed goes on with its curve. The disk is waited for in a
thread; where it fails that is told once, and training goes on without a curve.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from server import tfevents
from server.stats import AgentView, Score

NAME = "curves.jsonl"
TENSORBOARD = "tensorboard"
_CLOSE_S = 5.0  # for the last lines to reach the disk
_TAIL_BYTES = 1 << 16  # more than a line has

# What is written of an agent every few seconds (docs/metrics.md), and its name in TensorBoard.
FIGURES = {
    "return_mean": "return/mean",
    "return_last": "return/last",
    "episodes": "return/episodes",
    "guided_return_mean": "return/guided_mean",
    "guided_episodes": "return/guided_episodes",
    "agreement": "learning/agreement",
    "loss": "learning/loss",
    "gradient_norm": "learning/gradient_norm",
    "q_min": "learning/q_min",
    "q_mean": "learning/q_mean",
    "q_max": "learning/q_max",
    "learning_rate": "learning/learning_rate",
    "skipped_steps": "learning/skipped_steps",
    "steps": "learning/steps",
    "replay_ratio": "learning/replay_ratio",
    "epsilon": "play/epsilon",
    "expert_ratio": "play/expert_ratio",
    "weights_version": "play/weights_version",
    "frames_per_s": "speed/frames_per_s",
    "steps_per_s": "speed/steps_per_s",
    "latency_p99_ms": "speed/latency_p99_ms",
    "replay_size": "replay/size",
}


class Place(NamedTuple):
    """Where an agent is on its curve."""

    agent: str
    frames: int
    steps: int


class _Entry(NamedTuple):
    kind: str
    time_s: float
    place: Place
    values: Mapping[str, Any]  # for the line
    record: Callable[[float, int], bytes]  # for TensorBoard, from time and frames


class Curves:
    """Writes the curves of a run's agents; its methods never wait for the disk."""

    def __init__(
        self,
        directory: Path,
        *,
        settings: Mapping[str, Any],
        places: Callable[[], Iterable[Place]],
        on_problem: Callable[[str], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._directory = directory
        self._settings = settings  # of this start, by section
        self._places = places
        self._on_problem = on_problem  # called from the thread
        self._clock = clock
        self._started_s = clock()
        self._entries: queue.SimpleQueue[_Entry | None] = queue.SimpleQueue()
        self._files: dict[Path, _Appender] = {}
        self._failed = False
        self._thread = threading.Thread(target=self._run, name="curves", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def close(self) -> None:
        """Write what is still to be written, and end."""
        self._entries.put(None)
        if self._thread.is_alive():
            self._thread.join(_CLOSE_S)

    # --- what happens ---------------------------------------------------------------------------

    def started(self, place: Place, seed: int) -> None:
        """Note that a server took an agent up, anew or again."""
        words = f"started with seed {seed}\n\n{_as_table(self._settings)}"
        self._put("start", place, {"seed": seed}, _as_text("start", words))

    def figures(self, view: AgentView) -> None:
        """Note what an agent's figures are now."""
        found = {name: getattr(view, name) for name in FIGURES}
        tagged = {FIGURES[name]: value for name, value in found.items()}
        place = Place(view.name, view.frames, view.steps)
        self._put("interval", place, found, _as_scalars(tagged))

    def evaluation(self, agent: str, score: Score, *, scheduled: bool, best: bool) -> None:
        """Note what an evaluation found, at the weights that were evaluated."""
        found = score.to_plain()
        names = ("mean", "median", "low_quartile", "high_quartile", "lowest", "highest", "episodes")
        tagged = {f"evaluation/{name}": found[name] for name in names}
        values = {
            **{name: value for name, value in found.items() if name not in ("frames", "steps")},
            "scheduled": scheduled,
            "best": best,
        }
        place = Place(agent, score.frames, score.steps)
        self._put("evaluation", place, values, _as_scalars(tagged))

    def marker(self, name: str, old: Any, new: Any, who: str) -> None:
        """Note that somebody changed a live setting; it shows on the curve of every agent."""
        values = {"name": name, "old": old, "new": new, "who": who}
        record = _as_text("settings", f"{name}: {_shown(old)} → {_shown(new)} ({who})")
        for place in self._places():
            self._put("marker", place, values, record)

    def _put(
        self,
        kind: str,
        place: Place,
        values: Mapping[str, Any],
        record: Callable[[float, int], bytes],
    ) -> None:
        self._entries.put(_Entry(kind, self._clock(), place, values, record))

    # --- the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        while (entry := self._entries.get()) is not None:
            try:
                self._write(entry)
            except Exception as error:  # the rim of the thread; mostly a full disk
                if not self._failed:
                    self._failed = True  # told once: it would be the same every few seconds
                    self._on_problem(
                        f"cannot write the learning curve in {self._directory}: "
                        f"{getattr(error, 'strerror', None) or error}; training goes on without it"
                    )
        for file in self._files.values():
            file.close()

    def _write(self, entry: _Entry) -> None:
        line = {
            "kind": entry.kind,
            "time_s": round(entry.time_s, 3),
            "uptime_s": round(entry.time_s - self._started_s, 3),
            **entry.place._asdict(),
            **{name: _plain(value) for name, value in entry.values.items()},
        }
        text = json.dumps(line, allow_nan=False, default=str) + "\n"
        self._file(self._directory / NAME).append(text.encode())
        agent, frames, _ = entry.place
        record = entry.record(entry.time_s, frames)
        if record:
            name = tfevents.FILE_NAME.format(time_s=self._started_s)
            file = self._file(self._directory / TENSORBOARD / agent / name)
            file.append(record if file.size else tfevents.head(entry.time_s) + record)

    def _file(self, path: Path) -> _Appender:
        if path not in self._files:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._files[path] = _Appender(path)
        return self._files[path]


class _Appender:
    """A file that grows by whole pieces: what fits only in part is taken back."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)
        self.size = _whole_lines(path) if path.name == NAME else path.stat().st_size
        self._file.truncate(self.size)  # a line that a crash cut short would spoil the next

    def append(self, data: bytes) -> None:
        try:
            left = memoryview(data)
            while left:
                left = left[self._file.write(left) :]
        except OSError:
            with contextlib.suppress(OSError):
                self._file.truncate(self.size)
            raise
        self.size += len(data)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._file.close()


def _whole_lines(path: Path) -> int:
    """Give the size of a file up to its last whole line."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        start = file.seek(max(0, size - _TAIL_BYTES))
        return start + file.read().rfind(b"\n") + 1


def _as_scalars(figures: Mapping[str, Any]) -> Callable[[float, int], bytes]:
    known = {tag: float(value) for tag, value in figures.items() if _plain(value) is not None}
    return lambda time_s, frames: tfevents.scalars(time_s, frames, known) if known else b""


def _as_text(tag: str, words: str) -> Callable[[float, int], bytes]:
    return lambda time_s, frames: tfevents.text(time_s, frames, tag, words)


def _as_table(settings: Mapping[str, Any]) -> str:
    """Give settings by section as the table that TensorBoard shows (Markdown)."""
    rows = [
        f"| {section}.{name} | {json.dumps(value, default=str)} |"
        for section, values in settings.items()
        if isinstance(values, Mapping)
        for name, value in values.items()
    ]
    return "\n".join(["| setting | value |", "|---|---|", *rows])


def _plain(value: Any) -> Any:
    """Give a value as JSON has it: what is no number there is nothing."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _shown(value: Any) -> str:
    return "natural" if value is None else str(value)
