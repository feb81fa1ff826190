"""The tree of sums against a plain list."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.learn.tree import FAN, SumTree

WEIGHTS = st.floats(0, 1e6, allow_subnormal=False)


@st.composite
def changes(draw: st.DrawFn) -> tuple[int, list[tuple[int, int, float]]]:
    size = draw(st.integers(1, 3 * FAN * FAN))
    places = st.integers(0, size - 1)
    return size, draw(st.lists(st.tuples(places, places, WEIGHTS), min_size=1, max_size=30))


@given(changes(), st.integers(0, 2**32))
def test_it_is_a_list_that_knows_its_sums(
    given_changes: tuple[int, list[tuple[int, int, float]]], seed: int
) -> None:
    size, work = given_changes
    tree, plain = SumTree(size), np.zeros(size)
    for number, (first, last, weight) in enumerate(work):
        if number % 2:
            tree.fill(min(first, last), max(first, last), weight)
            plain[min(first, last) : max(first, last)] = weight
        else:
            tree.set(np.array([first, last]), np.array([weight / 2, weight]))
            plain[first], plain[last] = weight / 2, weight
        tree.check_valid()
    assert np.array_equal(tree.get(np.arange(size)), plain)
    assert tree.total == pytest.approx(plain.sum())
    if plain.any():
        mass = np.random.default_rng(seed).random(64) * tree.total
        found = tree.find(mass)
        assert (plain[found] > 0).all()
        running = np.cumsum(plain)
        slack = 1e-9 * tree.total
        assert (running[found] >= mass - slack).all()
        assert (running[found] - plain[found] <= mass + slack).all()


def test_the_ends_of_the_mass_are_found_too() -> None:
    tree = SumTree(5)
    tree.set(np.array([1, 3]), np.array([2.0, 6.0]))
    assert tree.find(np.array([0.0, 1.9, 2.0, 7.9, 8.0])).tolist() == [1, 1, 3, 3, 3]


def test_places_are_drawn_in_proportion_to_their_weights() -> None:
    weights = np.array([0.0, 1.0, 2.0, 3.0, 4.0] * 20)
    tree = SumTree(100)
    tree.set(np.arange(100), weights)
    found = tree.find(np.random.default_rng(0).random(200_000) * tree.total)
    share = np.bincount(found, minlength=100) / len(found)
    assert share == pytest.approx(weights / weights.sum(), abs=0.0015)


def test_nothing_to_change_changes_nothing() -> None:
    tree = SumTree(40)
    tree.set(np.zeros(0, np.int64), 1.0)
    tree.fill(7, 7, 1.0)
    assert tree.total == 0.0
