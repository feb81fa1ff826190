"""The table of key bindings, from which the footer, the help and the README are drawn."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import groupby

from server.console.look import Glance, View
from server.controls import Command, Verb
from server.dials import NATURAL


@dataclass(frozen=True, slots=True)
class Hotkey:
    """One key and what it asks for."""

    key: str
    does: Command | Glance | View
    label: str  # one or two words; neighbours that share the first one share a place
    about: str  # one sentence
    ask: str = ""  # a question that must be answered with yes first
    views: tuple[View, ...] = ()  # where it works; empty: everywhere


def _set(key: str, name: str, value: str, label: str, about: str) -> Hotkey:
    return Hotkey(key, Command(Verb.SET, name, value), label, about)


def _down(key: str, name: str, label: str, about: str) -> Hotkey:
    return Hotkey(key, Command(Verb.DOWN, name), label, about)


def _up(key: str, name: str, label: str, about: str) -> Hotkey:
    return Hotkey(key, Command(Verb.UP, name), label, about)


def _switch(key: str, name: str, label: str, about: str) -> Hotkey:
    return Hotkey(key, Command(Verb.SWITCH, name), label, about)


_SCROLLED = (View.CLIENTS, View.EVENTS, View.SETTINGS, View.CLUSTER)

# Where three keys lie side by side, the left one lowers, the middle one goes back to natural and
# the right one raises. Where a letter and its capital are a pair, the capital raises.
HOTKEYS: tuple[Hotkey, ...] = (
    Hotkey("q", Command(Verb.STOP), "quit", "Stop the server in good order; attached, leave it."),
    Hotkey("1", View.OVERVIEW, "view overview", "Show everything at a glance."),
    Hotkey("2", View.CLIENTS, "view clients", "Show the clients, one row each."),
    Hotkey("3", View.LEARNING, "view learning", "Show how learning went, with its history."),
    Hotkey("4", View.LATENCY, "view latency", "Show how fast frames are answered, and why."),
    Hotkey("5", View.EVENTS, "view events", "Show all that happened."),
    Hotkey("6", View.SETTINGS, "view settings", "Show and edit the live settings."),
    Hotkey("7", View.CLUSTER, "view cluster", "Show the nodes and gateways of a cluster."),
    Hotkey("s", Command(Verb.SAVE), "save", "Save a checkpoint now."),
    _switch("t", "training", "training", "Pause training, or go on with it."),
    Hotkey("z", Command(Verb.UNDO), "undo", "Take the newest change of a live setting back."),
    _switch("g", "greedy", "greedy", "Let the network alone choose, or end that."),
    _switch("x", "expert", "override", "Let the expert choose wherever it can, or end that."),
    _switch("p", "exploring", "exploring", "Pause all exploration, or go on with it."),
    _down("u", "epsilon", "epsilon down", "Explore less: epsilon down by 0.05."),
    _set("i", "epsilon", NATURAL, "epsilon natural", "Give epsilon back to its schedule."),
    _up("o", "epsilon", "epsilon up", "Explore more: epsilon up by 0.05."),
    _down("j", "expert_ratio", "expert down", "Ask the expert less: down by 0.05."),
    _set("k", "expert_ratio", NATURAL, "expert natural", "Give the expert back to its schedule."),
    _up("l", "expert_ratio", "expert up", "Ask the expert more: up by 0.05."),
    _down("b", "learning_rate", "rate halve", "Halve the learning rate."),
    _set("n", "learning_rate", NATURAL, "rate natural", "Give it back to its schedule."),
    _up("m", "learning_rate", "rate double", "Double the learning rate."),
    _down("a", "steps_per_sample", "steps less", "Take one gradient step less per sample."),
    _up("A", "steps_per_sample", "steps more", "Take one gradient step more per sample."),
    _down("r", "max_replay_ratio", "ratio less", "Halve the limit of the replay ratio."),
    _up("R", "max_replay_ratio", "ratio more", "Double that limit; above 64 there is none."),
    _down("f", "n_step", "n-step less", "Take one frame less of real reward."),
    _up("F", "n_step", "n-step more", "Take one frame more of real reward."),
    _down("h", "heartbeat_s", "heartbeat less", "Copy weights into play twice as often."),
    _up("H", "heartbeat_s", "heartbeat more", "Copy weights into play half as often."),
    Hotkey("w", Command(Verb.SYNC), "weights", "Copy the trained weights into play now."),
    Hotkey("y", Command(Verb.TARGET), "target", "Make the target network equal to the trained."),
    Hotkey("e", Command(Verb.EVAL), "evaluate", "Have the agents play greedy episodes now."),
    Hotkey(
        "D",
        Command(Verb.FLUSH),
        "flush",
        "Empty the replay; asks first.",
        ask="Forget every frame in the replay?",
    ),
    Hotkey("C", Glance.CLIENT, "client", "Push a setting to the scripts of all games."),
    _switch("v", "verbose", "verbose", "Tell of every finished episode, or stop that."),
    Hotkey("c", Glance.CLEAR, "clear", "Hide the events so far."),
    Hotkey("up", Glance.UP, "scroll up", "Go up by a row.", views=_SCROLLED),
    Hotkey("down", Glance.DOWN, "scroll down", "Go down by a row.", views=_SCROLLED),
    Hotkey("pageup", Glance.PAGE_UP, "page up", "Go up by a page.", views=_SCROLLED),
    Hotkey("pagedown", Glance.PAGE_DOWN, "page down", "Go down by a page.", views=_SCROLLED),
    Hotkey("<", Glance.SORT_LEFT, "sort left", "Sort by the column before.", views=(View.CLIENTS,)),
    Hotkey(">", Glance.SORT_RIGHT, "sort right", "Sort by the next one.", views=(View.CLIENTS,)),
    Hotkey("/", Glance.REVERSE, "sort reverse", "Turn the order round.", views=(View.CLIENTS,)),
    Hotkey(
        "enter", Glance.EDIT, "edit", "Type a value for the marked one.", views=(View.SETTINGS,)
    ),
    Hotkey("?", Glance.HELP, "help", "Show all keys, or hide them."),
)

_SYMBOLS = {"up": "↑", "down": "↓", "pageup": "PgUp", "pagedown": "PgDn", "enter": "Enter"}


def find(key: str, view: View) -> Hotkey | None:
    """Give what a key is bound to in a view, or None."""
    for hotkey in HOTKEYS:
        if hotkey.key == key and works(hotkey, view):
            return hotkey
    return None


def works(hotkey: Hotkey, view: View) -> bool:
    """Say whether a key does anything in a view."""
    return not hotkey.views or view in hotkey.views


def symbol(key: str) -> str:
    """Give what a key is called where people read it."""
    return _SYMBOLS.get(key, key)


@cache
def places() -> list[tuple[str, str, tuple[Hotkey, ...]]]:
    """Give the keys, those of one kind together: what to press, the kind's name, the keys."""
    found = []
    for kind, group in groupby(HOTKEYS, key=lambda hotkey: hotkey.label.split()[0]):
        hotkeys = tuple(group)
        found.append((_joined([symbol(hotkey.key) for hotkey in hotkeys]), kind, hotkeys))
    return found


def markdown() -> str:
    """Draw the table for the README."""
    rows = [f"| `{symbol(hotkey.key)}` | {hotkey.label} | {hotkey.about} |" for hotkey in HOTKEYS]
    return "\n".join(["| Key | Name | What it does |", "|---|---|---|", *rows]) + "\n"


def _joined(keys: list[str]) -> str:
    if len(keys) > 2 and all(key.isdigit() for key in keys):
        return f"{keys[0]}-{keys[-1]}"
    return ("/" if all(key.isalnum() and key.isascii() for key in keys) else " ").join(keys)
