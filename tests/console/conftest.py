"""Snapshots for the console's tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from server.controls import Controls
from server.stats import AgentView, ClientView, Event, ReturnWindow, Score, Snapshot

AGENT = AgentView(
    name="pong",
    spaces="uint8[128] -> 6 actions",
    state="training",
    frames=123_456,
    frames_per_s=1_003.4,
    steps=4_321,
    steps_per_s=81.2,
    samples=1_080,
    samples_per_s=20.3,
    skipped_steps=7,
    loss=0.01234,
    gradient_norm=1.321,
    q_min=-1.25,
    q_mean=0.3141,
    q_max=2.125,
    learning_rate=2.5e-4,
    epsilon=0.42,
    epsilon_natural=False,
    expert_ratio=0.11,
    expert_natural=True,
    replay_size=123_456,
    replay_capacity=1_000_000,
    min_replay=20_000,
    replay_ratio=20.7,
    batch_mean=3.4,
    latency_p50_ms=0.8,
    latency_p99_ms=2.1,
    weights_age_s=3.2,
    weights_version=412,
    episodes=42,
    return_last=-15.0,
    return_mean=-18.3,
    return_best=-17.9,
    returns=tuple(float(value % 9) for value in range(42)),
    return_windows=(
        ReturnWindow(100_000, 30, -18.3, 152.4),
        ReturnWindow(1_000_000, 42, -19.6, -2.5),
        ReturnWindow(5_000_000, 42, -19.6, -2.5),
    ),
    evaluation=Score(4, -17.5, -17.5, -18.0, -17.0, -19.0, -16.0, 4, 90_000, 3_000),
    evaluation_best=Score(4, -16.0, -16.0, -17.0, -15.0, -18.0, -14.0, 4, 60_000, 2_000),
    evaluations=2,
    evaluating=1,
    evaluating_of=4,
)

CLIENT = ClientView(
    name="ale-1",
    agent="pong",
    game="pong",
    address="127.0.0.1:50001",
    frames=61_728,
    frames_per_s=501.0,
    episodes=21,
    episode_return=-3.0,
    last_return=-16.0,
    policy_share=0.47,
    expert_share=0.12,
    seen_s=0.1,
    latency_ms=0.7,
    info={"score": 3},
)

SNAPSHOT = Snapshot(
    time_s=1_700_000_000.0,
    run="run-1",
    address="127.0.0.1:7777",
    uptime_s=85.0,
    controls=Controls(),
    clients=(CLIENT, replace(CLIENT, name="ale-2", last_return=None)),
    agents=(AGENT,),
    events=(
        Event(1_700_000_000.0, "info", "listening"),
        Event(1_700_000_001.0, "warning", "a client is slow"),
        Event(1_700_000_002.0, "error", "a frame was refused"),
    ),
    last_save_s=12.0,
    connect_hints=("python -m client_py.atari --game pong", "mame pacman -autoboot_script x.lua"),
)


@pytest.fixture
def make_snapshot() -> Callable[..., Snapshot]:
    """Give the usual snapshot with some fields changed."""

    def make(**changes: Any) -> Snapshot:
        return replace(SNAPSHOT, **changes)

    return make


@pytest.fixture
def agent() -> AgentView:
    """Give the usual agent."""
    return AGENT


@pytest.fixture
def client() -> ClientView:
    """Give the usual client."""
    return CLIENT
