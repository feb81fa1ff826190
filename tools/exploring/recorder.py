"""Runs a game in MAME by a plan, and gives back what was recorded."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from server import emulators
from server.emulators import Seat
from tools import child
from tools.exploring import inventory, plan
from tools.exploring.inventory import Input, Inventory
from tools.exploring.plan import Plan
from tools.exploring.trace import Hold, Recording, Trace

_REPORT = re.compile(r"coinop: explored (\d+) frames")

Progress = Callable[[int], None]  # told how many frames are done


class Recorder:
    """One game in MAME, run as often as needed, always from power-on."""

    def __init__(self, settings: Mapping[str, Any], title: str) -> None:
        self._settings = settings
        self._title = title

    def look(self) -> Inventory:
        """List the inputs and the RAM."""
        with tempfile.TemporaryDirectory(prefix="coinop-") as place:
            listed = Path(place) / "inventory.txt"
            empty = plan.lua({"inventory": str(listed), "ram": [], "scenes": []})
            self._run(f"return {empty}\n", Path(place), lambda frames: None)
            return inventory.read(listed.read_text(encoding="utf-8"))

    def record(self, made: Plan, inputs: Sequence[Input], progress: Progress) -> Recording:
        """Carry a plan out and give what it recorded."""
        with tempfile.TemporaryDirectory(prefix="coinop-") as place:
            self._run(made.to_lua(place), Path(place), progress)
            return _recording(made, inputs, Path(place))

    def _run(self, text: str, home: Path, progress: Progress) -> None:
        file = home / "plan.lua"
        file.write_text(text, encoding="utf-8")
        command = emulators.mame(self._settings, self._title, Seat("explore", "", 0, home))
        told = {"COINOP_EXPLORE": str(file)}
        command = replace(command, environment={**command.environment, **told})

        def hear(line: str) -> bool:
            report = _REPORT.fullmatch(line)
            if report:
                progress(int(report[1]))
            return report is not None

        child.run(command, hear)


def _recording(made: Plan, inputs: Sequence[Input], place: Path) -> Recording:
    addresses = [a for first, last in made.ram for a in range(first, last + 1)]

    def read(name: str) -> Trace:
        return np.fromfile(place / name, np.uint8).reshape(-1, len(addresses))

    names = [scene.record for scene in made.scenes if scene.record]
    moments = sum(name.startswith("baseline") for name in names)
    holds = [
        Hold(control, value, moment, read(plan.hold_name(moment, control, value)))
        for moment in range(moments)
        for control, found in enumerate(inputs)
        for value in plan.levels(found)
    ]
    recording = Recording(
        addresses=tuple(addresses),
        analog=tuple(found.analog for found in inputs),
        release=plan.HOLD_FRAMES,
        baselines=tuple(read(f"baseline{moment}") for moment in range(moments)),
        holds=tuple(holds),
        idle=read("idle"),
        plays=tuple(read(name) for name in names if name.startswith("play")),
    )
    recording.check_valid()
    return recording
