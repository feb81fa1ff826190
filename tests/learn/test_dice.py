"""Dice: as many as are asked for, each used once, fair, and the same for the same seed."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from server.learn.dice import ROWS, Dice


@given(st.lists(st.integers(1, ROWS), min_size=1, max_size=20))
def test_no_row_is_taken_twice(counts: list[int]) -> None:
    dice, seen = Dice(1, (3,), 1), set()
    for count in counts:
        rows = dice.take(count)
        luck = dice.luck[rows, 0].tolist()
        assert len(luck) == count
        assert not seen.intersection(luck)
        seen.update(luck)


def test_they_are_fair() -> None:
    dice = Dice(2, (2, 5), 2)
    columns: dict[str, list[np.ndarray]] = {name: [] for name in ("luck", "choice", "place")}
    noise = []
    for _ in range(50):
        dice.take(ROWS)
        for name, column in columns.items():
            column.append(getattr(dice, name).copy())
        noise.append(dice.noise.copy())
    luck, choice, place = (np.concatenate(column) for column in columns.values())
    assert abs(luck.mean(axis=0) - 0.5).max() < 0.01
    assert abs(np.corrcoef(luck.T)[0, 1]) < 0.02  # exploring and being guided are not one
    for head, size in enumerate((2, 5)):
        shares = np.bincount(choice[:, head]) / len(choice)
        assert len(shares) == size and abs(shares - 1 / size).max() < 0.01
    assert -1 <= place.min() < -0.99 and 0.99 < place.max() < 1
    assert abs(np.concatenate(noise).std() - 1) < 0.01


def test_the_seed_decides() -> None:
    first, again, other = Dice(3, (4,), 1), Dice(3, (4,), 1), Dice(4, (4,), 1)
    for dice in (first, again, other):
        dice.take(5)
    assert first.luck.tolist() == again.luck.tolist() != other.luck.tolist()
    assert first.choice.tolist() == again.choice.tolist()


def test_nothing_to_choose_is_no_trouble() -> None:
    dice = Dice(1, (0,), 0)
    dice.take(7)
    assert dice.noise.shape == (ROWS, 0)
    assert set(dice.addresses()) == {
        *("luck", "explored_choice", "explored_place", "noise", "next_dice"),
    }
