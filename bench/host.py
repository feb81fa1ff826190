"""The real server, set up for a benchmark in this process."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from collections.abc import AsyncIterator
from typing import Any

import config
from server import nursery
from server.agent import LearningAgent
from server.app import App, prepare_process
from server.learn.learner import Learner

AGENT = "bench"  # whom the load clients feed


@contextlib.asynccontextmanager
async def server(fabric: Any = None, **settings: dict[str, Any]) -> AsyncIterator[App]:
    """Run a server in a directory that is thrown away; settings are given by section.

    With a fabric it runs on that cluster.
    """
    with tempfile.TemporaryDirectory() as directory:
        values: dict[str, dict[str, Any]] = {
            "server": {"port": 0},
            "run": {"runs_dir": directory},
            **settings,
        }
        built = config.from_values(values)
        prepare_process(built)
        app = App(built, fabric=fabric)
        await app.startup()
        try:
            yield app
        finally:
            await app.shutdown()
            problems = [e.text for e in app.events.newest(50) if e.level == "error"]
            if problems:
                raise RuntimeError("; ".join(problems))


def agent_of(app: App) -> LearningAgent:
    """Give the agent that the load clients feed."""
    return app.agents[AGENT]


def learner_like(app: App) -> Learner:
    """Make a learner like the one of the load clients' agent, on the same replay."""
    agent = agent_of(app)
    return nursery.recipe(app.config, agent.spaces, sample_seed=1).make(agent.replay)


def contention(app: App, seconds: float, *, training: bool = True) -> dict[str, float]:
    """Give what frames, the event loop and the learner waited for in the last seconds."""
    agent = agent_of(app).view()
    replies = {"latency_p50_ms": agent.latency_p50_ms, "latency_p99_ms": agent.latency_p99_ms}
    learner = {f"{part}_share": share for part, share in agent.time_shares.items()}
    learner |= {
        "weights_age_s": agent.weights_age_s or 0.0,
        "weights_age_steps": agent.weights_age_steps,
    }
    found = app.probe.view(seconds) if app.probe else None
    known = {**replies, **(dataclasses.asdict(found) if found else {})}
    known = {name: value for name, value in known.items() if value is not None}
    return {**known, **(learner if training else {})}


def set_training(app: App, on: bool) -> None:
    """Switch training on or off."""
    agent = agent_of(app)
    agent.set_controls(dataclasses.replace(agent.controls, training=on))
