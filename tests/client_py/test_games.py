"""The RAM of Pong and Breakout against the screen, and features good enough to play by."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import ale_py
import numpy as np
import pytest
from ale_py import roms

from client_py.ale import AleGame
from client_py.games import CARTRIDGES
from server.net.wire import Choice

pytestmark = pytest.mark.timeout(30)

NOOP, RIGHT, LEFT = 0, 1, 2  # choices of both games


def screens(name: str, frames: int, press: Callable[[int], int]) -> Iterator[tuple[bytes, object]]:
    """Play the bare emulator; yield RAM and the screen's colours of every frame."""
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    ale = ale_py.ALEInterface()
    ale.setFloat("repeat_action_probability", 0.0)
    ale.loadROM(roms.get_rom_path(name))
    for number in range(frames):
        ale.act(press(number))
        yield ale.getRAM().tobytes(), ale.getScreenRGB()


def where(screen, colour, top, bottom):
    """Find the middle of everything of one colour between two lines, and how much it is."""
    rows, columns = np.nonzero((screen[top:bottom, 8:152] == colour).all(axis=2))
    if not len(rows):
        return None
    return columns.mean() + 8, rows.mean() + top, len(rows)


def test_pong_addresses() -> None:
    seen = 0
    for ram, screen in screens("pong", 400, lambda n: 3 if n // 40 % 2 else 4):
        ball = where(screen, [236, 236, 236], 40, 190)
        own = where(screen, [92, 186, 92], 40, 190)
        if ball and ball[2] == 8 and ram[54]:
            seen += 1
            assert ball[0] == pytest.approx(ram[49] - 48.5, abs=1)
            assert ball[1] == pytest.approx(ram[54] - 13, abs=2)
        if own and own[2] == 64:
            assert own[1] == pytest.approx(ram[51] - 6, abs=1.5)
    assert seen > 100


def test_breakout_addresses() -> None:
    red, seen = [200, 72, 72], 0
    for ram, screen in screens("breakout", 400, lambda n: (1, 3, 3, 4)[n % 4]):
        ball = where(screen, red, 95, 185)
        paddle = where(screen, red, 190, 193)
        if ball and ball[2] == 8 and 90 < ram[101] < 170:
            seen += 1
            assert ball[0] == pytest.approx(ram[99] - 48.5, abs=1)
            assert ball[1] == pytest.approx(ram[101] + 11, abs=2)
        if paddle and paddle[2] == 48 and not 170 < ram[101] < 190:
            assert paddle[0] == pytest.approx(ram[72] + ram[108] + 1 - 48.5, abs=1)
            assert ram[108] == 8
    assert seen > 50


def test_breakout_bricks_are_counted_by_column() -> None:
    game = AleGame("breakout")
    names = CARTRIDGES["breakout"].names
    first = names.index("bricks_0")
    values = np.frombuffer(game.reset(0), "<f4")
    assert (values[first:] == 1.0).all() and len(values[first:]) == 18
    left = 108
    for _ in range(400):
        step = game.step(Choice([follow_ball(values)], []))
        values = np.frombuffer(step.observation, "<f4")
        screen = game._ale.getScreenRGB()[60:93:6, 12:152:8]  # a pixel of every brick
        on_screen = screen.any(axis=2).sum(axis=0) / 6
        # The ball may cover a pixel for a moment, never more.
        assert np.abs(values[first:] - on_screen).sum() <= 1 / 6 + 1e-6
        left = round(float(values[first:].sum() * 6))
    assert left < 108


@pytest.mark.parametrize(
    ("choice", "sign"), [(RIGHT, -1), (LEFT, 1)], ids=["right is up", "left is down"]
)
def test_pong_actions_move_the_paddle(choice: int, sign: int) -> None:
    game = AleGame("pong")
    before = np.frombuffer(game.reset(0), "<f4")[0]
    for _ in range(3):
        step = game.step(Choice([choice], []))
    after = np.frombuffer(step.observation, "<f4")[0]
    assert (after - before) * sign > 0.2


@pytest.mark.parametrize(("name", "y"), [("pong", 54), ("breakout", 101)])
def test_a_new_ball_has_no_velocity(name: str, y: int) -> None:
    cartridge = CARTRIDGES[name]
    speed = [cartridge.names.index("ball_dx"), cartridge.names.index("ball_dy")]
    absent, low, high = bytearray(128), bytearray(128), bytearray(128)
    low[y], high[y] = 60, 200
    near = bytearray(low)
    near[y] = 64
    features = cartridge.features
    for ram, before in [(low, absent), (low, high), (absent, low)]:
        values = features(bytes(ram), bytes(before))
        assert [values[i] for i in speed] == [0.0, 0.0]
    assert features(bytes(near), bytes(low))[speed[1]] == pytest.approx(4 / 16)
    assert features(bytes(absent), bytes(low))[cartridge.names.index("ball_absent")] == 1.0


@pytest.mark.parametrize("name", sorted(CARTRIDGES))
def test_features_are_finite_and_bounded_for_any_ram(name: str) -> None:
    rng = np.random.default_rng(0)
    cartridge = CARTRIDGES[name]
    for _ in range(300):
        ram, before = rng.integers(0, 256, (2, 128), np.uint8)
        values = cartridge.features(ram.tobytes(), before.tobytes())
        assert len(values) == len(cartridge.names)
        # RAM that no game ever shows may leave [-1, 1], but not by much.
        assert np.isfinite(values).all() and np.abs(values).max() < 60


# --- played by hand-written rules that see nothing but the features ---------------------------


def bounce(position: float, low: float, high: float) -> float:
    """Fold a straight path at two walls."""
    span = high - low
    position = (position - low) % (2 * span)
    return low + min(position, 2 * span - position)


def follow_ball(values) -> int:
    """Go where the ball will come down in Breakout."""
    x, y, dx, dy, paddle, paddle_dx = (float(value) for value in values[:6])
    x, y, dx, dy, paddle = x * 72 + 128, y * 95 + 115, dx * 16, dy * 16, paddle * 72 + 128
    goal = bounce(x + dx * max(0.0, 178 - y) / dy, 57, 199) if dy > 0 else x
    error = goal - (paddle + paddle_dx * 12)
    return RIGHT if error > 4 else LEFT if error < -4 else NOOP


class PongPilot:
    """Plans three decisions ahead and returns the ball away from the enemy."""

    _PUSH = (0.0, -5.75, 5.75)  # a frame of each choice turns the knob by so much

    def __init__(self) -> None:
        self._knob: float | None = None  # where the paddle will come to rest

    def choose(self, values) -> int:
        own, enemy, x, y, dx, dy, own_dy = (float(value) for value in values[:7])
        own, x, y, dx, dy = own * 84 + 121, x * 72 + 136, y * 84 + 125, dx * 16, dy * 16
        if self._knob is None or own_dy == 0:
            self._knob = own
        decisions, goal = 4, 121.0
        if dx > 0:
            until = (188 - x) / dx
            decisions = max(1, int(until))
            goal = bounce(y + dy * until, 44, 206) - (12 if enemy < 0 else 2)
        plans = itertools.product((NOOP, RIGHT, LEFT), repeat=min(decisions, 3))
        best = min(plans, key=lambda plan: (self._miss(own, goal, plan, decisions), sum(plan)))
        _, self._knob = self._roll(own, self._knob, best[0])
        return best[0]

    def _miss(self, own: float, goal: float, plan: tuple[int, ...], decisions: int) -> float:
        knob = self._knob
        for choice in plan:
            own, knob = self._roll(own, knob, choice)
        return abs((knob if decisions > len(plan) else own) - goal)

    def _roll(self, own: float, knob: float, choice: int) -> tuple[float, float]:
        """Move paddle and knob one decision on: the paddle closes half the gap at a time."""
        for _ in range(2):
            knob += self._PUSH[choice]
            own += (knob - own) / 2
            knob += self._PUSH[choice]
        return own, min(max(knob, 38.0), 203.0)


def test_a_pilot_with_lookahead_wins_the_first_points_of_pong() -> None:
    game, pilot = AleGame("pong"), PongPilot()
    values = np.frombuffer(game.reset(2), "<f4")
    won = lost = 0
    for _ in range(1200):
        step = game.step(Choice([pilot.choose(values)], []))
        values = np.frombuffer(step.observation, "<f4")
        assert np.isfinite(values).all() and np.abs(values).max() <= 1.5
        won += step.rewards[0] > 0
        lost += step.rewards[0] < 0
    assert won >= lost + 3, (won, lost)


def test_following_the_ball_scores_in_breakout() -> None:
    game = AleGame("breakout")
    values = np.frombuffer(game.reset(0), "<f4")
    score = 0.0
    for _ in range(1200):
        step = game.step(Choice([follow_ball(values)], []))
        values = np.frombuffer(step.observation, "<f4")
        assert np.isfinite(values).all() and np.abs(values).max() <= 1.5
        score += step.rewards[0]
        if step.terminal:
            break
    assert score > 30
    assert step.info["score"] == score
