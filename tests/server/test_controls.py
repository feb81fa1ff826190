"""Commands and the controls they lead to."""

from __future__ import annotations

import pytest

from server.controls import Command, Controls, apply, describe_change


def after(*commands: Command, epsilon: float = 0.5, expert: float = 0.98) -> Controls:
    controls = Controls()
    for command in commands:
        controls = apply(
            controls,
            command,
            epsilon=controls.epsilon if controls.epsilon is not None else epsilon,
            expert_ratio=controls.expert_ratio if controls.expert_ratio is not None else expert,
        )
    return controls


def test_steps_start_from_what_is_in_force_and_stay_a_share() -> None:
    assert after(Command.EPSILON_UP).epsilon == pytest.approx(0.55)
    assert after(Command.EPSILON_DOWN, Command.EPSILON_DOWN).epsilon == pytest.approx(0.4)
    assert after(Command.EXPERT_UP).expert_ratio == 1.0
    assert after(*[Command.EPSILON_DOWN] * 20).epsilon == 0.0


def test_natural_gives_the_schedule_back() -> None:
    assert after(Command.EPSILON_UP, Command.EPSILON_NATURAL) == Controls()
    assert after(Command.EXPERT_DOWN, Command.EXPERT_NATURAL) == Controls()


def test_switches() -> None:
    assert after(Command.TRAINING).training is False
    assert after(Command.TRAINING, Command.TRAINING) == Controls()
    assert after(Command.GREEDY).greedy is True


def test_commands_of_others_change_nothing() -> None:
    assert after(Command.QUIT, Command.SAVE, Command.HELP) == Controls()


def test_a_change_in_words() -> None:
    assert describe_change(Controls(), after(Command.EPSILON_UP)) == "epsilon natural → 0.55"
    assert describe_change(Controls(), after(Command.TRAINING)) == "training on → off"
    assert describe_change(Controls(), Controls()) == "nothing changed"
