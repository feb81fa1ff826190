"""A learner as gateways reach it: whatever goes wrong in Ray, it is lost for now and no more."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
import pytest
import ray
from ray.exceptions import ObjectStoreFullError, OutOfDiskError, RayError, RpcError

from server.cluster.fabric import Actor, Fabric
from server.cluster.hand import LearnerPost
from server.learn.intake import pack
from server.learn.replay import Layout, Replay
from server.train.courier import LostError

LAYOUT = Layout(capacity=4096, observation="float32", values=2, heads=1, controls=0)


class Handle:
    """An actor of which every call fails before it is on its way."""

    def __getattr__(self, name: str) -> Handle:
        return self

    def options(self, **how: str) -> Handle:
        return self

    def remote(self, *arguments: Any) -> NoReturn:
        raise OutOfDiskError("")


def raising(error: RayError) -> Any:
    def fail(*arguments: Any, **options: Any) -> NoReturn:
        raise error

    return fail


def test_whatever_ray_cannot_do_is_a_learner_that_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    post = LearnerPost(Actor(Handle()))
    replay = Replay.in_memory(LAYOUT)
    replay.append_one(np.zeros(2, np.float32).tobytes(), [0], [], 0.0, 0, 0, 1, -1)
    shipment = pack(replay, 0, 1)
    assert shipment is not None
    with pytest.raises(LostError, match="object store is full"):
        post.hear("ring", 0)
    with pytest.raises(LostError, match="object store is full"):
        post.weights()
    monkeypatch.setattr(ray, "put", raising(ObjectStoreFullError("")))
    with pytest.raises(LostError, match="object store is full"):
        post.take("ring", "life", shipment)
    monkeypatch.setattr(ray, "get_actor", raising(RpcError("the head is away")))
    with pytest.raises(LostError, match="the head is away"):
        LearnerPost.reach(Fabric("space"), "learner-0-game")
