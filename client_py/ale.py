"""An Atari 2600 game in the Arcade Learning Environment, inside this process."""

from __future__ import annotations

import difflib
import os
import random
import struct
import sys
from typing import Any

import ale_py
import numpy as np
from ale_py import roms
from numpy.typing import NDArray

from client_py import picture
from client_py.games import CARTRIDGES, Ram
from client_py.player import GameError, Step
from server.net.wire import Choice, Preview
from server.spaces import Actions, Discrete, Observation, Spaces

OBSERVATIONS = ("features", "ram", "image")
IMAGE_SIDE = 84
MAX_EPISODE_FRAMES = 108_000  # emulator frames: half an hour of play, as in the literature
_FRAMES_PER_S = 60  # of the console
_MAX_NOOPS = 30
_MAX_SERVE_FRAMES = 60  # a game that does not serve by then is not waiting for it

Image = NDArray[np.uint8]
Weights = NDArray[np.float32]


class AleGame:
    """A game from the ale-py wheel, seen as features, RAM or image."""

    def __init__(
        self,
        name: str,
        *,
        observation: str = "features",
        frame_skip: int = 4,
        seed: int = 0,
        render: bool = False,
        repeat_action_probability: float = 0.0,
    ) -> None:
        path = rom_path(name)
        self._cartridge = CARTRIDGES.get(name)
        if observation == "features" and self._cartridge is None:
            raise GameError(
                f"no features are known of {name}, only of {', '.join(sorted(CARTRIDGES))}; "
                "use ram or image, or add the game to client_py/games.py"
            )
        self._view = observation
        self._skip = frame_skip
        self._max_decisions = MAX_EPISODE_FRAMES // frame_skip
        self.decision_s = frame_skip / _FRAMES_PER_S
        self._ale = _interface(path, seed, render, repeat_action_probability)
        self._ram_buffer = np.zeros(self._ale.getRAMSize(), np.uint8)
        if observation == "image":
            height, width = self._ale.getScreenDims()
            self._screens = np.zeros((2, height, width), np.uint8)  # the last two of a decision
            self._shrink_rows = area_weights(height, IMAGE_SIDE)
            self._shrink_columns = area_weights(width, IMAGE_SIDE).T.copy()
        self._codes = self._action_codes()
        self._serve_code = self._find_serve_code()
        self.spaces = Spaces(
            self._observation_space(),
            Actions((Discrete("stick", len(self._codes)),), ()),
            ("score",),
        )
        self._pack = struct.Struct(f"<{self.spaces.observation.values}f").pack
        self._ram: Ram = bytes(self._ram_buffer)
        self._before: Ram = self._ram
        self._decisions = 0
        self._info: dict[str, Any] = {}

    def reset(self, seed: int) -> bytes:
        """Start a game; the seed says how many frames pass before the first decision."""
        self._ale.reset_game()
        # For a deterministic policy at skip 4 only the number modulo 4 matters in Pong and
        # Breakout: four different games, however many seeds. Sticky actions give more.
        for _ in range(random.Random(seed).randint(0, _MAX_NOOPS)):
            self._ale.act(0)
        self._decisions = 0
        self._look()
        if self._serve_code:
            self._serve()
        self._before = self._ram  # nothing has a velocity yet
        self._info = {"score": 0, "lives": self._ale.lives()}
        if self._view == "image":
            self._ale.getScreenGrayscale(self._screens[0])
            self._screens[1] = self._screens[0]
        return self._observe()

    def step(self, choice: Choice) -> Step:
        """Hold the stick for one decision."""
        score = self._hold(self._codes[choice.discrete[0]])
        self._look()
        if self._serve_code:
            score += self._serve()
        lives = self._ale.lives()
        if score or lives != self._info["lives"]:
            self._info = {"score": self._info["score"] + score, "lives": lives}
        self._decisions += 1
        terminal = self._ale.game_over()
        truncated = self._decisions >= self._max_decisions
        return Step(self._observe(), [float(score)], terminal, truncated, self._info)

    def picture(self) -> Preview | None:
        """Show the screen, in the shape it has on a television."""
        return picture.shrink(self._ale.getScreenRGB(), square=False)

    def close(self) -> None:
        """Do nothing: the emulator goes with its object."""

    def _hold(self, code: int) -> int:
        """Hold one action for the frames of a decision; give the score it made."""
        act = self._ale.act
        score = 0
        if self._view != "image":
            for _ in range(self._skip):
                score += act(code)
            return score
        for frame in range(self._skip):
            score += act(code)
            # Many games draw things in every other frame: the image needs the last two.
            if frame >= self._skip - 2:
                self._ale.getScreenGrayscale(self._screens[(self._decisions + frame) % 2])
        return score

    def _serve(self) -> int:
        """Bring a ball into play if none is; give the score it made."""
        assert self._cartridge is not None
        score = 0
        for _ in range(_MAX_SERVE_FRAMES):
            if self._cartridge.in_play(self._ram) or self._ale.game_over():
                break
            score += self._ale.act(self._serve_code)
            self._ale.getRAM(self._ram_buffer)
            self._ram = self._ram_buffer.tobytes()
            if self._view == "image":  # the ball that is in play now is part of what is seen
                self._ale.getScreenGrayscale(self._screens[0])
                self._screens[1] = self._screens[0]
        return score

    def _look(self) -> None:
        """Read the RAM, and keep that of the decision before."""
        self._ale.getRAM(self._ram_buffer)
        self._before, self._ram = self._ram, self._ram_buffer.tobytes()

    def _observe(self) -> bytes:
        if self._view == "ram":
            return self._ram
        if self._view == "image":
            screen = np.maximum(*self._screens).astype(np.float32)
            small = self._shrink_rows @ screen @ self._shrink_columns
            pixels: bytes = (small + 0.5).astype(np.uint8).tobytes()
            return pixels
        assert self._cartridge is not None
        return self._pack(*self._cartridge.features(self._ram, self._before))

    def _observation_space(self) -> Observation:
        if self._view == "image":
            return Observation("uint8", (IMAGE_SIDE, IMAGE_SIDE, 1))
        if self._view == "ram" or self._cartridge is None:
            return Observation("uint8", (len(self._ram_buffer),))
        return Observation("float32", (len(self._cartridge.names),))

    def _action_codes(self) -> list[int]:
        if self._cartridge is None:
            return [int(action.value) for action in self._ale.getMinimalActionSet()]
        return [int(getattr(ale_py.Action, name).value) for name in self._cartridge.actions]

    def _find_serve_code(self) -> int:
        if self._cartridge is None or not self._cartridge.serve:
            return 0
        return int(getattr(ale_py.Action, self._cartridge.serve).value)


def default_observation(name: str) -> str:
    """Name the best view of a game: features where they are known, else RAM."""
    return "features" if name in CARTRIDGES else "ram"


def rom_path(name: str) -> str:
    """Find a game's ROM in the ale-py wheel; suggest near names for an unknown one."""
    known = roms.get_all_rom_ids()
    if name in known:
        return str(roms.get_rom_path(name))
    plain = name.lower().replace("-", "_").replace(" ", "_")
    near = difflib.get_close_matches(plain, known, cutoff=0.5)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    raise GameError(f"ale-py has no game named {name!r}{hint}")


def area_weights(size: int, small: int) -> Weights:
    """Give the matrix that shrinks an axis by averaging what each small pixel covers."""
    edges = np.linspace(0, size, small + 1)
    pixel = np.arange(size)
    overlap = np.minimum(edges[1:, None], pixel + 1) - np.maximum(edges[:-1, None], pixel)
    return (overlap.clip(0) * small / size).astype(np.float32)  # (small, size)


def _interface(path: str, seed: int, render: bool, stickiness: float) -> ale_py.ALEInterface:
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # no banner
    ale = ale_py.ALEInterface()
    ale.setInt("random_seed", seed & 0x7FFFFFFF)
    ale.setFloat("repeat_action_probability", stickiness)
    if render:
        if not ale_py.SDL_SUPPORT:
            raise GameError("this build of ale-py cannot open a window: leave --render out")
        if sys.platform == "linux" and not {"DISPLAY", "WAYLAND_DISPLAY"} & set(os.environ):
            raise GameError("there is no display to open a window on: leave --render out")
        ale.setBool("display_screen", True)
    ale.loadROM(path)
    return ale
