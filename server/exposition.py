"""A Snapshot in Prometheus's text format; pure. docs/metrics.md defines the figures."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from server.stats import LATENCY_BUCKETS_S, AgentView, Snapshot

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure of an agent under its Prometheus name."""

    name: str
    kind: str  # counter or gauge
    about: str
    figure: str  # of an AgentView
    scale: float = 1.0  # to the unit of the name


AGENT_METRICS = (
    Metric("coinop_frames_total", "counter", "Frames collected.", "frames"),
    Metric("coinop_steps_total", "counter", "Gradient steps applied.", "steps"),
    Metric("coinop_skipped_steps_total", "counter", "Steps not finite.", "skipped_steps"),
    Metric("coinop_samples_total", "counter", "Samples gathered.", "samples"),
    Metric("coinop_episodes_total", "counter", "Episodes finished.", "episodes"),
    Metric("coinop_replay_frames", "gauge", "Frames in the replay.", "replay_size"),
    Metric("coinop_replay_capacity_frames", "gauge", "Frames it holds.", "replay_capacity"),
    Metric("coinop_replay_ratio", "gauge", "Transitions per frame.", "replay_ratio"),
    Metric("coinop_batch_frames", "gauge", "Frames per forward pass.", "batch_mean"),
    Metric("coinop_loss", "gauge", "Loss of the last step.", "loss"),
    Metric("coinop_gradient_norm", "gauge", "Norm of its gradient.", "gradient_norm"),
    Metric("coinop_q_mean", "gauge", "Mean worth of the actions taken.", "q_mean"),
    Metric("coinop_learning_rate", "gauge", "Step size of the optimizer.", "learning_rate"),
    Metric("coinop_epsilon_ratio", "gauge", "Share of random actions.", "epsilon"),
    Metric("coinop_expert_ratio", "gauge", "Share of the expert's proposals.", "expert_ratio"),
    Metric("coinop_return_mean", "gauge", "Mean return of the last episodes.", "return_mean"),
    Metric("coinop_return_last", "gauge", "Return of the last episode.", "return_last"),
    Metric("coinop_weights_age_seconds", "gauge", "Age of the weights in play.", "weights_age_s"),
)
LATENCY = "coinop_reply_latency_seconds"


def render(snapshot: Snapshot) -> str:
    """Write every metric, each with what it means."""
    return "\n".join([*_server(snapshot), *_agents(snapshot), *_latency(snapshot)]) + "\n"


def markdown() -> str:
    """Draw the table for docs/metrics.md."""
    rows = [f"| `{m.name}` | {m.kind} | `{m.figure}` |" for m in AGENT_METRICS]
    rows.append(f"| `{LATENCY}` | histogram | `latency_counts`, `latency_sum_s` |")
    return "\n".join(["| Prometheus | kind | figure |", "|---|---|---|", *rows]) + "\n"


def _server(snapshot: Snapshot) -> Iterator[str]:
    saved = math.nan if snapshot.last_save_s is None else snapshot.last_save_s
    figures = (
        ("coinop_uptime_seconds", "Time since the server started.", snapshot.uptime_s),
        ("coinop_clients", "Clients connected.", float(len(snapshot.clients))),
        ("coinop_training", "1 if training is switched on.", float(snapshot.controls.training)),
        ("coinop_last_save_age_seconds", "Time since the last checkpoint.", saved),
    )
    for name, about, value in figures:
        yield from _head(name, "gauge", about)
        yield f"{name} {_number(value)}"


def _agents(snapshot: Snapshot) -> Iterator[str]:
    for metric in AGENT_METRICS:
        yield from _head(metric.name, metric.kind, metric.about)
        for agent in snapshot.agents:
            value = getattr(agent, metric.figure)
            if value is not None:
                yield f"{metric.name}{_labels(agent)} {_number(value * metric.scale)}"


def _latency(snapshot: Snapshot) -> Iterator[str]:
    yield from _head(LATENCY, "histogram", "Time from a frame's arrival to its reply.")
    for agent in snapshot.agents:
        total = 0
        bounds = (*map(_number, LATENCY_BUCKETS_S), "+Inf")
        for bound, count in zip(bounds, agent.latency_counts, strict=True):
            total += count
            yield f"{LATENCY}_bucket{_labels(agent, bound)} {total}"
        yield f"{LATENCY}_sum{_labels(agent)} {_number(agent.latency_sum_s)}"
        yield f"{LATENCY}_count{_labels(agent)} {total}"


def _head(name: str, kind: str, about: str) -> Iterator[str]:
    yield f"# HELP {name} {about}"
    yield f"# TYPE {name} {kind}"


def _labels(agent: AgentView, bound: str = "") -> str:
    name = agent.name.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return f'{{agent="{name}"' + (f',le="{bound}"' if bound else "") + "}"


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))
