"""What the RAM of Atari games means: features as small pure functions, and the useful actions.

RAM is the 128 bytes from address 0x80 on, as bytes; ``before`` is the RAM one decision earlier.
Features are scaled to about [-1, 1]. The addresses were checked against the screen of ale-py
0.12.1 (tests/client_py/test_games.py does it again).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Ram = bytes
Features = Callable[[Ram, Ram], list[float]]

_JUMP = 48  # no ball moves this far in one decision: it is a new ball


@dataclass(frozen=True, slots=True)
class Cartridge:
    """What is known of one game beyond its ROM."""

    names: tuple[str, ...]  # of the features
    features: Features
    actions: tuple[str, ...]  # the ALE actions that matter
    serve: str = ""  # the ALE action that brings a ball into play, if the game waits for one
    in_play: Callable[[Ram], bool] = lambda ram: True


def _clip(value: float) -> float:
    return max(-1.0, min(1.0, value))


# --- Pong -------------------------------------------------------------------------------------

_PONG_NAMES = (
    "own_y",
    "enemy_y",
    "ball_x",
    "ball_y",
    "ball_dx",
    "ball_dy",
    "own_dy",
    "enemy_dy",
    "ball_below_own",
    "ball_absent",
)


def _pong(ram: Ram, before: Ram) -> list[float]:
    ball_x, enemy_y, own_y, ball_y = ram[49], ram[50], ram[51], ram[54]
    own_dy, enemy_dy = own_y - before[51], enemy_y - before[50]
    paddles = (own_y - 121) / 84, _clip((enemy_y - 121) / 84)
    speeds = _clip(own_dy / 24), _clip(enemy_dy / 24)
    if ball_y == 0:
        return [*paddles, 0.0, 0.0, 0.0, 0.0, *speeds, 0.0, 1.0]
    dx, dy = ball_x - before[49], ball_y - before[54]
    if before[54] == 0 or abs(dx) > _JUMP or abs(dy) > _JUMP:
        dx = dy = 0
    return [
        *paddles,
        (ball_x - 136) / 72,  # enemy's line at 68, own line at 188
        (ball_y - 125) / 84,
        _clip(dx / 16),
        _clip(dy / 16),
        *speeds,
        _clip((ball_y - own_y - 7) / 40),  # 0: the ball meets the middle of the paddle
        0.0,
    ]


# --- Breakout ---------------------------------------------------------------------------------

_COLUMNS, _ROWS = 18, 6
_BREAKOUT_NAMES = (
    "ball_x",
    "ball_y",
    "ball_dx",
    "ball_dy",
    "paddle_x",
    "paddle_dx",
    "paddle_half_width",
    "ball_right_of_paddle",
    "ball_absent",
    "lives",
    *(f"bricks_{column}" for column in range(_COLUMNS)),
)


def _column_mask(column: int) -> int:
    """Give the bits of one column of bricks in RAM[0:36], read as one little-endian number.

    A brick is two bits of a TIA playfield register. Six bytes, one per row, hold a register;
    the TIA draws PF0 and PF2 from the low bit on, PF1 from the high bit on.
    """
    if column == 0:
        register, bit = 5, 7
    elif column <= 4:
        register, bit = 4, 7 - 2 * (column - 1)
    elif column <= 8:
        register, bit = 3, 1 + 2 * (column - 5)
    elif column <= 10:
        register, bit = 2, 5 + 2 * (column - 9)
    elif column <= 14:
        register, bit = 1, 7 - 2 * (column - 11)
    else:
        register, bit = 0, 1 + 2 * (column - 15)
    return sum(1 << (8 * (_ROWS * register + row) + bit) for row in range(_ROWS))


_COLUMN_MASKS = tuple(_column_mask(column) for column in range(_COLUMNS))


def _breakout(ram: Ram, before: Ram) -> list[float]:
    ball_x, ball_y, half_width = ram[99], ram[101], ram[108]
    paddle = ram[72] + half_width + 1  # its middle, on the ball's scale
    wall = int.from_bytes(ram[:36], "little")
    bricks = [(wall & mask).bit_count() / _ROWS for mask in _COLUMN_MASKS]
    ball = [0.0, 0.0, 0.0, 0.0]
    right = 0.0
    if ball_y:
        dx, dy = ball_x - before[99], ball_y - before[101]
        if before[101] == 0 or abs(dx) > _JUMP or abs(dy) > _JUMP:
            dx = dy = 0
        ball = [(ball_x - 128) / 72, (ball_y - 115) / 95, _clip(dx / 16), _clip(dy / 16)]
        right = _clip((ball_x - paddle) / 40)
    return [
        *ball,
        _clip((paddle - 128) / 72),
        _clip((ram[72] - before[72]) / 24),
        half_width / 8,
        right,
        0.0 if ball_y else 1.0,
        ram[57] / 5,
        *bricks,
    ]


CARTRIDGES = {
    # RIGHT turns the paddle knob so that the paddle goes up, LEFT so that it goes down.
    "pong": Cartridge(_PONG_NAMES, _pong, ("NOOP", "RIGHT", "LEFT")),
    "breakout": Cartridge(
        _BREAKOUT_NAMES,
        _breakout,
        ("NOOP", "RIGHT", "LEFT"),
        serve="FIRE",
        in_play=lambda ram: ram[101] != 0,
    ),
}
