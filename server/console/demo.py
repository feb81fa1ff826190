"""A made-up run, for looking at the dashboard without training anything."""

from __future__ import annotations

import math
import time

from server.controls import Controls
from server.stats import (
    AgentView,
    ClientView,
    ClusterView,
    Contention,
    Event,
    GatewayView,
    Governed,
    LearnerView,
    NodeView,
    ReturnWindow,
    Score,
    Snapshot,
)

_HINTS = (
    "python -m client_py.atari --game pong",
    "mame pacman -autoboot_script client_lua/mame.lua",
)
_MIN_REPLAY = 20_000
_CAPACITY = 1_000_000


def snapshot(elapsed_s: float = 5_025.0, *, clients: int = 4, agents: int = 1) -> Snapshot:
    """Make up the state of a server after some time."""
    names = ("pong", "breakout", "pacman", "galaga")
    return Snapshot(
        time_s=time.time(),
        run="pong-2",
        address="127.0.0.1:7777",
        uptime_s=elapsed_s,
        controls=Controls(epsilon=0.15),
        clients=tuple(_client(number, elapsed_s) for number in range(clients)),
        agents=tuple(
            _agent(names[number % len(names)], elapsed_s, 1.0 / (number + 1))
            for number in range(agents)
        ),
        events=_events(time.time()),
        last_save_s=elapsed_s % 300,
        changed_s=(time.time() - 3,),
        connect_hints=_HINTS,
        contention=Contention(0.1, 1.2, 4.6, 0.21, 0.03, 0.4),
        governed=Governed("8 ms p99", "holding", 0.85),
        cluster=_cluster(elapsed_s),
    )


def _cluster(elapsed_s: float) -> ClusterView:
    gateways = tuple(
        GatewayView(
            number=number,
            node=f"10.0.0.{5 + number}",
            state="up",
            address=f"10.0.0.{5 + number}:7777",
            clients=2,
            frames=int(490 * elapsed_s),
            frames_per_s=490.0,
            latency_p50_ms=0.8,
            latency_p99_ms=2.4,
            weights_age_s=elapsed_s % 10,
            backlog=12,
            shipped_bytes_per_s=78_000.0,
            shipped=int(490 * elapsed_s) - 12,
            lost=0,
        )
        for number in range(2)
    )
    nodes = tuple(NodeView(g.node, 16.0, 1.0, 1, 2, 490.0, 1) for g in gateways)
    learners = tuple(LearnerView("pong", g.number, g.node, g.frames, 0.5) for g in gateways)
    return ClusterView(nodes, gateways, learners)


def _agent(name: str, elapsed_s: float, pace: float) -> AgentView:
    frames = int(980 * pace * elapsed_s)
    training = frames >= _MIN_REPLAY
    wave = math.sin(elapsed_s / 3)
    returns = tuple(_return(episode) for episode in range(200))
    return AgentView(
        name=name,
        spaces="uint8[128] → 6 actions",
        state="training" if training else "waiting for frames",
        frames=frames,
        frames_per_s=(1_003 + 20 * wave) * pace,
        steps=int(81 * pace * elapsed_s) if training else 0,
        steps_per_s=81.3 + 2 * wave if training else 0.0,
        samples=int(20 * pace * elapsed_s) if training else 0,
        samples_per_s=20.3 + 0.5 * wave if training else 0.0,
        skipped_steps=0,
        loss=0.0123 + 0.001 * wave if training else None,
        gradient_norm=1.32 + 0.1 * wave if training else None,
        q_min=-1.42 if training else None,
        q_mean=0.317 + 0.02 * wave if training else None,
        q_max=2.106 if training else None,
        learning_rate=2.5e-4,
        epsilon=0.15,
        epsilon_natural=False,
        expert_ratio=0.1,
        expert_natural=True,
        replay_size=min(frames, _CAPACITY),
        replay_capacity=_CAPACITY,
        min_replay=_MIN_REPLAY,
        replay_ratio=20.7 if training else 0.0,
        batch_mean=3.4,
        latency_p50_ms=0.8,
        latency_p99_ms=2.1 + 0.2 * wave,
        weights_age_s=elapsed_s % 10,
        weights_age_steps=int(81 * (elapsed_s % 10)) if training else 0,
        weights_version=int(elapsed_s / 10),
        time_shares={
            "sample": 0.06,
            "forward": 0.53,
            "backward": 0.36,
            "optimise": 0.04,
            "sync": 0.01,
            "wait": 0.0,
        },
        episodes=842,
        return_last=returns[-1],
        return_mean=sum(returns[-100:]) / 100,
        return_best=sum(returns[-100:]) / 100,
        returns=returns,
        return_windows=(
            ReturnWindow(100_000, 24, 15.2, 31.5),
            ReturnWindow(1_000_000, 231, 12.7, 8.4),
            ReturnWindow(5_000_000, 842, 3.1, 6.2),
        ),
        history=_history(elapsed_s) if training else {},
        evaluation=_score(16.8, 19_400),
        evaluation_best=_score(17.2, 15_800),
    )


def _score(mean: float, steps: int) -> Score:
    return Score(
        episodes=5,
        mean=mean,
        median=mean,
        low_quartile=mean - 1,
        high_quartile=mean + 1,
        lowest=mean - 3,
        highest=mean + 2,
        distinct=4,
        frames=steps * 12,
        steps=steps,
    )


def _history(elapsed_s: float) -> dict[str, tuple[float, ...]]:
    points = range(80)
    ages = tuple(elapsed_s * (1 - point / 80) ** 3 for point in points)
    waves = [math.sin(point / 5) for point in points]
    return {
        "age_s": ages,
        "frames_per_s": tuple(900 + point + 60 * wave for point, wave in enumerate(waves)),
        "steps_per_s": tuple(70 + 8 * wave for wave in waves),
        "replay_ratio": tuple(20 + wave for wave in waves),
        "loss": tuple(0.05 / (1 + point / 10) + 0.002 * wave for point, wave in enumerate(waves)),
        "gradient_norm": tuple(1.3 + 0.4 * wave for wave in waves),
        "q_mean": tuple(point / 240 + 0.05 * wave for point, wave in enumerate(waves)),
        "learning_rate": tuple(2.5e-4 for _ in points),
        "epsilon": tuple(max(0.02, 1 - point / 60) for point in points),
        "latency_p50_ms": tuple(0.8 + 0.1 * wave for wave in waves),
        "latency_p99_ms": tuple(2.1 + 0.6 * wave for wave in waves),
        "return_mean": tuple(-20 + point / 2.4 + wave for point, wave in enumerate(waves)),
    }


def _return(episode: int) -> float:
    climb = 38 / (1 + math.exp(-(episode - 100) / 30))
    return round(-20 + climb + 3 * math.sin(episode * 1.7) * math.cos(episode * 0.3))


def _client(number: int, elapsed_s: float) -> ClientView:
    return ClientView(
        name=f"ale-{number + 1}",
        agent="pong",
        game="pong",
        address=f"127.0.0.1:{51_842 + 2 * number}",
        frames=int(250 * elapsed_s),
        frames_per_s=250.7 + 3 * math.sin(elapsed_s + number),
        episodes=210 + number,
        episode_return=float(number * 3 % 7 - 4),
        last_return=float(number * 5 % 11 + 3),
        policy_share=0.76,
        expert_share=0.1,
        latency_ms=0.6 + 0.3 * number,
        seen_s=0.0 if number != 2 else elapsed_s % 12,
        info={"score": 12 + number, "lives": 3},
    )


def _events(now_s: float) -> tuple[Event, ...]:
    return (
        Event(now_s - 840, "info", "listening on 127.0.0.1:7777"),
        Event(now_s - 830, "info", "resumed run pong-2 at step 402,118"),
        Event(now_s - 815, "info", "client ale-1 connected: pong, uint8[128] → 6 actions"),
        Event(now_s - 800, "info", "client ale-2 connected: pong, uint8[128] → 6 actions"),
        Event(now_s - 190, "warning", "client ale-3 silent for 5 s"),
        Event(now_s - 130, "error", "client ale-3: frame 812 refused, observation is not finite"),
        Event(now_s - 12, "info", "saved runs/pong-2/checkpoint-406000"),
    )
