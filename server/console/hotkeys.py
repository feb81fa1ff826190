"""The table of key bindings, from which the footer, the help and the README are drawn."""

from __future__ import annotations

from dataclasses import dataclass

from server.controls import STEP, Command


@dataclass(frozen=True, slots=True)
class Hotkey:
    """One key and what it asks for."""

    key: str
    command: Command
    label: str  # one or two words; neighbours that share the first one share a place in the footer
    about: str  # one sentence


# The two rows of three lie one above the other, in the same place on QWERTY, QWERTZ and AZERTY:
# the left key lowers, the middle key goes back to natural, the right key raises.
HOTKEYS: tuple[Hotkey, ...] = (
    Hotkey("q", Command.QUIT, "quit", "Stop the server in good order."),
    Hotkey("s", Command.SAVE, "save", "Save a checkpoint now."),
    Hotkey("t", Command.TRAINING, "training", "Pause training, or go on with it."),
    Hotkey("g", Command.GREEDY, "greedy", "Let the network alone choose, or end that."),
    Hotkey("u", Command.EPSILON_DOWN, "epsilon down", f"Explore less: epsilon down by {STEP:g}."),
    Hotkey("i", Command.EPSILON_NATURAL, "epsilon natural", "Give epsilon back to its schedule."),
    Hotkey("o", Command.EPSILON_UP, "epsilon up", f"Explore more: epsilon up by {STEP:g}."),
    Hotkey("j", Command.EXPERT_DOWN, "expert down", f"Ask the expert less: down by {STEP:g}."),
    Hotkey("k", Command.EXPERT_NATURAL, "expert natural", "Give the expert back to its schedule."),
    Hotkey("l", Command.EXPERT_UP, "expert up", f"Ask the expert more: up by {STEP:g}."),
    Hotkey("?", Command.HELP, "help", "Show all keys, or hide them."),
)

_COMMANDS = {hotkey.key: hotkey.command for hotkey in HOTKEYS}


def command_for(key: str) -> Command | None:
    """Give the command bound to a key, or None."""
    return _COMMANDS.get(key)


def markdown() -> str:
    """Draw the table for the README."""
    rows = [f"| `{hotkey.key}` | {hotkey.label} | {hotkey.about} |" for hotkey in HOTKEYS]
    return "\n".join(["| Key | Name | What it does |", "|---|---|---|", *rows]) + "\n"
