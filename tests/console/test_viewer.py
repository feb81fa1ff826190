"""Keys and what they lead to: other looks, questions, commands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from server.console.look import Look, View
from server.console.viewer import press
from server.controls import Command, Verb
from server.stats import ClientView, DialView, Snapshot

Make = Callable[..., Snapshot]
DIAL = DialView("epsilon", "0.5", "", "0.5", "its schedule", "share", "0 to 1 share", "Random.")


@pytest.fixture
def snapshot(make_snapshot: Make) -> Snapshot:
    return make_snapshot(dials=(DIAL, replace(DIAL, name="n_step")))


def after(snapshot: Snapshot, *keys: str, look: Look = Look()) -> tuple[Look, list[Command]]:  # noqa: B008
    commands = []
    for key in keys:
        look, command = press(look, key, snapshot)
        commands += [command] if command else []
    return look, commands


def test_a_key_gives_its_command_and_leaves_the_look(snapshot: Snapshot) -> None:
    look, commands = after(snapshot, "u", "t", "§")
    assert commands == [Command(Verb.DOWN, "epsilon"), Command(Verb.SWITCH, "training")]
    assert look == Look()


def test_numbers_choose_the_view_and_escape_leads_back(snapshot: Snapshot) -> None:
    for number, view in enumerate(View, start=1):
        assert after(snapshot, str(number)) == (Look(view=view), [])
    assert after(snapshot, "5", "c", "escape")[0] == Look(cleared_s=snapshot.time_s)
    assert after(snapshot, "2", "?", "escape")[0] == Look(view=View.CLIENTS)


def test_flushing_asks_first(snapshot: Snapshot) -> None:
    look, commands = after(snapshot, "D")
    assert look.prompt is not None and "Forget every frame" in look.prompt.question
    assert not commands
    assert after(snapshot, "D", "y") == (Look(), [Command(Verb.FLUSH)])
    for key in ("n", "escape", "enter", "q"):
        assert after(snapshot, "D", key) == (Look(), [])


def test_a_live_setting_is_typed(snapshot: Snapshot) -> None:
    typed = after(snapshot, "6", "down", "enter", *"5x", "backspace", "enter")
    assert typed == (Look(view=View.SETTINGS, row=1), [Command(Verb.SET, "n_step", "5")])
    assert after(snapshot, "6", "enter", *"natural", "enter")[1] == [
        Command(Verb.SET, "epsilon", "natural")
    ]
    assert after(snapshot, "6", "enter", *"0.05 over 1M", "enter")[1] == [
        Command(Verb.SET, "epsilon", "0.05", 1_000_000)
    ]
    assert after(snapshot, "6", "enter", *"0.05 over soon", "enter")[1] == [
        Command(Verb.SET, "epsilon", "0.05 over soon")
    ]
    assert after(snapshot, "6", "enter", *"qqq", "escape")[1] == []
    assert after(snapshot, "6", "enter", "enter")[1] == []


def test_a_client_setting_is_typed(snapshot: Snapshot) -> None:
    assert after(snapshot, "C", *"start_level = 9", "enter")[1] == [
        Command(Verb.SET, "client.start_level", "9")
    ]


def test_scrolling_stays_within_the_rows(make_snapshot: Make, client: ClientView) -> None:
    snapshot = make_snapshot(clients=(client,) * 25)
    assert after(snapshot, "2", "up")[0].row == 0
    assert after(snapshot, "2", "down", "pagedown")[0].row == 11
    assert after(snapshot, "2", *["pagedown"] * 5, "up")[0].row == 23
    assert after(snapshot, "2", "down", "5")[0].row == 0
    assert after(snapshot, "down")[0].row == 0  # nothing to scroll in the overview


def test_sorting(snapshot: Snapshot) -> None:
    assert after(snapshot, "2", ">", ">", "/")[0] == Look(View.CLIENTS, sort=2, reverse=True)
    assert after(snapshot, "2", ">", "<")[0].sort == 0
