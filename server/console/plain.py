"""Plain lines for pipes, logs and CI: one for each snapshot, one for each event, all ASCII."""

from __future__ import annotations

from server.console import figures
from server.console.overview import most_active
from server.stats import AgentView, Event, Snapshot


def status_line(snapshot: Snapshot) -> str:
    """Put the most important figures of a snapshot into one line."""
    agent = most_active(snapshot.agents)
    uptime = figures.duration(snapshot.uptime_s)
    if agent is None:
        return _ascii(f"{uptime}  waiting for clients on {snapshot.address}")
    others = len(snapshot.agents) - 1
    parts = [
        uptime,
        agent.name,
        f"clients {len(snapshot.clients)}",
        *_figures(agent),
        f"+{others} {'agent' if others == 1 else 'agents'}" if others else "",
    ]
    return _ascii("  ".join(part for part in parts if part))


def event_line(event: Event) -> str:
    """Write an event: its time, its level, its text."""
    return _ascii(f"{figures.clock(event.time_s)}  {event.level:<7}  {event.text}")


def _figures(agent: AgentView) -> list[str]:
    replay = f"{figures.short(agent.replay_size)}/{figures.short(agent.replay_capacity)}"
    mean, best = figures.points(agent.return_mean), figures.points(agent.return_best)
    return [
        f"frames {figures.count(agent.frames):>11} ({figures.rate(agent.frames_per_s):>6}/s)",
        f"steps {figures.count(agent.steps):>9} ({figures.rate(agent.steps_per_s):>5}/s)",
        f"epsilon {figures.share(agent.epsilon)}",
        f"replay {replay:>9}",
        f"p99 {figures.milliseconds(agent.latency_p99_ms):>5} ms",
        f"return {mean:>7} (best {best:>7}, {figures.count(agent.episodes)} episodes)",
        f"evaluated {figures.points(agent.evaluation.mean)}" if agent.evaluation else "",
    ]


def _ascii(text: str) -> str:
    text = figures.clean(text.replace(figures.MISSING, "-"))
    return text.encode("ascii", "replace").decode("ascii")
