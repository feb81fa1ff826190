"""From one look to the next: what a key does to the screen, and what it asks of the server."""

from __future__ import annotations

from dataclasses import replace

from server.console import hotkeys, roster
from server.console.look import Glance, Look, Prompt, View
from server.controls import Command, Verb
from server.dials import CLIENT
from server.stats import Snapshot

_PAGE = 10  # rows
_MOST_TEXT = 80  # characters that can be typed
_OVER = " over "  # between a value and the frames over which it is reached
_STEPS = {Glance.UP: -1, Glance.DOWN: 1, Glance.PAGE_UP: -_PAGE, Glance.PAGE_DOWN: _PAGE}
_SUFFIXES = {"k": 1e3, "M": 1e6, "G": 1e9}


def press(look: Look, key: str, snapshot: Snapshot) -> tuple[Look, Command | None]:
    """Give the look after a key, and the command that it leads to."""
    if look.prompt is not None:
        return _answer(look, look.prompt, key)
    hotkey = hotkeys.find(key, look.view)
    if hotkey is None:
        # Escape closes what lies on top, and goes back to the first view.
        closed = (
            replace(look, help_open=False) if look.help_open else Look(cleared_s=look.cleared_s)
        )
        return (closed if key == "escape" else look), None
    does = hotkey.does
    if isinstance(does, View):
        return replace(look, view=does, row=0, help_open=False), None
    if isinstance(does, Glance):
        return _glanced(look, does, snapshot), None
    if hotkey.ask:
        return replace(look, prompt=Prompt(f"{hotkey.ask} (y/n)", command=does)), None
    return look, does


def rows(look: Look, snapshot: Snapshot) -> int:
    """Give how many rows there are to scroll through."""
    if look.view is View.CLIENTS:
        return len(snapshot.clients)
    if look.view is View.EVENTS:
        return sum(event.time_s >= look.cleared_s for event in snapshot.events)
    if look.view is View.CLUSTER:
        return len(snapshot.cluster.gateways) if snapshot.cluster else 0
    return len(snapshot.dials)


def _glanced(look: Look, glance: Glance, snapshot: Snapshot) -> Look:
    if glance in _STEPS:
        last = max(0, rows(look, snapshot) - 1)
        return replace(look, row=min(last, max(0, look.row + _STEPS[glance])))
    if glance is Glance.HELP:
        return replace(look, help_open=not look.help_open)
    if glance is Glance.CLEAR:
        return replace(look, cleared_s=snapshot.time_s)
    if glance is Glance.REVERSE:
        return replace(look, reverse=not look.reverse)
    if glance in (Glance.SORT_LEFT, Glance.SORT_RIGHT):
        step = -1 if glance is Glance.SORT_LEFT else 1
        return replace(look, sort=(look.sort + step) % len(roster.ORDERS))
    return replace(look, prompt=_asked(look, glance, snapshot))


def _asked(look: Look, glance: Glance, snapshot: Snapshot) -> Prompt | None:
    if glance is Glance.CLIENT:
        return Prompt("client setting, as name=value:")
    if not snapshot.dials:
        return None
    dial = snapshot.dials[min(look.row, len(snapshot.dials) - 1)]
    return Prompt(f"{dial.name} ({dial.allowed}; natural; VALUE over FRAMES):", dial.name)


def _answer(look: Look, prompt: Prompt, key: str) -> tuple[Look, Command | None]:
    done = replace(look, prompt=None)
    if prompt.command is not None:
        return done, prompt.command if key in ("y", "Y") else None
    if key == "escape":
        return done, None
    if key == "enter":
        return done, _typed(prompt)
    text = prompt.text[:-1] if key == "backspace" else prompt.text
    if len(key) == 1 and len(text) < _MOST_TEXT:
        text += key
    return replace(look, prompt=replace(prompt, text=text)), None


def _typed(prompt: Prompt) -> Command | None:
    text = prompt.text.strip()
    if not text:
        return None
    if not prompt.name:
        name, _, value = text.partition("=")
        return Command(Verb.SET, CLIENT + name.strip(), value.strip())
    value, _, over = text.partition(_OVER)
    frames = _frames(over.strip()) if over else 0
    # What cannot be read as frames is handed on whole, and refused with what is allowed.
    return Command(Verb.SET, prompt.name, text if frames is None else value.strip(), frames or 0)


def _frames(text: str) -> int | None:
    scale = _SUFFIXES.get(text[-1:], 1.0)
    try:
        return max(1, int(float(text[:-1] if scale > 1 else text) * scale))
    except (ValueError, OverflowError):
        return None
