"""The dashboard: rendered as text at fixed sizes, and its thread on a made-up terminal."""

from __future__ import annotations

import io
import math
import os
import re
import termios
import threading
import time
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from server.console import dashboard as dashboard_module
from server.console import demo, panels, roster, theme
from server.console.dashboard import Dashboard, drawn, export_svg, render
from server.console.hotkeys import HOTKEYS, places, symbol
from server.console.look import Look, Prompt, View
from server.controls import Controls
from server.governor import Hold
from server.stats import (
    AgentView,
    ClientView,
    Contention,
    DialView,
    Event,
    Governed,
    Snapshot,
)

Make = Callable[..., Snapshot]
SIZES = [(80, 24), (120, 40), (200, 60)]
LEAVE = "\x1b[?25h\x1b[?1049l"  # cursor shown, then the normal screen


def as_lines(
    snapshot: Snapshot,
    width: int,
    height: int,
    look: Look = Look(),  # noqa: B008
) -> list[str]:
    """Render as plain text, and check that it fills the size and no more."""
    screen = render(snapshot, look, width=width, height=height)
    console = Console(file=io.StringIO(), width=width, height=height, color_system=None)
    with console.capture() as capture:
        console.print(screen, end="", crop=False, no_wrap=True)
    lines = capture.get().split("\n")
    assert len(lines) == height
    assert {cell_len(line) for line in lines} == {width}
    return lines


def as_text(
    snapshot: Snapshot,
    width: int,
    height: int,
    look: Look = Look(),  # noqa: B008
) -> str:
    """Render as plain text with single spaces."""
    return " ".join("\n".join(as_lines(snapshot, width, height, look)).split())


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_every_important_figure_is_visible(make_snapshot: Make, width: int, height: int) -> None:
    text = as_text(make_snapshot(), width, height)
    for part in (
        *("Coinop", "run-1", "127.0.0.1:7777", "up 00:01:25", "saved 12 s ago", "● training"),
        *("frames/s 1,003", "steps/s 81.2", "samples/s 20.3", "replay ratio 20.7"),
        *("frames 123,456", "steps 4,321", "loss 0.01234", "gradient norm 1.321"),
        *("Q mean 0.3141", "-1.25 … 2.12", "learning rate 0.00025", "skipped steps 7"),
        *("epsilon 0.42 override", "expert 0.11 natural", "greedy off"),
        *("batch 3.4 frames", "0.8", "2.1", "3.2 s", "412"),
        *("12%", "123,456 of 1,000,000", "last -15.0", "-18.3", "best -17.9", "episodes 42"),
        *("100k -18.3 +152", "1M -19.6 -2.50", "evaluated -17.5", "best -16.0", "evaluating 1/4"),
        *("ale-1 pong 501 21 -3.0", "47/12 0.7 now score 3", "ale-2 pong 501 21 -3.0"),
        *("listening", "a client is slow", "a frame was refused", "█"),
    ):
        assert part in text
    assert "more" not in text
    assert "…" not in text.replace("-1.25 … 2.12", "")


def test_a_wide_screen_shows_what_is_waited_for(make_snapshot: Make, agent: AgentView) -> None:
    shares = {"sample": 0.07, "forward": 0.5, "backward": 0.3, "optimise": 0.1, "wait": 0.03}
    snapshot = make_snapshot(
        agents=(replace(agent, time_shares=shares),),
        contention=Contention(0.1, 1.2, 14.6, 0.21, 0.03, 0.4),
        governed=Governed("8 ms p99", "missed", 0.35),
    )
    text = as_text(snapshot, 160, 45)
    for part in (
        *("contention", "loop lag 1.2 / 14.6 ms", "Python lock 21%, 0.4 ms", "sampling 7%"),
        *("gradients 90%", "locks, copies 3%", "8 ms p99 missed 35%"),
    ):
        assert part in text
    assert "hold off" in as_text(make_snapshot(), 160, 45)


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_the_view_of_latency_shows_each_wait_apart(
    make_snapshot: Make, agent: AgentView, width: int, height: int
) -> None:
    shares = {"sample": 0.07, "forward": 0.49, "backward": 0.29, "optimise": 0.1}
    snapshot = make_snapshot(
        agents=(
            replace(
                agent, weights_age_steps=12_345, time_shares={**shares, "sync": 0.02, "wait": 0.03}
            ),
        ),
        contention=Contention(0.1, 1.2, 1014.6, 0.21, 0.03, 0.4),
        governed=Governed("2,000 fps", "missed anyway", 1.0),
    )
    lines = as_lines(snapshot, width, height, Look(View.LATENCY))
    text = " ".join(" ".join(lines).split())
    for part in (
        *("p50 0.8 ms", "p99", "2.1 ms", "weights version 412", "weights age 3.2 s"),
        *("steps behind 12,345", "loop lag p50 0.1 ms", "loop lag p99 1.2 ms"),
        *("loop lag max 1,014.6 ms", "Python lock taken 21%", "wait for it p99 0.4 ms"),
        *("2,000 fps missed anyway 100%", "learner's time", "sampling 7%", "forward 49%"),
        *("backward 29%", "optimise 10%", "copies 2%", "locks 3%"),
    ):
        assert part in text
    unknown = make_snapshot(contention=Contention(0.1, 1.2, 14.6, None, None, None))
    text = as_text(unknown, width, height, Look(View.LATENCY))
    assert "Python lock taken – " in text and "wait for it p99 – ms" in text


@pytest.mark.parametrize("goal", ["8 ms p99", "2,000 fps"])
def test_it_is_told_whose_fault_a_miss_is(make_snapshot: Make, goal: str) -> None:
    governed = Governed(goal, Hold.BEYOND.value, 1.0)
    text = as_text(make_snapshot(governed=governed), 160, 45)
    assert f"{goal} missed anyway 100%" in text


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_the_footer_shows_whole_places_of_the_table(
    make_snapshot: Make, width: int, height: int
) -> None:
    known = {f"{keys} {kind}" for keys, kind, _ in places()}
    for view in View:
        footer = as_lines(make_snapshot(), width, height, Look(view))[-1]
        shown = [" ".join(piece.split()) for piece in footer.split("  ") if piece.strip()]
        assert set(shown) <= known
        assert shown[-1] == "? help" and "q quit" in shown and "1-7 view" in shown
        assert ("Enter edit" in shown) is (view is View.SETTINGS)  # where it works


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_the_help_shows_every_sentence(make_snapshot: Make, width: int, height: int) -> None:
    text = as_text(make_snapshot(), width, height, Look(help_open=True))
    for keys, kind, hotkeys in places():
        if height > len(HOTKEYS):
            for hotkey in hotkeys:
                assert f"{symbol(hotkey.key)} {hotkey.label} {hotkey.about}" in text
        else:  # keys of one kind share a place, and have no sentences
            assert f"{keys} {kind}" in text


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_what_is_not_known_is_a_dash(
    make_snapshot: Make, agent: AgentView, width: int, height: int
) -> None:
    names = [field.name for field in fields(AgentView) if field.type == "float | None"]
    nothing: dict[str, Any] = dict.fromkeys(names)
    unknown = replace(agent, returns=(), **nothing)
    text = as_text(make_snapshot(agents=(unknown,), last_save_s=None), width, height)
    for part in ("loss –", "Q mean –", "– … –", "batch –", "last –", "best –", "not saved yet"):
        assert part in text
    assert "None" not in text


def test_before_training_the_start_is_counted_down(make_snapshot: Make, agent: AgentView) -> None:
    filling = replace(agent, replay_size=5_000, state="waiting for frames")
    text = as_text(make_snapshot(agents=(filling,)), 80, 24)
    assert "training starts in 15,000 frames" in text
    assert "5,000 of 20,000" in text and "25%" in text


def test_without_clients_the_hints_are_shown_whole(make_snapshot: Make) -> None:
    for agents in ((), make_snapshot().agents):
        for width, height in SIZES:
            text = as_text(make_snapshot(clients=(), agents=agents), width, height)
            assert "Connect an emulator:" in text
            assert "$ python -m client_py.atari --game pong" in text
            assert "$ mame pacman -autoboot_script x.lua" in text


def test_a_long_hint_goes_on_in_the_next_line(make_snapshot: Make) -> None:
    hint = " ".join(f"--option-{number}" for number in range(12))
    lines = as_lines(make_snapshot(clients=(), agents=(), connect_hints=(hint,)), 80, 24)
    assert hint in " ".join("".join(lines).replace("│", " ").replace("$", " ").split())


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_many_clients_and_events_are_cut(
    make_snapshot: Make, client: ClientView, width: int, height: int
) -> None:
    clients = tuple(replace(client, name=f"c{number}") for number in range(100))
    events = tuple(Event(float(number), "info", f"event {number}.") for number in range(200))
    text = as_text(make_snapshot(clients=clients, events=events), width, height)
    shown = sum(f" c{number} " in text for number in range(100))
    assert shown >= 3
    assert "clients 100" in text and f"+{100 - shown} more" in text
    assert "event 199." in text and "event 0." not in text


def test_other_agents_get_a_line_each(make_snapshot: Make, agent: AgentView) -> None:
    agents = (
        replace(agent, name="slow", frames_per_s=10.0),
        replace(agent, name="first", frames_per_s=500.0),
        replace(agent, name="second", frames_per_s=500.0),
    )
    text = as_text(make_snapshot(agents=agents), 80, 24)
    assert "● training first" in text
    assert "other agents 2" in text
    assert "slow training 10 frames/s 81.2 steps/s return -18.3" in text
    assert "second training 500 frames/s" in text


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"controls": Controls(training=False)}, "● paused"),
        ({"controls": Controls(greedy=True)}, "greedy on"),
        ({"stopping": True}, "● stopping"),
        ({"agents": (), "clients": ()}, "● waiting for clients"),
        ({"agents": (), "clients": (), "awaited": 2}, "● starting 2 emulators"),
        ({"awaited": 1}, "starting 1 emulator"),
        ({"saving": True}, "saving ..."),
        ({"controls": Controls(exploring=False)}, "epsilon 0.42 paused"),
        ({"controls": Controls(expert=True)}, "expert 0.11 expert"),
    ],
)
def test_states(make_snapshot: Make, changes: dict[str, object], part: str) -> None:
    assert part in as_text(make_snapshot(**changes), 80, 24)


def test_a_large_screen_has_charts_and_a_small_one_keeps_its_rows(make_snapshot: Make) -> None:
    assert "─ mean return ─" in "".join(as_lines(make_snapshot(), 120, 40))
    assert "─ Q mean ─" in "".join(as_lines(make_snapshot(), 220, 60))
    assert "mean return" not in as_text(make_snapshot(), 80, 24)


def test_a_strangers_text_cannot_control_the_terminal(
    make_snapshot: Make, client: ClientView
) -> None:
    odd = replace(client, name="\x1b[2J\n", game="\x9b31m", info={"\r": "\x07"})
    as_lines(make_snapshot(clients=(odd,), events=(Event(0.0, "?", "\x1b]0;\x07"),)), 200, 60)
    screen = render(make_snapshot(clients=(odd,)), Look(), width=200, height=60)
    assert all(segment.text.isprintable() for line in screen.lines for segment in line)


numbers = st.floats()
maybe = st.none() | numbers
counts = st.integers(0, 10**15)
texts = st.text(max_size=40)
SNAPSHOTS = st.builds(
    Snapshot,
    time_s=numbers,
    run=texts,
    address=texts,
    uptime_s=numbers,
    controls=st.builds(Controls),
    clients=st.lists(
        st.builds(
            ClientView,
            name=texts,
            agent=texts,
            game=texts,
            address=texts,
            frames=counts,
            episodes=counts,
            last_return=maybe,
            info=st.dictionaries(texts, numbers | texts, max_size=3),
        ),
        max_size=4,
    ).map(tuple),
    agents=st.lists(
        st.builds(
            AgentView,
            name=texts,
            spaces=texts,
            state=texts,
            **dict.fromkeys(("frames", "steps", "samples", "episodes", "weights_version"), counts),
            **dict.fromkeys(("replay_size", "replay_capacity", "min_replay"), counts),
            returns=st.lists(numbers, max_size=60).map(tuple),
        ),
        max_size=3,
    ).map(tuple),
    events=st.lists(st.builds(Event, time_s=numbers, level=texts, text=texts), max_size=5).map(
        tuple
    ),
    last_save_s=maybe,
    connect_hints=st.lists(texts, max_size=3).map(tuple),
    dials=st.lists(st.from_type(DialView), max_size=20).map(tuple),
)

LOOKS = st.builds(
    Look,
    row=st.integers(0, 300),
    sort=st.integers(0, 20),
    cleared_s=numbers,
    prompt=st.none() | st.builds(Prompt, question=texts, text=texts),
)


@settings(max_examples=80, deadline=None)
@given(SNAPSHOTS, st.integers(40, 230), st.integers(10, 70), LOOKS)
def test_any_snapshot_renders_at_any_size(
    snapshot: Snapshot, width: int, height: int, look: Look
) -> None:
    as_lines(snapshot, width, height, look)


@pytest.mark.parametrize(("width", "height"), [(1, 1), (20, 5), (39, 9), (500, 200)])
def test_extreme_sizes(make_snapshot: Make, width: int, height: int) -> None:
    as_lines(make_snapshot(), width, height, Look(help_open=True))


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_every_view_says_what_it_is_about(make_snapshot: Make, width: int, height: int) -> None:
    dial = DialView("epsilon", "0.5", "0.5", "0.9", "its schedule", "share", "0 to 1", "Random.")
    snapshot = replace(demo.snapshot(clients=3), dials=(dial, replace(dial, name="n_step")))
    words = {
        View.OVERVIEW: ("throughput", "returns", "clients 3", "events"),
        View.CLIENTS: ("clients 3", "ale-1", "ale-3", "score 12"),
        View.LEARNING: ("mean return", "12.8", "-20.0", "84 min ago", "now", "Q range"),
        View.LATENCY: ("p99 ms", "frames/s", "84 min ago", "weights version"),
        View.CLUSTER: ("nodes 2", "gateways 2", "10.0.0.6", "backlog", "490", "2 learners of"),
        View.EVENTS: ("events 7", "listening on", "saved runs"),
        View.SETTINGS: (
            "▶ epsilon",
            "n_step",
            "Random.",
            "takes 0 to 1 natural: 0.9, its schedule",
        ),
    }
    for view, parts in words.items():
        text = as_text(snapshot, width, height, Look(view))
        for part in parts:
            assert part in text, f"{part} is not in the view {view.value}"


def test_clients_are_sorted_and_scrolled(make_snapshot: Make, client: ClientView) -> None:
    clients = tuple(
        replace(client, name=f"c{number:02}", frames_per_s=float(number)) for number in range(40)
    )
    snapshot = make_snapshot(clients=clients)
    order = [order.title for order in roster.ORDERS].index("frames/s")
    fastest = as_lines(snapshot, 80, 24, Look(View.CLIENTS, sort=order))
    assert "c39" in fastest[4] and "c38" in fastest[5]
    slowest = as_lines(snapshot, 80, 24, Look(View.CLIENTS, sort=order, reverse=True))
    assert "c00" in slowest[4]
    later = as_lines(snapshot, 80, 24, Look(View.CLIENTS, row=5))
    assert "c05" in later[4] and "6 to 23 of 40" in later[2]
    end = as_lines(snapshot, 80, 24, Look(View.CLIENTS, row=39))
    assert "c39" in end[-3] and "23 to 40 of 40" in end[2]


def test_events_are_scrolled_and_cleared(make_snapshot: Make) -> None:
    events = tuple(Event(float(number), "info", f"event {number}.") for number in range(100))
    snapshot = make_snapshot(events=events)
    assert "event 99." in as_text(snapshot, 80, 24, Look(View.EVENTS))
    scrolled = as_text(snapshot, 80, 24, Look(View.EVENTS, row=50))
    assert "event 49." in scrolled and "event 50." not in scrolled and "50 newer below" in scrolled
    for view in (View.EVENTS, View.OVERVIEW):
        cleared = as_text(snapshot, 80, 24, Look(view, cleared_s=98.5))
        assert "event 99." in cleared and "event 98." not in cleared


def test_a_question_stands_in_the_last_line(make_snapshot: Make) -> None:
    look = Look(prompt=Prompt("n_step (1 to 64 frames):", "n_step", "5"))
    assert as_lines(make_snapshot(), 80, 24, look)[-1].strip() == "n_step (1 to 64 frames): 5▏"


def test_no_color_is_respected(make_snapshot: Make) -> None:
    screen = render(make_snapshot(), Look(), width=80, height=24)

    def codes(**environment: str) -> set[str]:
        console = Console(
            file=io.StringIO(), force_terminal=True, color_system="256", _environ=environment
        )
        return set(re.findall(r"\x1b\[([0-9;]*)m", drawn(console, screen)))

    assert any("38;5" in code for code in codes())
    assert not any("38;5" in code for code in codes(NO_COLOR="1"))


def test_the_picture_is_an_svg(make_snapshot: Make, tmp_path: Path) -> None:
    path = tmp_path / "coinop.svg"
    export_svg(make_snapshot(), path)
    assert path.read_text().startswith("<svg") and "1,003" in path.read_text()


def test_the_demo_renders() -> None:
    assert "training" in as_text(demo.snapshot(agents=2), 110, 34)
    assert "training starts in" in as_text(demo.snapshot(10.0), 110, 34)


class Stream(io.StringIO):
    """A stream that remembers each write, and tells when something was written."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[str] = []
        self.changed = threading.Event()

    def write(self, text: str) -> int:
        """Note one write."""
        self.writes.append(text)
        self.changed.set()
        return super().write(text)

    def wait_for(self, text: str) -> None:
        """Wait until the text was written."""
        deadline = time.monotonic() + 5.0
        while text not in self.getvalue():
            assert time.monotonic() < deadline, f"never written: {text!r}"
            self.changed.wait(0.05)
            self.changed.clear()


def start_on(stream: Stream) -> Dashboard:
    """Start a dashboard on a made-up terminal of 80x24."""
    console = Console(file=stream, force_terminal=True, width=80, height=24, color_system=None)
    dashboard = Dashboard(console=console, refresh_s=0.01)
    dashboard.start()
    return dashboard


def test_the_screen_is_drawn_in_one_write_and_left_clean(make_snapshot: Make) -> None:
    stream = Stream()
    dashboard = start_on(stream)
    dashboard.update(make_snapshot())
    stream.wait_for("? help")
    dashboard.update(make_snapshot(run="run-2"))
    stream.wait_for("run-2")
    dashboard.turn(Look(help_open=True))
    stream.wait_for("down, natural, up")
    dashboard.stop()
    dashboard.stop()
    assert stream.getvalue().startswith("\x1b[?1049h")
    assert stream.getvalue().endswith(LEAVE)
    drawn = [text for text in stream.writes if "Coinop" in text]
    assert len(drawn) == 3
    assert all("\x1b[24;1H" in text and "\n" not in text for text in drawn)


def test_nothing_new_is_not_drawn_again(make_snapshot: Make) -> None:
    stream = Stream()
    dashboard = start_on(stream)
    dashboard.update(make_snapshot())
    stream.wait_for("Coinop")
    time.sleep(0.05)
    dashboard.stop()
    assert sum("Coinop" in text for text in stream.writes) == 1


def test_a_drawing_error_is_kept_until_the_stop(
    make_snapshot: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ValueError("no such\ncolour")

    monkeypatch.setattr(dashboard_module, "render", fail)
    stream = Stream()
    dashboard = start_on(stream)
    dashboard.update(make_snapshot())
    stream.wait_for(LEAVE)
    dashboard.update(make_snapshot())
    dashboard.turn(Look(help_open=True))
    dashboard.stop()
    expected = f"{LEAVE}The dashboard stopped: ValueError: no such colour\n"
    assert stream.getvalue().endswith(expected)


def test_it_can_be_stopped_before_it_showed_anything() -> None:
    stream = Stream()
    dashboard = start_on(stream)
    dashboard.stop()
    assert stream.getvalue().endswith(LEAVE)
    Dashboard(console=Console(file=Stream())).stop()  # never started


def test_a_resize_is_followed_on_a_real_terminal(make_snapshot: Make) -> None:
    person, program = os.openpty()
    with os.fdopen(program, "w", encoding="utf-8") as stream:
        set_size(program, rows=24, columns=80)
        dashboard = Dashboard(console=Console(file=stream, force_terminal=True), refresh_s=0.01)
        dashboard.start()
        dashboard.update(make_snapshot())
        read_until(person, b"\x1b[24;1H")
        set_size(program, rows=30, columns=100)
        read_until(person, b"\x1b[30;1H")
        dashboard.stop()
        read_until(person, LEAVE.encode())
    os.close(person)


def set_size(fd: int, *, rows: int, columns: int) -> None:
    """Resize a terminal."""
    termios.tcsetwinsize(fd, (rows, columns))


def read_until(fd: int, wanted: bytes) -> None:
    """Read what a terminal shows until the wanted bytes were there."""
    seen = b""
    while wanted not in seen:
        seen += os.read(fd, 65_536)


def test_not_a_number_is_marked(make_snapshot: Make, agent: AgentView) -> None:
    broken = replace(agent, loss=math.nan)
    screen = render(make_snapshot(agents=(broken,)), Look(), width=80, height=24)
    found = [segment for line in screen.lines for segment in line if segment.text == " nan"]
    assert found and found[0].style is not None and found[0].style.bold


def test_changes_are_marked_where_they_were(make_snapshot: Make, agent: AgentView) -> None:
    ages = tuple(float(age) for age in range(60, 0, -1))
    agent = replace(agent, history={"age_s": ages, "loss": tuple(range(60))})
    now = 1_700_000_000.0
    snapshot = make_snapshot(agents=(agent,), changed_s=(now - 500.0, now - 30.0), time_s=now)
    lines = as_lines(snapshot, 200, 50, Look(view=View.LEARNING))
    (line,) = [line for line in lines if "▲" in line]
    start = line.index("60 s ago")
    width = line.index("now") + 3 - start
    # One of the two is older than the chart; the other was half way.
    assert line.count("▲") == 1
    assert line.index("▲") - start == pytest.approx(width / 2, abs=1)


def test_weights_that_are_too_old_are_red(agent: AgentView) -> None:
    ages = []
    for stale in (False, True):
        old = replace(agent, weights_age_s=500.0, weights_stale=stale)
        lines = panels.latency(old, 30)
        ages.append({segment.style for line in lines for segment in line if "8" in segment.text})
    assert theme.BAD in ages[1] and theme.BAD not in ages[0]
