"""The analysis of recorded RAM: on a toy game whose every byte is known, and on made-up traces."""

from __future__ import annotations

import random
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toygame import BASE, FIRE, IDLER, INPUTS, LEFT, NAMES, PADDLE, RIGHT, SIZE, Game, simulate

from tools.exploring import clock, number, plan, ram, recorder
from tools.exploring.effect import Way
from tools.exploring.inventory import Inventory, InventoryError, grouped, merged, read
from tools.exploring.ram import Byte, Kind, Study
from tools.exploring.trace import Bytes, Hold, Recording, Trace

pytestmark = pytest.mark.timeout(300)


def record(places: list[int], seed: int, **changes: Any) -> Recording:
    """Carry a whole plan out on a toy game."""
    wanted = {"moments": 4, "runs": 3, "frames": 1500, "seed": seed, **changes}
    made = plan.make(
        ram=((BASE, BASE + SIZE - 1),), controls=INPUTS, presses=[], ready=30, **wanted
    )
    with tempfile.TemporaryDirectory() as directory:
        simulate(made, Path(directory), lambda: Game(places, seed))
        return recorder._recording(made, INPUTS, Path(directory))


class Known:
    """A study of a toy game, and where it has its bytes."""

    def __init__(self, places: list[int], seed: int) -> None:
        self.places = dict(zip(NAMES, places, strict=True))
        self.recording = record(places, seed)
        self.study: Study = ram.study(self.recording)

    def __getitem__(self, name: str) -> Byte:
        return self.study.bytes[self.places[name]]

    def ways(self, name: str) -> dict[str, Way]:
        return {INPUTS[e.control].title: e.way for e in self[name].effects}


# --- the toy game -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def known() -> Known:
    return Known(list(range(len(NAMES))), seed=1)


def test_what_the_inputs_move_and_which_way(known: Known) -> None:
    assert known.ways("x") == {LEFT.title: Way.DOWN, RIGHT.title: Way.UP}
    assert known.ways("paddle") == {PADDLE.title: Way.REVERSED}
    assert known.ways("flag") == {FIRE.title: Way.SWITCH}
    assert known.ways("ball") == known.ways("noise") == known.ways("frames") == {}
    assert not any(INPUTS[e.control] == IDLER for e in known.study.effects)
    quickest = min(e.delay for e in known["x"].effects)
    assert quickest == 1  # set after row 0, seen in row 1


def test_the_kinds_of_bytes(known: Known) -> None:
    kinds = {name: known[name].kind for name in NAMES}
    assert kinds == {
        "frames": Kind.CLOCK,
        "seconds": Kind.CLOCK,
        "x": Kind.PLACE,
        "x_copy": Kind.PLACE,
        "paddle": Kind.PLACE,
        "ball": Kind.PLACE,
        "score_high": Kind.SCORE,
        "score_low": Kind.SCORE,
        "enemy": Kind.SCORE,
        "lives": Kind.LIVES,
        "noise": Kind.RANDOM,
        "pause": Kind.COUNTDOWN,
        "flag": Kind.INPUT,
    }
    others = [byte for byte in known.study.bytes if byte.address - BASE >= len(NAMES)]
    assert {byte.kind for byte in others} == {Kind.CONSTANT}
    assert known["frames"].detail == "every frame, +1"
    assert known["seconds"].detail == "every 60 frames, -1 (BCD)"


def test_numbers_of_several_bytes_are_put_together(known: Known) -> None:
    own = [n for n in known.study.scores if not n.idle_changes]
    assert [n.columns for n in own] == [(known.places["score_high"], known.places["score_low"])]
    assert own[0].bcd and own[0].low == 0 and own[0].high > 100
    (enemy,) = [n for n in known.study.scores if n.idle_changes]
    assert enemy.columns == (known.places["enemy"],)
    (lives,) = known.study.lives
    assert lives.columns == (known.places["lives"],) and lives.high == 5


def test_copies_and_what_nothing_changes(known: Known) -> None:
    assert known["x_copy"].copy_of == known["x"].address
    assert known["x"].copy_of is None
    assert known["ball"].free and known["frames"].free and known["noise"].free
    assert not known["x"].free and not known["score_low"].free


def test_a_recording_repeats_itself_and_is_the_same_again(known: Known) -> None:
    assert known.recording.repeats()
    again = record(list(range(len(NAMES))), seed=1)
    assert (again.plays[0] == known.recording.plays[0]).all()
    other = record(list(range(len(NAMES))), seed=2)
    assert (other.plays[0] != known.recording.plays[0]).any()


@settings(max_examples=8, deadline=None)
@given(st.permutations(range(SIZE)), st.integers(1, 1000))
def test_the_facts_are_found_wherever_they_lie(places: list[int], seed: int) -> None:
    known = Known(places[: len(NAMES)], seed)
    assert known["x"].kind is known["paddle"].kind is known["ball"].kind is Kind.PLACE
    assert known["frames"].kind is known["seconds"].kind is Kind.CLOCK
    assert known["noise"].kind is Kind.RANDOM
    assert known.ways("x") == {LEFT.title: Way.DOWN, RIGHT.title: Way.UP}
    assert known.ways("paddle") == {PADDLE.title: Way.REVERSED}
    unused = set(range(SIZE)) - set(known.places.values())
    assert {known.study.bytes[place].kind for place in unused} == {Kind.CONSTANT}
    counted = {c for n in (*known.study.scores, *known.study.lives) for c in n.columns}
    moving = ("x", "paddle", "ball", "noise", "frames", "seconds", "pause", "flag")
    assert not counted & {known.places[name] for name in moving}


# --- clocks -------------------------------------------------------------------------------------

FRAMES = 2000


def ticking(interval: int, step: int, first: int, phase: int) -> Bytes:
    ticks = (np.arange(FRAMES) + phase) // interval
    return ((first + step * ticks) % 256).astype(np.uint8)


@settings(deadline=None)
@given(
    st.integers(1, 300),
    st.integers(1, 16),
    st.booleans(),
    st.integers(0, 255),
    st.integers(0, 299),
)
def test_clocks_of_any_speed_are_recognised(
    interval: int, step: int, back: bool, first: int, phase: int
) -> None:
    way = -step if back else step
    found = clock.find([ticking(interval, way, first, phase)] * 2)
    assert found == clock.Clock(interval, way, bcd=False)


@settings(deadline=None)
@given(st.lists(st.integers(1, 60), min_size=20, max_size=60))
def test_what_changes_at_odd_times_is_no_clock(gaps: list[int]) -> None:
    if len(set(gaps)) < 5 or max(map(gaps.count, gaps)) > len(gaps) / 2:
        return
    changes = np.cumsum(gaps)
    column = np.searchsorted(changes, np.arange(changes[-1]), side="right").astype(np.uint8)
    assert clock.find([column]) is None


def test_a_clock_is_told_by_its_words() -> None:
    assert clock.Clock(1, 1, bcd=False).describe() == "every frame, +1"
    assert clock.Clock(60, -1, bcd=True).describe() == "every 60 frames, -1 (BCD)"
    flicker = np.arange(FRAMES, dtype=np.uint8) % 2
    found = clock.find([flicker, flicker])
    assert found is not None and found.describe() == "every frame, to and fro"


def test_something_fast_that_stops_is_no_clock() -> None:
    column = np.minimum(np.arange(FRAMES), 150).astype(np.uint8)
    assert clock.find([column]) is None


@settings(deadline=None)
@given(st.lists(st.integers(5, 60), min_size=3, max_size=20), st.integers(0, 40))
def test_countdowns_are_set_and_run_out(starts: list[int], pause: int) -> None:
    values = [v for start in starts for v in (*range(start, -1, -1), *([0] * pause))]
    column = np.array([0, *values], np.uint8)
    assert clock.is_countdown([column])
    assert not clock.is_countdown([255 - column])


# --- scores and lives ---------------------------------------------------------------------------


def steps(gains: list[int], gaps: list[int]) -> np.ndarray[Any, Any]:
    """Give a number that rises by each gain after each gap."""
    value = np.zeros(sum(gaps) + 60, np.int64)
    at = 0
    for gain, gap in zip(gains, gaps, strict=False):
        at += gap
        value[at:] += gain
    return value


def as_bytes(value: np.ndarray[Any, Any], size: int, *, bcd: bool) -> list[Bytes]:
    """Give the bytes of a number, the most significant first."""
    base = 100 if bcd else 256
    digits = [value // base**place % base for place in reversed(range(size))]
    return [(d // 10 * 16 + d % 10 if bcd else d).astype(np.uint8) for d in digits]


def trace(columns: list[Bytes]) -> Trace:
    return np.stack(columns, axis=1)


GAPS = st.lists(st.integers(30, 90), min_size=24, max_size=24).filter(
    lambda gaps: len(set(gaps)) > 8
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(5, 90), min_size=24, max_size=24), GAPS, st.booleans(), st.booleans())
def test_a_score_of_two_bytes_is_read_right(
    gains: list[int], gaps: list[int], bcd: bool, low_first: bool
) -> None:
    value = steps(gains, gaps)
    high, low = as_bytes(value, 2, bcd=bcd)
    still = np.full(len(value), 7, np.uint8)
    play = trace([still, low, high, still] if low_first else [still, high, low, still])
    idle = np.repeat(play[:1], len(play), axis=0)
    if value[-1] < (100 if bcd else 256):
        return
    (found,) = number.scores(idle, [play], [1, 2])
    assert found.columns == ((2, 1) if low_first else (1, 2))
    assert (found.bcd, found.high, found.sure) == (bcd, value[-1], True)
    assert (found.changes, found.idle_changes) == (24, 0)


@settings(deadline=None)
@given(GAPS)
def test_a_score_and_its_digits_on_the_screen_are_one(gaps: list[int]) -> None:
    value = steps([1] * 24, gaps)
    digit = (0x20 + 8 * value).astype(np.uint8)
    later = np.concatenate([digit[:1], digit[:-1]])
    play = trace([digit, value.astype(np.uint8), later])
    idle = np.repeat(play[:1], len(play), axis=0)
    (found,) = number.scores(idle, [play], [0, 1, 2])
    assert found.columns == (1,) and found.twins == (0, 2)


def test_a_score_may_begin_again_with_a_new_game() -> None:
    value = steps([1] * 24, list(range(30, 54)))
    play = np.concatenate([value, value]).astype(np.uint8)[:, None]
    (found,) = number.scores(play[:1].repeat(len(play), axis=0), [play], [0])
    assert found.high == 24
    early = np.concatenate([value[:80], value]).astype(np.uint8)[:, None]  # after two points
    assert number.scores(early[:1].repeat(len(early), axis=0), [early], [0]) == []
    falling = np.concatenate([value, value[::-1]]).astype(np.uint8)[:, None]
    assert number.scores(falling[:1].repeat(len(falling), axis=0), [falling], [0]) == []


def test_a_single_point_counts_only_beside_a_sure_score() -> None:
    sure = steps([1] * 12, list(range(40, 52))).astype(np.uint8)
    once = np.zeros(len(sure), np.uint8)
    once[100:] = 1
    still = np.zeros(len(sure), np.uint8)
    idle = np.zeros((len(sure), 3), np.uint8)
    beside = {n.columns: n.sure for n in number.scores(idle, [trace([sure, once, still])], [0, 1])}
    apart = {n.columns: n.sure for n in number.scores(idle, [trace([sure, still, once])], [0, 2])}
    assert beside == {(0,): True, (1,): True}
    assert apart == {(0,): True, (2,): False}


def test_what_a_frame_counter_carries_into_is_no_score() -> None:
    carried = (np.arange(2400) // 256).astype(np.uint8)
    carried[:600] = 0  # as if it had begun with the end of the game
    assert number.scores(np.zeros((2400, 1), np.uint8), [carried[:, None]], [0]) == []


@settings(deadline=None)
@given(st.integers(2, 9), GAPS)
def test_lives_go_down_one_by_one(first: int, gaps: list[int]) -> None:
    value = np.maximum(0, first - steps([1] * 24, gaps)).astype(np.uint8)[:, None]
    (found,) = number.lives(value[:1].repeat(len(value), axis=0), [value], [0])
    assert (found.low, found.high, found.sure) == (0, first, True)
    rising = (first + steps([1] * 24, gaps)).astype(np.uint8)[:, None]
    assert number.lives(rising[:1].repeat(len(rising), axis=0), [rising], [0]) == []


def test_an_extra_life_is_allowed_and_a_switch_is_not() -> None:
    lives = np.repeat(np.array([3, 2, 3, 2, 1, 0], np.uint8), 80)[:, None]
    idle = lives[:1].repeat(len(lives), axis=0)
    (found,) = number.lives(idle, [lives], [0])
    assert found.high == 3
    switch = np.repeat(np.array([2, 1] * 6, np.uint8), 80)[:, None]
    assert number.lives(switch[:1].repeat(len(switch), axis=0), [switch], [0]) == []


def test_decimal_digits_are_told_from_plain_numbers() -> None:
    assert number.is_bcd([np.array([0, 9, 0x10, 0x99], np.uint8)])
    assert not number.is_bcd([np.array([0, 9, 10], np.uint8)])
    assert not number.is_bcd([np.array([0, 5, 9], np.uint8)])  # could be either
    assert number.decoded(np.array([0x42], np.uint8), bcd=True)[0] == 42


def test_what_changes_once_and_always_alike_stands_out() -> None:
    """The end of a game is such a thing; what happens in one run only may be anything."""

    def column(*ends: int, after: int = 1) -> list[Bytes]:
        every = np.arange(300)
        return [np.where(every < end, 0, after).astype(np.uint8) for end in ends]

    never = 300
    assert ram._kind(column(120, 77, never)) == (
        Kind.ONCE,
        "00 to 01 at frame 120, 77, never",
    )
    assert ram._kind(column(120, never, never))[0] is Kind.STATE
    assert ram._kind([*column(120), *column(77, after=2)])[0] is Kind.STATE
    assert ram._kind([np.roll(c, 50) for c in column(120, 77)])[0] is Kind.STATE


# --- anything at all ----------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.sampled_from([2, 16, 256]))
def test_any_recording_can_be_studied(seed: int, width: int, values: int) -> None:
    dice = np.random.default_rng(seed)

    def some(frames: int) -> Trace:
        return dice.integers(0, values, (frames, width)).astype(np.uint8)

    recording = Recording(
        addresses=tuple(range(width)),
        analog=(False, True),
        release=20,
        baselines=(some(30), some(30)),
        holds=tuple(
            Hold(control, value, moment, some(30))
            for moment in (0, 1)
            for control, levels in enumerate(([1], [0, 64, 128, 192, 255]))
            for value in levels
        ),
        idle=some(200),
        plays=(some(200), some(200)),
    )
    study = ram.study(recording)
    assert [byte.address for byte in study.bytes] == list(range(width))
    for byte, column in zip(study.bytes, range(width), strict=True):
        seen = np.concatenate([t[:, column] for t in (recording.idle, *recording.plays)])
        assert (byte.low, byte.high) == (seen.min(), seen.max())
        assert byte.copy_of != byte.address


def test_nothing_at_all_is_constant() -> None:
    still = np.zeros((100, 3), np.uint8)
    recording = Recording((0, 1, 2), (), 40, (still,), (), still, (still,))
    assert {byte.kind for byte in ram.study(recording).bytes} == {Kind.CONSTANT}


# --- plans and inventories ----------------------------------------------------------------------


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 3), st.integers(1, 3))
def test_a_plan_holds_each_input_alone_at_each_moment(seed: int, moments: int, runs: int) -> None:
    made = plan.make(
        ram=((0, 1),),
        controls=INPUTS,
        presses=[],
        ready=10,
        moments=moments,
        runs=runs,
        frames=100,
        seed=seed,
    )
    saved: set[str] = set()
    for scene in made.scenes:
        assert not scene.start or scene.start in saved
        assert [step.frame for step in scene.steps] == sorted(step.frame for step in scene.steps)
        saved.add(scene.save)
        if scene.record.startswith("hold"):
            assert len({(step.port, step.name) for step in scene.steps}) == 1
        elif scene.record.startswith("play"):
            _check_no_contradiction(scene)
    names = [scene.record for scene in made.scenes if scene.record]
    assert len(names) == len(set(names))
    assert len([name for name in names if name.startswith("hold")]) == moments * (4 + plan.LEVELS)
    assert made.frames == sum(scene.frames for scene in made.scenes)


def _check_no_contradiction(scene: plan.Scene) -> None:
    held = {LEFT.name: 0, RIGHT.name: 0}
    frames = sorted({step.frame for step in scene.steps})
    for frame in frames:
        held.update({step.name: step.value for step in scene.steps if step.frame == frame})
        assert not (held[LEFT.name] and held[RIGHT.name])


def test_directions_make_one_control_and_buttons_their_own() -> None:
    controls = {control.name: control.inputs for control in grouped(INPUTS)}
    assert controls == {
        "horizontal": (LEFT, RIGHT),
        "button_1_p1": (FIRE,),
        "paddle": (PADDLE,),
        "button_1_p2": (IDLER,),
    }


def test_levels_span_the_range_of_a_dial() -> None:
    assert plan.levels(PADDLE) == [0, 64, 128, 191, 255]
    assert plan.levels(FIRE) == [1]


@settings(deadline=None)
@given(st.text(max_size=20))
def test_any_text_survives_as_lua(text: str) -> None:
    lupa = pytest.importorskip("lupa")
    if "\0" in text or "\r" in text:
        return
    assert lupa.LuaRuntime().eval(plan.lua(text)) == text


def test_an_inventory_is_read_and_sorted() -> None:
    text = (
        "input\t:SWB\tReset Game\tdigital\t1\t\t\t1\tmisc\t1\tOTHER\n"
        "input\t:IN0\tCoin 1\tdigital\t1\t\t\t0\tmisc\t1\tCOIN1\n"
        "input\t:JOY\tP1 Start\tdigital\t8\t\t\t0\tcontroller\t1\tP1_START\n"
        "input\t:JOY\tP1 Button 1\tdigital\t32\t\t\t32\tcontroller\t1\tP1_BUTTON1\n"
        "input\t:POT\tPaddle\tanalog\t255\t10\t245\t128\tcontroller\t1\tP1_PADDLE\n"
        "ram\t128\t255\nram\t0\t15\nram\t16\t31\n"
    )
    found = read(text)
    assert [i.name for i in found.controls()] == ["P1 Button 1", "Paddle"]
    assert [i.name for i in found.starters()] == ["Coin 1", "P1 Start", "Reset Game"]
    assert found.ram == ((0, 31), (128, 255))
    paddle = found.find(":POT/Paddle")
    assert (paddle.analog, paddle.low, paddle.high) == (True, 10, 245)
    with pytest.raises(InventoryError, match=r"no input 'x'; it has .*\":SWB/Reset Game\""):
        found.find("x")
    assert Inventory((), ()).controls() == []


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 30))))
def test_merged_ranges_hold_the_same_addresses(pairs: list[tuple[int, int]]) -> None:
    ranges = [(first, first + size) for first, size in pairs]
    result = merged(ranges)
    wanted = {a for first, last in ranges for a in range(first, last + 1)}
    assert {a for first, last in result for a in range(first, last + 1)} == wanted
    assert all(one[1] + 1 < two[0] for one, two in pairwise(result))


def test_a_random_run_needs_no_luck() -> None:
    """Random play has moods: it goes far in one direction now and then."""
    steps_ = plan._random([LEFT, RIGHT], 6000, plan._STYLES[1], random.Random(3))
    held, place, reached = {LEFT.name: 0, RIGHT.name: 0}, 0, []
    times = {step.frame: [] for step in steps_}
    for step in steps_:
        times[step.frame].append(step)
    for frame in range(6000):
        for step in times.get(frame, []):
            held[step.name] = step.value
        place += held[RIGHT.name] - held[LEFT.name]
        reached.append(place)
    assert max(reached) - min(reached) > 150
