"""A game whose every byte is known, played by plans as MAME plays them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from copy import deepcopy
from pathlib import Path

from tools.exploring.inventory import Input
from tools.exploring.plan import Plan

SIZE = 24
BASE = 0x80


def button(name: str, player: int = 1) -> Input:
    token = name.upper().replace(" ", "")
    side = f"JOYSTICK_{token}" if token in ("LEFT", "RIGHT", "UP", "DOWN") else token
    return Input(
        f":JOY{player}",
        f"P{player} {name}",
        analog=False,
        mask=1,
        low=0,
        high=1,
        default=0,
        group="controller",
        player=player,
        token=f"P{player}_{side}",
    )


def dial(name: str, player: int = 1) -> Input:
    return Input(
        f":POT{player}",
        name,
        analog=True,
        mask=255,
        low=0,
        high=255,
        default=128,
        group="controller",
        player=player,
        token=f"P{player}_PADDLE",
    )


LEFT, RIGHT, FIRE, PADDLE = button("Left"), button("Right"), button("Button 1"), dial("Paddle")
IDLER = button("Button 1", player=2)
INPUTS = [LEFT, RIGHT, FIRE, PADDLE, IDLER]

# What each byte is, by name; a game may put them anywhere.
NAMES = (
    "frames",
    "seconds",
    "x",
    "x_copy",
    "paddle",
    "ball",
    "score_high",
    "score_low",
    "enemy",
    "lives",
    "noise",
    "pause",
    "flag",
)


def bcd(number: int) -> int:
    """Write two decimal digits into one byte."""
    return number // 10 % 10 << 4 | number % 10


class Game:
    """Catch what comes: points for fire at the right time, a life for the wrong one."""

    def __init__(self, places: Sequence[int] = range(len(NAMES)), seed: int = 1) -> None:
        self._places = dict(zip(NAMES, places, strict=True))
        self._ram = bytearray([0xEE] * SIZE)
        self._frame = 0
        self._dice = random.Random(seed)  # the enemy's
        self._score = self._enemy = 0
        self._ball, self._way, self._noise = 100, 1, 0xACE1
        self._fired, self._held = False, {found.title: 0 for found in INPUTS}
        self._held[PADDLE.title] = PADDLE.default
        values = {"frames": 200, "seconds": 0x59, "x": 80, "x_copy": 80, "ball": 100, "lives": 5}
        for name in NAMES:
            self[name] = values.get(name, 0)

    def __getitem__(self, name: str) -> int:
        return self._ram[self._places[name]]

    def __setitem__(self, name: str, value: int) -> None:
        self._ram[self._places[name]] = value % 256

    @property
    def ram(self) -> bytes:
        return bytes(self._ram)

    def set(self, port: str, name: str, value: int) -> None:
        self._held[f"{port}/{name}"] = value

    def release(self) -> None:
        self._held = dict.fromkeys(self._held, 0)
        self._held[PADDLE.title] = PADDLE.default

    def step(self) -> None:
        self._frame += 1
        self["frames"] += 1
        if self._frame % 60 == 0:
            seconds = self["seconds"] >> 4, self["seconds"] & 15
            self["seconds"] = bcd((10 * seconds[0] + seconds[1] - 1) % 60)
        self["x_copy"] = self["x"]
        self["x"] = max(20, min(140, self["x"] + self._is(RIGHT) - self._is(LEFT)))
        self["paddle"] = 230 - self._held[PADDLE.title] * 3 // 4
        self["flag"] = 0x40 * self._is(FIRE)
        self._move_ball()
        self._noise = (self._noise >> 1) ^ (0xB400 if self._noise & 1 else 0)
        self["noise"] = self._noise
        self["pause"] = max(0, self["pause"] - 1)
        self._play()

    def _is(self, found: Input) -> int:
        return self._held[found.title]

    def _move_ball(self) -> None:
        self._ball += self._way
        if self._ball in (10, 190) or self._dice.random() < 0.01:
            self._way = -self._way
        self["ball"] = self._ball

    def _play(self) -> None:
        pressed = bool(self._is(FIRE))
        if pressed and not self._fired and self["pause"] == 0:
            self["pause"] = 25
            if self._ball % 3:
                self._score += 10 + 5 * (self._ball % 4)
            elif self._ball % 9 == 0 and self["lives"]:
                self["lives"] -= 1
        self._fired = pressed
        self._enemy += self._dice.random() < 0.005
        high, low = divmod(self._score % 10000, 100)
        self["score_high"], self["score_low"] = bcd(high), bcd(low)
        self["enemy"] = bcd(self._enemy)


def simulate(plan: Plan, directory: Path, game: Callable[[], Game] = Game) -> None:
    """Do what client_lua/explore.lua does with a plan, on a toy game."""
    playing, states = game(), dict[str, Game]()
    for scene in plan.scenes:
        if scene.start:
            playing = deepcopy(states[scene.start])
        rows = bytearray()
        steps = list(scene.steps)
        for frame in range(scene.frames):
            for first, last in plan.ram:
                rows += playing.ram[first - BASE : last - BASE + 1]
            while steps and steps[0].frame <= frame:
                step = steps.pop(0)
                playing.set(step.port, step.name, step.value)
            playing.step()
        playing.release()
        if scene.save:
            states[scene.save] = deepcopy(playing)
        if scene.record:
            (directory / scene.record).write_bytes(rows)
