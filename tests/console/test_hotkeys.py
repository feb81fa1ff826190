"""The key table is complete, free of collisions, and the only source of what is shown."""

from __future__ import annotations

from server.console.hotkeys import HOTKEYS, command_for, markdown
from server.controls import Command


def test_every_command_has_exactly_one_key() -> None:
    assert sorted(hotkey.command.name for hotkey in HOTKEYS) == sorted(Command.__members__)


def test_keys_are_unique_single_characters_and_leave_digits_free() -> None:
    keys = [hotkey.key for hotkey in HOTKEYS]
    assert len(set(keys)) == len(keys)
    assert all(len(key) == 1 and key.isprintable() and not key.isdigit() for key in keys)


def test_texts_are_short_labels_and_whole_sentences() -> None:
    for hotkey in HOTKEYS:
        assert 1 <= len(hotkey.label.split()) <= 2
        assert hotkey.about[0].isupper() and hotkey.about.endswith(".")


def test_lookup() -> None:
    assert all(command_for(hotkey.key) is hotkey.command for hotkey in HOTKEYS)
    assert command_for("Q") is None
    assert command_for("") is None


def test_markdown_has_a_row_for_each_key() -> None:
    lines = markdown().splitlines()
    assert len(lines) == 2 + len(HOTKEYS)
    assert {line.count("|") for line in lines} == {4}
    assert all(f"| `{key.key}` |" in row for key, row in zip(HOTKEYS, lines[2:], strict=True))
