"""The same joystick stream gives the same RAM in MAME as in ALE; where it does not is listed.

A game goes the same way in both once its own counters agree. They count frames from power-on, and
MAME takes some frames longer than ALE until a game has drawn its first; so Reset is let go of that
much later in MAME (``reset_until``; ALE's own is 68).

The frames of the two end at different moments of the game's own frame. Three things follow.
- What a game writes between the two moments is seen a frame sooner or later in MAME: ``lags``.
- What it writes and overwrites between them is seen in one of the two only: ``passing``.
- The stack, and scratch bytes of the drawing, are caught at different moments: ``scratch``. Bytes
  that differ from power-on belong to it too; nothing else in these frames depends on them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ale_py
import numpy as np
import numpy.typing as npt
import pytest
from ale_py import Action, roms
from mame import Start, needs_mame
from pilot import Pilot

pytestmark = [needs_mame, pytest.mark.timeout(300)]

HOLD = 4  # frames, as with a frame skip: some games look at the stick in every other frame only
FRAMES = 1200
Ram = npt.NDArray[np.uint8]  # (frames, 128)

GAME = """
local BUTTONS = {{ "up", "down", "left", "right", "fire" }}
local JOY = ":joyport1:joy:JOY"
return {{
  name = "ram",
  inputs = {{
    mame = {{
      up = {{ JOY, "P1 Up" }}, down = {{ JOY, "P1 Down" }},
      left = {{ JOY, "P1 Left" }}, right = {{ JOY, "P1 Right" }},
      fire = {{ JOY, "P1 Button 1" }}, reset = {{ ":SWB", "Reset Game" }},
    }},
  }},
  observation = {{
    dtype = "uint8", shape = {{ 128 }},
    read = function(machine) return machine.read_range(0x80, 0xff) end,
  }},
  actions = {{
    discrete = {{
      {{ name = "up", choices = 2 }}, {{ name = "down", choices = 2 }},
      {{ name = "left", choices = 2 }}, {{ name = "right", choices = 2 }},
      {{ name = "fire", choices = 2 }},
    }},
    apply = function(machine, action)
      for place, name in ipairs(BUTTONS) do machine.press(name, action.discrete[place]) end
    end,
    release = function(machine) machine.release() end,
  }},
  rewards = {{ "none" }},
  reward = function() return {{ 0 }} end,
  episode = {{
    ready = function(machine, frame)
      machine.press("reset", frame >= {reset_until} - 8 and frame < {reset_until} and 1 or 0)
      return frame >= {reset_until}
    end,
    over = function() end,
    idle_frames = 0,
  }},
}}
"""


@dataclass(frozen=True, slots=True)
class Match:
    """How a game's RAM in MAME is compared with ALE's."""

    rom: str
    reset_until: int
    lags: tuple[int, int]  # of MAME's frames
    scratch: frozenset[int]
    passing: frozenset[int]


MATCHES = [
    Match(
        "space_invaders",
        reset_until=71,
        lags=(0, 1),
        scratch=frozenset({1, 9, 10, 14, 110, 111, 112, 114, *range(116, 122), 126, 127}),
        passing=frozenset({74, 75, 78, 80, 85, 106}),
    ),
    Match(
        "boxing",
        reset_until=81,
        lags=(-1, 0),
        scratch=frozenset({45, 84, 90, 99, 101, 107, 109, *range(124, 128)}),
        passing=frozenset({33, 35, 92}),
    ),
    Match(
        "freeway",
        reset_until=71,
        lags=(-1, 0),
        scratch=frozenset({2, 22, 34, 55, 56, *range(118, 123), 126}),
        passing=frozenset(),
    ),
]
RARE = 0.03  # of the frames: a passing value is there for a moment


def stream(rom: str) -> list[Action]:
    """Give random actions of a game, each held for a few frames, after one frame of none."""
    rng = np.random.default_rng(5)
    choices = interface(rom).getMinimalActionSet()
    drawn = rng.integers(len(choices), size=FRAMES // HOLD + 1)
    return [Action.NOOP, *(choices[i] for i in drawn for _ in range(HOLD))][:FRAMES]


def interface(rom: str) -> Any:
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    ale = ale_py.ALEInterface()
    ale.setFloat("repeat_action_probability", 0.0)
    ale.loadROM(Path(roms.get_rom_path(rom)))
    return ale


def in_ale(rom: str, actions: list[Action]) -> Ram:
    ale = interface(rom)
    ale.act(Action.NOOP)  # MAME's first decision comes a frame after Reset
    seen = [ale.getRAM()]
    for action in actions:
        ale.act(action)
        if ale.game_over():
            break
        seen.append(ale.getRAM())
    return np.array(seen)


def in_mame(match: Match, actions: list[Action], mame: Start, tmp_path: Path) -> Ram:
    game = tmp_path / "ram.lua"
    game.write_text(GAME.format(reset_until=match.reset_until))
    game.with_suffix(".toml").write_text(
        f'[mame]\nsystem = "a2600"\noptions = ["-joyport1", "joy"]\ncart = "ale:{match.rom}"\n'
    )
    waiting = iter(actions)

    def press(frame: object) -> tuple[list[int], list[float]]:
        held = next(waiting).name
        return [int(button in held) for button in ("UP", "DOWN", "LEFT", "RIGHT", "FIRE")], []

    with Pilot() as pilot:
        mame(pilot.port, plays=str(game), once="1")
        frames = pilot.play(len(actions), press)
    return np.array([np.frombuffer(frame.observation, np.uint8) for frame in frames])


@pytest.mark.parametrize("match", MATCHES, ids=lambda match: match.rom)
def test_the_same_actions_give_the_same_ram(match: Match, mame: Start, tmp_path: Path) -> None:
    actions = stream(match.rom)
    ale, ours = in_ale(match.rom, actions), in_mame(match, actions, mame, tmp_path)
    frames = np.arange(1, min(len(ale), len(ours)) - 1)
    assert len(frames) > 1000
    agree = np.any([ale[frames] == ours[frames + lag] for lag in match.lags], axis=0)
    share = 1 - agree.mean(axis=0)  # (128,) of the frames in which a byte differs
    assert set(np.flatnonzero(share)) <= match.scratch | match.passing
    assert share[list(match.passing)].max(initial=0) < RARE
    # And it was no still life that was compared.
    moved = np.flatnonzero((ale != ale[0]).any(axis=0))
    assert len(set(moved) - match.scratch) > 30
