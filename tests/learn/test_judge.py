"""A traced loss is the loss: the same numbers and gradients, whatever the network and the batch."""

from __future__ import annotations

import threading
from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor

from server.learn import judge as judges
from server.learn.judge import Judge
from server.learn.loss import Batch, Loss
from server.learn.network import HybridNetwork, Shape
from server.spaces import Actions, Continuous, Discrete, Observation, Spaces

STICK, PADDLE = Discrete("stick", 3), Continuous("paddle", 0.0, 1.0)
SPACES = {
    "features": Spaces(Observation("float32", (5,)), Actions((STICK,), ()), ("r",)),
    "ram": Spaces(Observation("uint8", (12,)), Actions((STICK, Discrete("fire", 2)), ()), ("r",)),
    "paddle": Spaces(Observation("float32", (4,)), Actions((), (PADDLE,)), ("r",)),
    "hybrid": Spaces(Observation("float32", (4,)), Actions((STICK,), (PADDLE,)), ("r",)),
}
SHAPES = {
    "plain": Shape((8, 8)),
    "dueling": Shape((8,), dueling=True),
    "quantile": Shape((8,), distribution="quantile", atoms=5),
    "categorical": Shape((8,), dueling=True, distribution="categorical", atoms=11),
    "layer norm": Shape((8,), layer_norm=True),
    "factored": Shape((8,), bins=7, dueling=True),
    "stacked": Shape((8,), frame_stack=3),
}


def networks(spaces: Spaces, shape: Shape) -> tuple[HybridNetwork, HybridNetwork]:
    torch.manual_seed(1)
    online, target = HybridNetwork(spaces, shape), HybridNetwork(spaces, shape)
    target.requires_grad_(False)
    return online, target


def batch(spaces: Spaces, shape: Shape, rows: int, seed: int, weighted: bool = False) -> Batch:
    dice = np.random.default_rng(seed)

    def seen() -> Tensor:
        size = (rows, spaces.observation.values * shape.frame_stack)
        if spaces.observation.dtype == "uint8":
            return torch.from_numpy(dice.integers(0, 256, size).astype(np.uint8))
        return torch.from_numpy(dice.normal(size=size).astype(np.float32))

    heads = shape.branches(spaces)
    controls = (rows, len(spaces.actions.continuous))
    return Batch(
        seen(),
        torch.from_numpy(np.stack([dice.integers(0, size, rows) for size in heads], 1)),
        torch.from_numpy(dice.uniform(-1, 1, controls).astype(np.float32)),
        torch.from_numpy(dice.normal(size=rows).astype(np.float32)),
        torch.from_numpy(dice.choice([0.0, 0.97], rows).astype(np.float32)),
        seen(),
        torch.from_numpy(dice.random(rows) < 0.3),
        torch.from_numpy(dice.random(rows).astype(np.float32)) if weighted else None,
    )


def gradients(judge: Judge, online: HybridNetwork, rows: Batch, cloning: float = 0.0):
    online.zero_grad()
    loss = judge(rows, cloning)
    loss.total.backward()
    return loss, [parameter.grad.clone() for parameter in online.parameters()]


def same(one: tuple[Loss, list[Tensor]], other: tuple[Loss, list[Tensor]]) -> bool:
    pairs = [*zip(one[0], other[0], strict=True), *zip(one[1], other[1], strict=True)]
    return all(torch.equal(a, b) for a, b in pairs)


CASES = [
    (kind, shape, munchausen, weighted)
    for kind, shape, munchausen, weighted in product(SPACES, SHAPES, [0.0, 0.9], [False, True])
    if not (munchausen and shape == "categorical")  # these two are refused together
]


@pytest.mark.parametrize(("kind", "shape", "munchausen", "weighted"), CASES)
def test_a_traced_loss_is_the_loss(
    kind: str, shape: str, munchausen: float, weighted: bool
) -> None:
    spaces, form = SPACES[kind], SHAPES[shape]
    online, target = networks(spaces, form)
    plain = Judge(online, target, munchausen=munchausen, continuous_weight=0.5, traced=False)
    traced = Judge(online, target, munchausen=munchausen, continuous_weight=0.5)
    for seed, rows in enumerate((6, 6, 33, 1)):  # traced with some of the first, good for all
        given = batch(spaces, form, rows, seed, weighted)
        assert same(gradients(plain, online, given), gradients(traced, online, given))
        with torch.no_grad():  # as steps do, in place
            for parameter in (*online.parameters(), *target.parameters()):
                parameter.add_(0.01 * torch.randn_like(parameter))
    assert len(traced._traces) == 1


def test_what_changes_from_step_to_step_is_not_traced() -> None:
    spaces, form = SPACES["features"], SHAPES["plain"]
    online, target = networks(spaces, form)
    plain, traced = Judge(online, target, traced=False), Judge(online, target)
    given = batch(spaces, form, 40, 1)
    losses = []
    for cloning in (1.0, 0.5, 0.0):
        found = gradients(traced, online, given, cloning)
        assert same(gradients(plain, online, given, cloning), found)
        losses.append(found[0].total.item())
    assert len(set(losses)) == 3


def test_noisy_layers_and_images_are_judged_call_by_call() -> None:
    noisy = Shape((8,), noisy=True)
    image = Spaces(Observation("uint8", (36, 36, 1)), Actions((STICK,), ()), ("r",))
    for spaces, shape in (SPACES["features"], noisy), (image, Shape((8,), trunk="small")):
        online, target = networks(spaces, shape)
        judge = Judge(online, target)
        assert torch.isfinite(judge(batch(spaces, shape, 4, 1)).total)
        assert not judge._traces


def test_many_may_trace_at_once() -> None:
    spaces, form = SPACES["features"], SHAPES["dueling"]
    found: list[bool] = []

    pairs = [networks(spaces, form) for _ in range(6)]
    given = batch(spaces, form, 8, 1)

    def judge(pair: tuple[HybridNetwork, HybridNetwork]) -> None:
        plain = gradients(Judge(*pair, traced=False), pair[0], given)
        found.append(same(plain, gradients(Judge(*pair), pair[0], given)))

    threads = [threading.Thread(target=judge, args=(pair,)) for pair in pairs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == [True] * 6


def test_another_thread_gets_the_same() -> None:
    spaces, form = SPACES["features"], SHAPES["dueling"]
    online, target = networks(spaces, form)
    judge, given = Judge(online, target), batch(spaces, form, 8, 1)
    here = gradients(judge, online, given)
    found: list[bool] = []
    thread = threading.Thread(
        target=lambda: found.extend(same(here, gradients(judge, online, given)) for _ in range(4))
    )
    thread.start()
    thread.join(60)
    assert found == [True] * 4


def test_where_nothing_can_be_traced_it_is_judged_call_by_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spaces, form = SPACES["features"], SHAPES["plain"]
    online, target = networks(spaces, form)
    given = batch(spaces, form, 8, 1)
    plain = gradients(Judge(online, target, traced=False), online, given)

    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("not with this Python")

    monkeypatch.setattr(torch.jit, "trace", refuse)
    judge = Judge(online, target)
    for _ in range(2):
        assert same(plain, gradients(judge, online, given))
    assert not judge._traces


def test_offsets_are_where_heads_start() -> None:
    assert judges.offsets(HybridNetwork(SPACES["ram"], SHAPES["plain"])).tolist() == [0, 3]
