"""The panels of the screen: each a pure function from values to lines."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from functools import lru_cache

from rich.segment import Segment
from rich.style import Style

from server.console import figures, hotkeys, sparkline, theme
from server.console.hotkeys import HOTKEYS, Hotkey
from server.console.line import Line, bar, exact, figure, fit, length, spread, words
from server.console.look import Prompt, View
from server.stats import (
    RETURN_WINDOW,
    AgentView,
    Contention,
    Event,
    Governed,
    ReturnWindow,
    Snapshot,
)

_AXIS_FROM_ROWS = 3  # a taller chart says what its top and its bottom stand for
_WIDE_HEADLINE = 96
_HELP_WIDTH = 84
_WIDE_CAPTION = 34
_WIDE_RETURNS = 66

# What the parts of the learner's time are called.
_LEARNER_PARTS = {
    "sampling": "sample",
    "forward": "forward",
    "backward": "backward",
    "optimise": "optimise",
    "copies": "sync",
    "locks": "wait",
}
_CLOCK_WIDTH = 10  # of an event: hours, minutes, seconds, a gap


def headline(snapshot: Snapshot, agent: AgentView | None, width: int) -> Line:
    """Say what the server is doing, since when, and when it was last saved."""
    state = _state(snapshot, agent)
    saved = "not saved yet"
    if snapshot.saving:
        saved = "saving ..."
    elif snapshot.last_save_s is not None:
        saved = f"saved {figures.age(snapshot.last_save_s)} ago"
    left = [Segment("● ", theme.STATES.get(state, theme.TITLE))]
    left += words(
        (state, theme.STRONG),
        (figures.clean(agent.name) if agent else "", theme.COIN),
        (figures.clean(agent.spaces) if agent and width >= _WIDE_HEADLINE else "", theme.QUIET),
    )
    right = words((saved, theme.QUIET), (f"up {figures.duration(snapshot.uptime_s)}", theme.QUIET))
    return spread(left, [Segment("  "), *right], width)


def _state(snapshot: Snapshot, agent: AgentView | None) -> str:
    if snapshot.stopping:
        return "stopping"
    if not snapshot.controls.training:
        return "paused"
    if agent is None:
        return starting(snapshot.awaited) or "waiting for clients"
    missing = agent.min_replay - agent.replay_size
    if missing > 0:
        return f"training starts in {figures.count(missing)} frames"
    return figures.clean(agent.state)


def starting(awaited: int) -> str:
    """Say how many emulators of ours are on their way; '' if none is."""
    return f"starting {awaited} emulator{'s' if awaited > 1 else ''}" if awaited else ""


def throughput(agent: AgentView, width: int) -> list[Line]:
    """Show how fast frames come in and steps are made, and how many there were."""
    return [
        _passed("frames/s", figures.rate(agent.frames_per_s), agent, "frames_per_s", width),
        _passed("steps/s", figures.rate(agent.steps_per_s), agent, "steps_per_s", width),
        figure("samples/s", figures.rate(agent.samples_per_s), width),
        _passed(
            "replay ratio",
            figures.rate(agent.replay_ratio),
            agent,
            "replay_ratio",
            width,
            theme.PLAIN,
        ),
        figure("frames", figures.count(agent.frames), width),
        figure("steps", figures.count(agent.steps), width),
    ]


def _passed(
    label: str, value: str, agent: AgentView, name: str, width: int, style: Style = theme.STRONG
) -> Line:
    """Show a figure with its past."""
    return figure(label, value, width, style, past=agent.history.get(name, ()))


def learning(agent: AgentView, width: int) -> list[Line]:
    """Show what the last gradient steps looked like."""
    span = f"{figures.few(agent.q_min)} … {figures.few(agent.q_max)}"
    last = figure("skipped steps", figures.count(agent.skipped_steps), width)
    if agent.skipped_steps:
        last = figure("skipped steps", figures.count(agent.skipped_steps), width, theme.CAUTION)
    elif agent.agreement is not None:
        last = figure("agreement", _agreement(agent), width, note="with the expert")
    return [
        _passed(
            "loss", figures.real(agent.loss), agent, "loss", width, _sound(agent.loss, theme.STRONG)
        ),
        figure("gradient norm", figures.real(agent.gradient_norm), width),
        _passed(
            "Q mean",
            figures.real(agent.q_mean),
            agent,
            "q_mean",
            width,
            _sound(agent.q_mean, theme.PLAIN),
        ),
        figure("Q range", span, width),
        figure("learning rate", f"{agent.learning_rate:.2g}", width),
        last,
    ]


def _sound(value: float | None, style: Style) -> Style:
    return style if value is None or math.isfinite(value) else theme.BAD


def exploration(snapshot: Snapshot, agent: AgentView, width: int) -> list[Line]:
    """Show who chooses the actions, each share with a bar."""
    epsilon, expert, greedy = _choices(snapshot, agent, width)
    return [
        epsilon,
        bar(agent.epsilon, width, _mark(agent.epsilon_natural, theme.CHART)),
        expert,
        bar(agent.expert_ratio, width, _mark(agent.expert_natural, theme.BAR)),
        greedy,
        figure("agreement", _agreement(agent), width),
    ]


def latency(agent: AgentView, width: int) -> list[Line]:
    """Show how long a client waits for its action, and how old the weights behind it are."""
    return [
        figure("p50", figures.milliseconds(agent.latency_p50_ms), width, note="ms"),
        figure(
            "p99",
            figures.milliseconds(agent.latency_p99_ms),
            width,
            theme.STRONG,
            "ms",
            agent.history.get("latency_p99_ms", ()),
        ),
        _batch(agent, width),
        figure("weights version", figures.count(agent.weights_version), width),
        figure("weights age", figures.age(agent.weights_age_s), width, _alarm(agent)),
        figure("steps behind", figures.count(agent.weights_age_steps), width),
    ]


def waits(snapshot: Snapshot, width: int) -> list[Line]:
    """Show what the event loop waits for, and whether training gives way."""
    found = snapshot.contention
    lags = (found.lag_p50_ms, found.lag_p99_ms, found.lag_max_ms) if found else (None,) * 3
    styles = (theme.PLAIN, theme.STRONG, theme.PLAIN)
    wait_ms = found.gil_wait_p99_ms if found else None
    return [
        *(
            figure(f"loop lag {name}", figures.milliseconds(lag), width, style, "ms")
            for name, lag, style in zip(("p50", "p99", "max"), lags, styles, strict=True)
        ),
        figure("Python lock taken", _lock_share(found), width),
        figure("wait for it p99", figures.milliseconds(wait_ms), width, note="ms"),
        _held(snapshot.governed, width),
    ]


def learner_time(agent: AgentView, width: int) -> list[Line]:
    """Show how the learner's time is shared out."""
    return [
        figure(label, figures.percent(agent.time_shares.get(part, 0.0)), width)
        for label, part in _LEARNER_PARTS.items()
    ]


def contention(snapshot: Snapshot, agent: AgentView, width: int) -> list[Line]:
    """Show in the room of one panel what event loop and learner wait for, and who gives way."""
    lag = lock = figures.MISSING
    if found := snapshot.contention:
        lag = f"{figures.milliseconds(found.lag_p99_ms)} / {figures.milliseconds(found.lag_max_ms)}"
        lock = f"{_lock_share(found)}, {figures.milliseconds(found.gil_wait_p99_ms)}"
    gradients, waits = (
        sum(agent.time_shares.get(part, 0.0) for part in parts)
        for parts in (("forward", "backward", "optimise"), ("sync", "wait"))
    )
    return [
        figure("loop lag", lag, width, theme.STRONG, note="ms"),
        figure("Python lock", lock, width, note="ms"),
        figure("sampling", figures.percent(agent.time_shares.get("sample", 0.0)), width),
        figure("gradients", figures.percent(gradients), width),
        figure("locks, copies", figures.percent(waits), width),
        _held(snapshot.governed, width),
    ]


def _lock_share(found: Contention | None) -> str:
    share = found.gil_share if found else None
    return figures.MISSING if share is None else figures.percent(share)


def _held(governed: Governed | None, width: int) -> Line:
    if governed is None:
        return figure("hold", "off", width)
    share = figures.percent(governed.training_share)
    style = theme.CAUTION if governed.state.startswith("missed") else theme.PLAIN
    return figure(governed.goal, governed.state, width, style, note=share)


def play(snapshot: Snapshot, agent: AgentView, width: int) -> list[Line]:
    """Show exploration and latency in the room of one panel."""
    p50, p99 = map(figures.milliseconds, (agent.latency_p50_ms, agent.latency_p99_ms))
    weights = f"v{agent.weights_version}, {figures.age(agent.weights_age_s)}"
    return [
        *_choices(snapshot, agent, width),
        _batch(agent, width),
        figure("p50/p99", f"{p50} / {p99}", width, note="ms"),
        figure("weights", weights, width, _alarm(agent)),
    ]


def _alarm(agent: AgentView) -> Style:
    """Make the age of weights that are too old stand out."""
    return theme.BAD if agent.weights_stale else theme.PLAIN


def _choices(snapshot: Snapshot, agent: AgentView, width: int) -> list[Line]:
    controls = snapshot.controls
    greedy = controls.greedy
    forced = "greedy" if greedy else "expert" if controls.expert else ""
    epsilon = forced or ("" if controls.exploring else "paused")
    return [
        _choice("epsilon", agent.epsilon, agent.epsilon_natural, epsilon, width),
        _choice("expert", agent.expert_ratio, agent.expert_natural, forced, width),
        figure("greedy", "on" if greedy else "off", width, _mark(not greedy, theme.PLAIN)),
    ]


def _choice(label: str, share: float, natural: bool, forced: str, width: int) -> Line:
    note = forced or ("natural" if natural else "override")
    style = _mark(natural, theme.PLAIN)
    return figure(label, figures.share(share), width, style, note)


def _agreement(agent: AgentView) -> str:
    return figures.MISSING if agent.agreement is None else figures.percent(agent.agreement)


def _mark(natural: bool, style: Style) -> Style:
    return style if natural else theme.CAUTION


def _batch(agent: AgentView, width: int) -> Line:
    batch = figures.MISSING if agent.batch_mean is None else figures.rate(agent.batch_mean)
    return figure("batch", batch, width, note="frames")


def replay(agent: AgentView, width: int) -> list[Line]:
    """Show how full the replay is; before training, how far it is from what training needs."""
    filling = agent.replay_size < agent.min_replay
    goal = agent.min_replay if filling else agent.replay_capacity
    share = agent.replay_size / goal if goal > 0 else 0.0
    unit = "frames to start" if filling else "frames"
    percent = f" {figures.percent(share):>4}"
    caption = words(
        (figures.count(agent.replay_size), theme.STRONG),
        ("of", theme.QUIET),
        (figures.count(goal), theme.PLAIN),
        (unit if width >= _WIDE_CAPTION else "", theme.QUIET),
        gap=1,
    )
    return [
        [*bar(share, max(0, width - len(percent))), Segment(percent)],
        caption,
        [],
        figure("capacity", figures.count(agent.replay_capacity), width),
        figure("minimum", figures.count(agent.min_replay), width),
    ]


def returns(agent: AgentView, width: int, rows: int) -> list[Line]:
    """Show how well the episodes went, with a chart of the last ones."""
    mean = f"mean of last {RETURN_WINDOW}" if width >= _WIDE_RETURNS else "mean"
    parts = (
        ("last", figures.points(agent.return_last), theme.PLAIN),
        (mean, figures.points(agent.return_mean), theme.STRONG),
        ("best", figures.points(agent.return_best), theme.PLAIN),
        ("episodes", figures.count(agent.episodes), theme.PLAIN),
    )
    more = [_windows(agent, width), _labelled(_apart(agent))]
    lines = [_labelled(parts), *[line for line in more if line][: max(0, rows - 2)]]
    return [*lines, *_chart(agent.returns, width, rows - len(lines))]


def standing(agent: AgentView, width: int) -> list[Line]:
    """Show how well the agent plays: over the last frames, and in evaluations."""
    lines = [
        figure(
            f"last {figures.short(window.frames, 0)}",
            figures.points(window.mean),
            width,
            theme.STRONG,
            note=_slope(window, "/M frames"),
        )
        for window in agent.return_windows
    ]
    evaluated, best = agent.evaluation, agent.evaluation_best
    return [
        *lines,
        figure("episodes", figures.count(agent.episodes), width),
        figure("evaluated", figures.points(evaluated.mean if evaluated else None), width),
        figure("best", figures.points(best.mean if best else None), width, note=_progress(agent)),
    ]


def _windows(agent: AgentView, width: int) -> Line:
    """Put mean and slope over the last frames into one line.

    A window that reaches beyond the first frame shows all there is; one of them is enough.
    """
    unit = "/M" if width >= _WIDE_RETURNS else ""
    line: Line = []
    for window in agent.return_windows if agent.episodes else ():
        line += [
            Segment(f"{figures.short(window.frames, 0)} ", theme.QUIET),
            Segment(figures.few(window.mean), theme.PLAIN),
            Segment(f" {_slope(window, unit)}  ", theme.QUIET),
        ]
        if window.frames >= agent.frames:
            break
    return line


def _slope(window: ReturnWindow, unit: str) -> str:
    slope = window.slope
    return "" if slope is None else f"{'+' if slope >= 0 else ''}{figures.few(slope)}{unit}"


def _progress(agent: AgentView) -> str:
    if agent.evaluating is None:
        return ""
    return f"evaluating {agent.evaluating}/{agent.evaluating_of or '?'}"


def _apart(agent: AgentView) -> list[tuple[str, str, Style]]:
    """Give what is told apart from the agent's own episodes in training."""
    parts = []
    if agent.evaluation is not None:
        parts.append(("evaluated", figures.points(agent.evaluation.mean), theme.STRONG))
    if agent.evaluation_best is not None:
        parts.append(("best", figures.points(agent.evaluation_best.mean), theme.PLAIN))
    if agent.evaluating is not None:
        label, _, count = _progress(agent).partition(" ")
        parts.append((label, count, theme.STRONG))
    if agent.guided_episodes:
        mean = figures.points(agent.guided_return_mean)
        parts.append(("guided", f"{mean} ({figures.count(agent.guided_episodes)})", theme.PLAIN))
    return parts


def _labelled(parts: Sequence[tuple[str, str, Style]]) -> Line:
    line: Line = []
    for label, value, style in parts:
        line += [Segment(f"{label} ", theme.QUIET), Segment(value, style), Segment("  ")]
    return line


def _chart(values: tuple[float, ...], width: int, rows: int) -> list[Line]:
    axis = _axis(values, rows)
    room = max(0, width - max(map(len, axis)))
    lines = sparkline.draw(values[-room * 2 :] if room else (), width=room, rows=rows)
    return [
        [Segment(line, theme.CHART), Segment(label, theme.QUIET)]
        for line, label in zip(lines, axis, strict=False)
    ]


def _axis(values: tuple[float, ...], rows: int) -> list[str]:
    """Label the top and the bottom of a chart that is tall enough."""
    labels = [""] * max(1, rows)
    if rows >= _AXIS_FROM_ROWS and values:
        labels[0] = f" {figures.points(max(values))}"
        labels[-1] = f" {figures.points(min(values))}"
    return labels


def events(newest: Sequence[Event], width: int, rows: int) -> list[Line]:
    """Show what happened, coloured by its level, in the last rows that there is room for.

    A long text goes on in the next line: the advice stands at its end.
    """
    room = max(8, width - _CLOCK_WIDTH)
    lines: list[Line] = []
    for event in reversed(newest):
        style = theme.LEVELS.get(event.level, theme.PLAIN)
        texts = _wrapped(event.text, room)
        clocks = [figures.clock(event.time_s)] + [""] * (len(texts) - 1)
        lines = [
            [Segment(clock.ljust(_CLOCK_WIDTH), theme.QUIET), Segment(fit(text, room), style)]
            for clock, text in zip(clocks, texts, strict=True)
        ] + lines
        if len(lines) >= rows:
            break
    return lines[max(0, len(lines) - rows) :]


@lru_cache(maxsize=256)
def _wrapped(text: str, width: int) -> list[str]:
    """Cut an event into lines; it is the same at every redraw."""
    return textwrap.wrap(figures.clean(text), width, break_on_hyphens=False) or [""]


def hints(commands: tuple[str, ...], width: int) -> list[Line]:
    """Say how to connect an emulator; a long command goes on in the next line."""
    lines: list[Line] = [[Segment("Connect an emulator:", theme.STRONG)]]
    for command in commands:
        wrapped = textwrap.wrap(figures.clean(command), max(8, width - 4), break_on_hyphens=False)
        for first, text in enumerate(wrapped):
            lines.append(
                [Segment("    " if first else "  $ ", theme.QUIET), Segment(text, theme.COIN)]
            )
    return lines


def footer(view: View, width: int) -> Line:
    """Show as many keys of a view as there is room for, in the table's order, help at the end."""
    *others, (key, name, _) = [
        place
        for place in hotkeys.places()
        if any(hotkeys.works(hotkey, view) for hotkey in place[2])
    ]
    # Quit and the views come first, then what this view has of its own.
    others = sorted(others, key=lambda place: not any(_leads(hotkey) for hotkey in place[2]))
    line: Line = []
    last = _place(key, name)
    room = width - length(last)
    for keys, kind, _ in others:
        piece = _place(keys, kind)
        if length(piece) > room:
            break
        line += piece
        room -= length(piece)
    return exact([*line, Segment(" " * room), *last], width)


def _leads(hotkey: Hotkey) -> bool:
    return bool(hotkey.views) or hotkey in HOTKEYS[:2]


def _place(keys: str, name: str) -> Line:
    return [Segment(f" {keys}", theme.COIN), Segment(f" {name} ", theme.QUIET)]


def prompt(asked: Prompt, width: int) -> Line:
    """Show a question and what was typed so far; the end of it stays in sight."""
    question = f" {figures.clean(asked.question)} "
    typed = figures.clean(asked.text)[-max(8, width - len(question) - 2) :]
    line = [Segment(question, theme.STRONG), Segment(typed, theme.COIN)]
    return exact([*line, Segment("▏", theme.COIN)], width)


def keys(width: int, rows: int) -> tuple[list[Line], int]:
    """Show every key: with its sentence where all have room, else those of one kind together.

    Gives the lines, and the width of the whole panel.
    """
    if len(HOTKEYS) <= rows and width >= _HELP_WIDTH:
        return [_key(hotkey, _HELP_WIDTH - 4) for hotkey in HOTKEYS], _HELP_WIDTH
    places = hotkeys.places()
    columns = 1 if len(places) <= rows else 2
    half = -(-len(places) // columns)
    size = (min(width, _HELP_WIDTH) - 4) // columns
    lines = [
        [
            piece
            for place in places[row::half]
            for piece in (*exact(_kind(*place, size - 1), size - 1), Segment(" "))
        ]
        for row in range(half)
    ]
    return lines, size * columns + 4


def _kind(keys: str, name: str, group: tuple[Hotkey, ...], width: int) -> Line:
    ways = [hotkey.label.partition(" ")[2] for hotkey in group]
    told = ", ".join(dict.fromkeys(way for way in ways if way)) or group[0].about
    line = [Segment(fit(keys, 10), theme.COIN), Segment(f"{name} ", theme.STRONG)]
    fits = length(line) + len(told) <= width  # half a list says less than its name
    return [*line, Segment(told, theme.QUIET)] if fits else line


def _key(hotkey: Hotkey, width: int) -> Line:
    line = [
        Segment(fit(hotkeys.symbol(hotkey.key), 7), theme.COIN),
        Segment(fit(hotkey.label, 17), theme.STRONG),
        Segment(hotkey.about, theme.PLAIN),
    ]
    return exact(line, width)
