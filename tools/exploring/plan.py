"""What is tried: scenes in which inputs are held while the RAM is recorded."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tools.exploring.inventory import Control, Input, grouped

HOLD_FRAMES = 40  # of one input
REST_FRAMES = 10  # after it was let go
PRESS_FRAMES = 10  # of a start button
LEVELS = 5  # of an analog input
_BETWEEN_FRAMES = 120  # of random play, from one moment to the next
_SHORTEST_FRAMES = 4  # that random play holds an input
_MOOD_FRAMES = 400  # for which random play has something it likes best


@dataclass(frozen=True, slots=True)
class _Style:
    """How random play plays: some games want quick hands, in some one must go far to score."""

    longest: int  # frames that an input is held
    favour: float  # share of the time that goes to what it likes best at the moment


_STYLES = (_Style(16, 0.2), _Style(48, 0.9), _Style(32, 0.5), _Style(64, 0.8))


@dataclass(frozen=True, slots=True)
class Step:
    """An input that is set after a frame of its scene."""

    frame: int
    port: str
    name: str
    value: int


@dataclass(frozen=True, slots=True)
class Scene:
    """Some frames of the game, from a known moment on."""

    frames: int
    steps: tuple[Step, ...] = ()
    start: str = ""  # name of a saved state; empty: go on from where the scene before ended
    save: str = ""  # name of the state to keep the end as
    record: str = ""  # name of the trace


@dataclass(frozen=True, slots=True)
class Press:
    """A start button, and the frame after power-on at which it is pressed."""

    button: Input
    frame: int


@dataclass(frozen=True, slots=True)
class Plan:
    """All scenes, in order."""

    ram: tuple[tuple[int, int], ...]
    scenes: tuple[Scene, ...]

    @property
    def frames(self) -> int:
        """Frames of all scenes."""
        return sum(scene.frames for scene in self.scenes)

    def to_lua(self, directory: str) -> str:
        """Write it as client_lua/explore.lua reads it; traces go to a directory."""
        scenes = [
            {
                "from": scene.start or None,
                "frames": scene.frames,
                "steps": [[s.frame, s.port, s.name, s.value] for s in scene.steps],
                "save": scene.save or None,
                "record": f"{directory}/{scene.record}" if scene.record else None,
            }
            for scene in self.scenes
        ]
        return f"return {lua({'ram': [list(pair) for pair in self.ram], 'scenes': scenes})}\n"


def lua(value: Any) -> str:
    """Write a value as Lua: numbers, texts, lists, and maps without what is None."""
    if isinstance(value, str):
        plain = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'"{plain}"'
    if isinstance(value, dict):
        items = (f'["{key}"] = {lua(item)}' for key, item in value.items() if item is not None)
        return "{ " + ", ".join(items) + " }"
    if isinstance(value, list | tuple):
        return "{ " + ", ".join(lua(item) for item in value) + " }"
    return str(value)


def make(
    *,
    ram: tuple[tuple[int, int], ...],
    controls: Sequence[Input],
    presses: Sequence[Press],
    ready: int,
    moments: int,
    runs: int,
    frames: int,
    seed: int,
) -> Plan:
    """Plan everything: the start, the moments, what is held at each, and long runs."""
    scenes = [Scene(ready, _pressed(presses), save="moment0")]
    dice = random.Random(seed)
    for moment in range(1, moments):
        played = _random(controls, _BETWEEN_FRAMES, _STYLES[0], dice)
        scenes.append(Scene(_BETWEEN_FRAMES, played, f"moment{moment - 1}", f"moment{moment}"))
    for moment in range(moments):
        scenes += _held(controls, moment)
    scenes.append(Scene(frames, (), "moment0", record="idle"))
    for run in range(runs):
        played = _random(controls, frames, _STYLES[run % len(_STYLES)], dice)
        scenes.append(Scene(frames, played, "moment0", record=f"play{run}"))
    return Plan(ram, tuple(scenes))


def hold_name(moment: int, control: int, value: int) -> str:
    """Name the trace of an input that is held."""
    return f"hold{moment}-{control}-{value}"


def levels(control: Input) -> list[int]:
    """Give the values at which an input is held."""
    if not control.analog:
        return [1]
    span = control.high - control.low
    return [control.low + round(span * step / (LEVELS - 1)) for step in range(LEVELS)]


def _pressed(presses: Iterable[Press]) -> tuple[Step, ...]:
    steps = []
    for press in presses:
        port, name = press.button.port, press.button.name
        steps.append(Step(press.frame, port, name, 1))
        steps.append(Step(press.frame + PRESS_FRAMES, port, name, 0))
    return tuple(sorted(steps, key=lambda step: step.frame))


def _held(controls: Sequence[Input], moment: int) -> list[Scene]:
    """Hold each input alone, and none, from the same moment on."""
    start, frames = f"moment{moment}", HOLD_FRAMES + REST_FRAMES
    scenes = [Scene(frames, (), start, record=f"baseline{moment}")]
    for place, control in enumerate(controls):
        for value in levels(control):
            steps = [Step(0, control.port, control.name, value)]
            if not control.analog:
                steps.append(Step(HOLD_FRAMES, control.port, control.name, 0))
            name = hold_name(moment, place, value)
            scenes.append(Scene(frames, tuple(steps), start, record=name))
    return scenes


def _random(
    inputs: Sequence[Input], frames: int, style: _Style, dice: random.Random
) -> tuple[Step, ...]:
    """Do something else with each control now and then."""
    steps = []
    for control in grouped(inputs):
        frame, mood = 0, 0
        favourite = _choice(control, dice)
        while frame < frames:
            if frame >= mood + _MOOD_FRAMES:
                mood, favourite = frame, _choice(control, dice)
            values = favourite if dice.random() < style.favour else _choice(control, dice)
            for found, value in zip(control.inputs, values, strict=True):
                steps.append(Step(frame, found.port, found.name, value))
            frame += dice.randint(_SHORTEST_FRAMES, style.longest)
    return tuple(sorted(steps, key=lambda step: step.frame))


def _choice(control: Control, dice: random.Random) -> list[int]:
    """Give a random value for each input of a control; of directions, one at most is held."""
    first = control.inputs[0]
    if first.analog:
        return [dice.randint(first.low, first.high)]
    chosen = dice.randint(0, len(control.inputs))  # the last one is none
    return [int(place == chosen) for place in range(len(control.inputs))]
