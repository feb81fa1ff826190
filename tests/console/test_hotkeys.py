"""The key table is complete, free of collisions, and the only source of what is shown."""

from __future__ import annotations

from server import nursery
from server.console.hotkeys import HOTKEYS, find, markdown, places, symbol
from server.console.look import Glance, View
from server.controls import Command, Verb
from server.dials import find as find_dial
from server.dials import table


def test_every_verb_glance_and_view_has_a_key() -> None:
    does = [hotkey.does for hotkey in HOTKEYS]
    assert {done.verb for done in does if isinstance(done, Command)} == set(Verb)
    assert {done for done in does if isinstance(done, Glance)} == set(Glance)
    assert [done for done in does if isinstance(done, View)] == list(View)


def test_every_live_setting_has_a_key_and_every_key_a_live_setting() -> None:
    dials = table(nursery.bounds())
    named = {hotkey.does.name for hotkey in HOTKEYS if isinstance(hotkey.does, Command)} - {""}
    assert named == set(dials)
    for hotkey in HOTKEYS:
        if isinstance(hotkey.does, Command) and hotkey.does.verb in (Verb.DOWN, Verb.UP):
            dial = find_dial(dials, hotkey.does.name)
            assert dial.step or dial.factor


def test_keys_are_unique_and_views_are_numbered() -> None:
    keys = [hotkey.key for hotkey in HOTKEYS]
    assert len(set(keys)) == len(keys)
    assert all(key.isprintable() for key in keys)
    numbered = [hotkey for hotkey in HOTKEYS if isinstance(hotkey.does, View)]
    assert [hotkey.key for hotkey in numbered] == ["1", "2", "3", "4", "5", "6", "7"]


def test_what_cannot_be_taken_back_asks_first() -> None:
    assert [hotkey.key for hotkey in HOTKEYS if hotkey.ask] == ["D"]


def test_texts_are_short_labels_and_whole_sentences() -> None:
    for hotkey in HOTKEYS:
        assert 1 <= len(hotkey.label.split()) <= 2
        assert hotkey.about[0].isupper() and hotkey.about.endswith(".")


def test_lookup() -> None:
    for hotkey in HOTKEYS:
        for view in hotkey.views or tuple(View):
            assert find(hotkey.key, view) is hotkey
    assert find("enter", View.OVERVIEW) is None
    assert find("Q", View.OVERVIEW) is None
    assert find("", View.OVERVIEW) is None


def test_places_hold_every_key_once() -> None:
    assert [hotkey for place in places() for hotkey in place[2]] == list(HOTKEYS)
    shown = {kind: keys for keys, kind, _ in places()}
    assert shown["epsilon"] == "u/i/o" and shown["view"] == "1-7"


def test_markdown_has_a_row_for_each_key() -> None:
    lines = markdown().splitlines()
    assert len(lines) == 2 + len(HOTKEYS)
    assert {line.count("|") for line in lines} == {4}
    for key, row in zip(HOTKEYS, lines[2:], strict=True):
        assert row.startswith(f"| `{symbol(key.key)}` |")
