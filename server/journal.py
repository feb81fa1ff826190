"""The run's journal: every change of a live setting, one line of JSON each, never rewritten.

Each line carries a checksum; one that is damaged is left out and told, with its number.
"""

from __future__ import annotations

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import IO, Any

from server import document
from server.dials import Value

_CHECKSUM = "checksum"
NAME = "journal.jsonl"


@dataclass(frozen=True, slots=True)
class Ramp:
    """A value on its way: a straight line over frames, and its end from then on."""

    start: float
    end: float
    from_frame: int
    frames: int

    def at(self, frame: int) -> float:
        """Give the value at a frame."""
        done = min(1.0, max(0.0, (frame - self.from_frame) / self.frames))
        return self.start + (self.end - self.start) * done


Chosen = Value | Ramp | None  # None: natural


class Kind(Enum):
    """What a line of the journal tells of."""

    SET = "set"
    UNDO = "undo"  # takes the newest change back that is still in force
    DEED = "deed"  # something that was done once, such as emptying the replay


@dataclass(frozen=True, slots=True)
class Change:
    """One line of the journal."""

    time_s: float  # wall clock, seconds since the epoch
    frame: int  # of the whole run
    name: str
    old: Chosen
    new: Chosen
    who: str
    kind: Kind = Kind.SET


_WORDS = {"time", "frame", "name", "old", "new", "who", "kind"}


class Journal:
    """The file, open for appending; what could be read of it is in ``changes``."""

    def __init__(self, file: IO[str], changes: list[Change], damaged: list[int]) -> None:
        self._file = file
        self.changes = changes
        self.damaged = damaged  # numbers of the lines that could not be read, from 1
        self._disk = ThreadPoolExecutor(1, "journal")  # waits for the disk, as nobody else should

    @classmethod
    def open(cls, path: Path) -> Journal:
        """Read what there is, and go on at its end."""
        changes, damaged = read(path)
        new = not path.exists()
        file = path.open("a+", encoding="utf-8")
        if new:
            document.sync_directory(path.parent)
        if file.tell() and not _ends_whole(path):
            file.write("\n")  # the line before was cut off by a crash: do not join it
        return cls(file, changes, damaged)

    def write(self, change: Change) -> None:
        """Append a change; when this returns, it survives the end of the process.

        A moment later it survives a power loss.
        """
        self.changes.append(change)
        plain = to_plain(change)
        self._file.write(json.dumps({**plain, _CHECKSUM: document.checksum(plain)}) + "\n")
        self._file.flush()
        self._disk.submit(os.fsync, self._file.fileno())

    def close(self) -> None:
        """Let go of the file."""
        self._disk.shutdown()
        self._file.close()


def read(path: Path) -> tuple[list[Change], list[int]]:
    """Give the changes in a file, oldest first, and the numbers of the lines that are damaged."""
    if not path.exists():
        return [], []
    changes, damaged = [], []
    text = path.read_text(encoding="utf-8", errors="replace")
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            changes.append(_from_plain(_checked(json.loads(line))))
        except (ValueError, KeyError, TypeError, RecursionError):
            damaged.append(number)
    return changes, damaged


def _checked(plain: dict[str, Any]) -> dict[str, Any]:
    """Give a line without its checksum; one of before there were any has just its own words."""
    found = plain.pop(_CHECKSUM, None)
    if found is None and set(plain) != _WORDS:
        raise ValueError("its checksum is lost")
    if found is not None and found != document.checksum(plain):
        raise ValueError("its checksum does not match")
    return plain


def new_change(
    frame: int, name: str, old: Chosen, new: Chosen, who: str, kind: Kind = Kind.SET
) -> Change:
    """Make a change of this moment."""
    return Change(round(time.time(), 3), frame, name, old, new, who, kind)


def to_plain(change: Change) -> dict[str, Any]:
    """Give a change as JSON knows it."""
    return {
        "time": change.time_s,
        "frame": change.frame,
        "name": change.name,
        "old": _chosen_to_plain(change.old),
        "new": _chosen_to_plain(change.new),
        "who": change.who,
        "kind": change.kind.value,
    }


def _from_plain(plain: dict[str, Any]) -> Change:
    return Change(
        float(plain["time"]),
        int(plain["frame"]),
        str(plain["name"]),
        _chosen_from_plain(plain["old"]),
        _chosen_from_plain(plain["new"]),
        str(plain["who"]),
        Kind(plain["kind"]),
    )


def _chosen_to_plain(chosen: Chosen) -> Any:
    if not isinstance(chosen, Ramp):
        return chosen
    return {
        "start": chosen.start,
        "end": chosen.end,
        "from_frame": chosen.from_frame,
        "frames": chosen.frames,
    }


def _chosen_from_plain(plain: Any) -> Chosen:
    if isinstance(plain, dict):
        return Ramp(
            float(plain["start"]), float(plain["end"]), plain["from_frame"], plain["frames"]
        )
    if plain is not None and not isinstance(plain, bool | int | float | str):
        raise TypeError(f"{plain!r} is no value")
    return plain


def _ends_whole(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, 2)
        return file.read(1) == b"\n"
