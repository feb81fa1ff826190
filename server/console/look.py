"""What one person looks at: the view, and how far it is scrolled, sorted or asked about."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from server.controls import Command


class View(Enum):
    """The screens a person can choose from, in the order of their number keys."""

    OVERVIEW = "overview"
    CLIENTS = "clients"
    LEARNING = "learning"
    LATENCY = "latency"
    EVENTS = "events"
    SETTINGS = "settings"
    CLUSTER = "cluster"


class Glance(Enum):
    """What a key changes about the look alone; the server hears nothing of it."""

    HELP = "help"
    CLEAR = "clear"  # hide the events so far
    SORT_LEFT = "sort left"
    SORT_RIGHT = "sort right"
    REVERSE = "reverse"
    UP = "up"
    DOWN = "down"
    PAGE_UP = "page up"
    PAGE_DOWN = "page down"
    EDIT = "edit"  # the live setting under the cursor
    CLIENT = "client setting"


@dataclass(frozen=True, slots=True)
class Prompt:
    """Something a person is asked in the last line."""

    question: str
    name: str = ""  # of the live setting that is typed; "" for a name=value of the games' scripts
    text: str = ""  # typed so far
    command: Command | None = None  # what a yes leads to, where the answer is yes or no


@dataclass(frozen=True, slots=True)
class Look:
    """All of it; each person has one, and a key leads from one to the next."""

    view: View = View.OVERVIEW
    help_open: bool = False
    row: int = 0  # scrolled to, or under the cursor
    sort: int = 0  # column of the client table, 0: in the order of their coming
    reverse: bool = False
    cleared_s: float = 0.0  # events before are hidden, seconds since the epoch
    prompt: Prompt | None = None
