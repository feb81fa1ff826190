"""Plain lines: one line, ASCII, and the figures that matter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from server.console.plain import event_line, status_line
from server.stats import AgentView, Event, Snapshot

Make = Callable[..., Snapshot]


def test_status_line(make_snapshot: Make) -> None:
    assert " ".join(status_line(make_snapshot()).split()) == (
        "00:01:25 pong clients 2 frames 123,456 ( 1,003/s) steps 4,321 ( 81.2/s) epsilon 0.42 "
        "replay 123k/1.0M p99 2.1 ms return -18.3 (best -17.9, 42 episodes) evaluated -17.5"
    )


def test_lines_of_one_run_are_aligned(make_snapshot: Make, agent: AgentView) -> None:
    later = replace(agent, frames=9_123_456, steps=654_321, return_mean=18.3, latency_p99_ms=None)
    first, second = status_line(make_snapshot()), status_line(make_snapshot(agents=(later,)))
    for word in ("steps", "epsilon", "replay", "p99", "return", "best"):
        assert first.index(word) == second.index(word)


def test_the_most_active_agent_is_shown(make_snapshot: Make, agent: AgentView) -> None:
    busy = replace(agent, name="busy", frames_per_s=2_000.0)
    line = status_line(make_snapshot(agents=(agent, busy, agent)))
    assert " busy " in line and line.endswith("+2 agents")


def test_without_an_agent_it_says_where_it_waits(make_snapshot: Make) -> None:
    line = status_line(make_snapshot(agents=(), clients=()))
    assert line == "00:01:25  waiting for clients on 127.0.0.1:7777"


def test_lines_are_ascii_and_single(make_snapshot: Make, agent: AgentView) -> None:
    odd = replace(agent, name="pöng\n\x1b[2J", return_mean=None, return_best=None)
    line = status_line(make_snapshot(agents=(odd,)))
    assert line.isascii() and line.isprintable()


def test_event_line() -> None:
    line = event_line(Event(0.0, "warning", "two\nlines → one"))
    assert line[2] == line[5] == ":"
    assert line[8:] == "  warning  two?lines ? one"
