"""What an agent is made of where the settings leave it open."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import config
from server.agent import LearningAgent
from server.controls import Controls
from server.learn.checkpoint import CheckpointError
from server.learn.network import Weights
from server.learn.recipe import Recipe
from server.learn.replay import Layout, Replay
from server.nursery import make_agent, make_player, playing_device
from server.spaces import Actions, Discrete, Observation, Spaces
from server.stats import EventLog
from server.train.actor import Plan, TrainingActor
from server.train.courier import Correspondent, Courier, LostError
from server.train.thread import TrainingThread

ACTIONS = Actions((Discrete("stick", 3),), ())
VIEWS = {
    "ram": Observation("uint8", (128,)),
    "image": Observation("uint8", (84, 84, 1)),
    "tiny": Observation("uint8", (8, 8)),
}


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., tuple[LearningAgent, list[str]]]:
    def make(view: str, **settings: dict[str, Any]) -> tuple[LearningAgent, list[str]]:
        events = EventLog()
        agent, _ = make_agent(
            config.from_values({**settings, "trainer": {"training": False}}),
            tmp_path,
            view,
            "game",
            Spaces(VIEWS[view], ACTIONS, ("r",)),
            controls=Controls(training=False),
            events=events,
            schedule_call=lambda call: None,
            on_death=lambda name, error: None,
            on_fall=lambda text: None,
        )
        return agent, [event.text for event in events.newest(9)]

    return make


MEMORY = {"replay_storage": "memory"}


@pytest.mark.parametrize(
    ("view", "network", "stack", "trunk"),
    [
        ("ram", {}, 1, "small"),
        ("ram", {"frame_stack": 3, "trunk": "nature"}, 3, "small"),
        ("image", {}, 4, "small"),
        ("image", {"frame_stack": 1, "trunk": "nature"}, 1, "nature"),
        ("tiny", {}, 4, "small"),
    ],
)
def test_stack_and_trunk_follow_from_what_the_game_shows(
    made: Callable[..., tuple[LearningAgent, list[str]]],
    view: str,
    network: dict[str, Any],
    stack: int,
    trunk: str,
) -> None:
    agent, _ = made(view, network=network, replay=MEMORY)
    assert (agent.shape.frame_stack, agent.shape.trunk) == (stack, trunk)


def test_a_replay_of_images_is_cut_to_a_gigabyte_and_says_so(
    made: Callable[..., tuple[LearningAgent, list[str]]],
) -> None:
    agent, events = made("image", replay=MEMORY)
    assert 1e9 * 0.98 < agent.replay.layout.size_bytes() <= 1e9
    assert agent.replay.layout.capacity == 141_000
    assert events == [
        "agent image remembers 141,000 frames of 84x84x1 uint8 (1.0 GB); "
        "--replay-capacity 1000000 would take 7.1 GB"
    ]


def test_a_replay_of_vectors_is_a_million_and_what_was_asked_for_is_given(
    made: Callable[..., tuple[LearningAgent, list[str]]],
) -> None:
    agent, events = made("ram", replay=MEMORY)
    assert (agent.replay.layout.capacity, events) == (1_000_000, [])
    agent, events = made("image", replay={**MEMORY, "replay_capacity": 5000})
    assert (agent.replay.layout.capacity, events) == (5000, [])
    agent, _ = made("image", replay={**MEMORY, "min_replay": 90_000})
    assert agent.replay.layout.capacity == 180_000


def test_a_checkpoint_of_another_stack_or_trunk_is_refused(
    made: Callable[..., tuple[LearningAgent, list[str]]],
) -> None:
    agent, _ = made("image", replay=MEMORY)
    asyncio.run(agent.save())
    made("image", replay=MEMORY)
    with pytest.raises(
        CheckpointError, match=r"frame_stack = 4.*use --frame-stack 4 --trunk small"
    ):
        made("image", replay=MEMORY, network={"frame_stack": 2, "trunk": "nature"})


def away(rank: int) -> Correspondent:
    raise LostError("nobody is there")


def test_a_gateways_ring_keeps_its_size_and_frames_with_another_number_of_gateways(
    tmp_path: Path,
) -> None:
    def ring(gateways: int) -> Replay:
        agent = make_player(
            config.from_values(
                {
                    "cluster": {"cluster": "auto", "gateways": gateways},
                    "replay": {"replay_capacity": 20_000},
                }
            ),
            tmp_path,
            "ram",
            "game",
            Spaces(VIEWS["ram"], ACTIONS, ("r",)),
            number=0,
            controls=Controls(training=False),
            events=EventLog(),
            schedule_call=lambda call: None,
            home=home,
            on_episode=lambda client, total, guided: None,
        )
        assert not hasattr(agent, "save")  # it has no learner whose state could be kept
        return agent.replay

    def home(replay: Replay, weights: Weights) -> Courier:
        return Courier(
            name="ram",
            stream="ring",
            replay=replay,
            weights=weights,
            reach=away,
            on_weights=lambda new: None,
            tell=lambda text: None,
        )

    first = ring(2)
    assert first.layout.capacity == 10_000
    first.append_one(bytes(128), [0], [], 0.0, 0, 0, 1, -1)
    for gateways in (4, 1):
        assert (ring(gateways).layout.capacity, ring(gateways).head) == (10_000, 1)


def test_on_a_cluster_only_the_learners_actor_needs_the_device(tmp_path: Path) -> None:
    asked = config.from_values(
        {
            "cluster": {"cluster": "auto"},
            "network": {"device": "cuda"},
            "replay": {"replay_capacity": 10_000, "min_replay": 100, **MEMORY},
        }
    )
    spaces = Spaces(VIEWS["image"], ACTIONS, ("r",))
    plans: list[Plan] = []

    def actor(recipe: Recipe, layout: Layout, replay: Replay) -> TrainingActor:
        plans.append(Plan("image", recipe, layout, 100, 0.0, 10.0))
        return TrainingActor(
            plan=plans[0],
            replay=replay,
            controls=Controls(),
            find=lambda plan: None,
            hire=lambda plan, state: pytest.fail("nothing is started"),
            newest_state=lambda: None,
            flush=lambda: None,
            on_death=lambda error: None,
            on_fall=lambda text: None,
        )

    steering, _ = make_agent(
        asked,
        tmp_path,
        "image",
        "game",
        spaces,
        controls=Controls(),
        events=EventLog(),
        schedule_call=lambda call: None,
        on_death=lambda name, error: None,
        on_fall=lambda text: None,
        in_actor=actor,
    )
    player = make_player(
        asked,
        tmp_path,
        "image",
        "game",
        spaces,
        number=0,
        controls=Controls(),
        events=EventLog(),
        schedule_call=lambda call: None,
        home=lambda replay, weights: TrainingThread(
            name="image",
            learner=plans[0].recipe.on_processor().make(replay),
            replay=replay,
            min_replay=100,
            max_replay_ratio=0.0,
            controls=Controls(),
            on_death=lambda error: None,
        ),
        on_episode=lambda client, total, guided: None,
    )
    assert plans[0].recipe.device == "cuda"
    # The network is the one of the device that trains it, wherever it plays.
    assert plans[0].recipe.shape.trunk == steering.shape.trunk == player.shape.trunk == "nature"
    assert playing_device(asked) == "cpu"
    assert playing_device(config.from_values({"network": {"device": "cuda"}})) == "cuda"
