"""The table of live settings: what each is, which values it takes, and how a key moves it."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

Value = bool | int | float | str
NATURAL = "natural"
CLIENT = "client."  # before the name of what is pushed to the games' scripts

# As config.py has it for --client-setting; preview_every is a setting of its own.
_CLIENT_NAME = re.compile(r"client\.[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MOST_TEXT = 256
_WORDS = {"on": True, "true": True, "yes": True, "off": False, "false": False, "no": False}
_SUFFIXES = {"k": 1e3, "M": 1e6, "G": 1e9}


class DialError(ValueError):
    """A live setting that is not there, or a value it cannot take; the message says what can."""


@dataclass(frozen=True, slots=True)
class Dial:
    """One live setting."""

    name: str
    about: str  # one sentence
    natural: str  # where its value comes from unless somebody sets it
    kind: type[Value] = float
    unit: str = ""
    low: float = 0.0
    high: float = 1.0
    step: float = 0.0  # what a key adds or takes away
    factor: float = 0.0  # or what it multiplies and divides by
    limit_to: float = 0.0  # of a limit for which 0 means none: the largest that a key sets

    def parse(self, text: str) -> Value:
        """Read a value as a person types it; out of range it is refused with the bounds."""
        text = text.strip()
        if self.kind is str:
            if not 1 <= len(text) <= _MOST_TEXT:
                raise DialError(f"{self.name} must be 1 to {_MOST_TEXT} characters")
            return _number_or_text(text)
        if self.kind is bool:
            if text.lower() not in _WORDS:
                raise DialError(f"{self.name} = {text!r} must be on or off")
            return _WORDS[text.lower()]
        scale = _SUFFIXES.get(text[-1:], 1.0)
        try:
            number = float(text[:-1] if scale > 1 else text) * scale
        except ValueError:
            raise DialError(
                f"{self.name} = {text!r} must be a number, {self.allowed()}, or natural"
            ) from None
        return self.check(number)

    def check(self, value: Value) -> Value:
        """Give the value in this dial's type, or refuse it with the bounds."""
        if self.kind is str:
            return value
        if self.kind is bool:
            if not isinstance(value, bool):
                raise DialError(f"{self.name} = {value!r} must be on or off")
            return value
        number = float(value)
        # Written so that NaN, which compares false with everything, is refused too.
        if not self.low <= number <= self.high:
            raise DialError(f"{self.name} = {_short(number)} is out of range: {self.allowed()}")
        if self.kind is not int:
            return number
        if number != int(number):
            raise DialError(f"{self.name} = {_short(number)} must be a whole number")
        return int(number)

    def stepped(self, value: Value, direction: int) -> Value:
        """Give the value one key press down (-1) or up (+1), as far as the bounds allow."""
        number = float(value)
        if self.limit_to:
            return self._stepped_limit(number, direction)
        if self.factor:
            number *= self.factor**direction
        else:
            number = round(number + direction * self.step, 4)
        return self.kind(min(self.high, max(self.low, number)))

    def _stepped_limit(self, limit: float, direction: int) -> float:
        """No limit lies above the largest one."""
        if not limit:
            return self.limit_to if direction < 0 else 0.0
        moved = limit * self.factor**direction
        return 0.0 if moved > self.limit_to else moved

    def allowed(self) -> str:
        """Say which values it takes."""
        if self.kind is bool:
            return "on or off"
        if self.kind is str:
            return "a number or text"
        none = " (0: none)" if self.limit_to else ""
        unit = f" {self.unit}" if self.unit else ""
        return f"{_short(self.low)} to {_short(self.high)}{unit}{none}"

    def shown(self, value: Value | None) -> str:
        """Write a value as people read it."""
        if value is None:
            return NATURAL
        if isinstance(value, bool):
            return "on" if value else "off"
        if self.limit_to and value == 0:
            return "none"
        return value if isinstance(value, str) else _short(value, digits=4)


def _switch(name: str, about: str, natural: str = "as started") -> Dial:
    return Dial(name, about, natural, kind=bool)


# Bounds that are 0 to 1 here and are no shares come from config.py, through ``table``.
_DIALS: tuple[Dial, ...] = (
    _switch("training", "Whether the learner trains."),
    _switch("greedy", "Whether the network alone chooses: no exploration, no expert."),
    _switch("expert", "Whether the expert chooses wherever it proposes something."),
    _switch("exploring", "Whether anything is explored: off, epsilon and all noise are 0."),
    Dial("epsilon", "Share of random actions.", "its schedule", unit="share", step=0.05),
    Dial(
        "expert_ratio",
        "Share of the expert's proposals that are followed.",
        "its schedule",
        unit="share",
        step=0.05,
    ),
    Dial("learning_rate", "Step size of the optimizer.", "its schedule", factor=2.0),
    Dial(
        "steps_per_sample",
        "Gradient steps taken from one gathered sample.",
        "as started",
        kind=int,
        unit="steps",
        step=1,
    ),
    Dial(
        "max_replay_ratio",
        "Most transitions trained per frame collected.",
        "as started",
        unit="transitions/frame",
        factor=2.0,
        limit_to=64.0,
    ),
    Dial(
        "n_step",
        "Frames of real reward before the estimate takes over.",
        "as started",
        kind=int,
        unit="frames",
        step=1,
    ),
    Dial(
        "heartbeat_s",
        "Time between copies of trained weights into play.",
        "as started",
        unit="s",
        factor=2.0,
    ),
    _switch("verbose", "Whether every finished episode is an event."),
)

NAMES = tuple(dial.name for dial in _DIALS)


def table(bounds: Mapping[str, tuple[float, float]]) -> dict[str, Dial]:
    """Give all live settings by name, with the bounds that the settings of the start have."""
    return {
        dial.name: replace(dial, low=bounds[dial.name][0], high=bounds[dial.name][1])
        if dial.name in bounds
        else dial
        for dial in _DIALS
    }


def find(dials: Mapping[str, Dial], name: str) -> Dial:
    """Give the live setting of this name; a game's own is made up as it is named."""
    if name in dials:
        return dials[name]
    if _CLIENT_NAME.fullmatch(name) and name != f"{CLIENT}preview_every":
        return Dial(name, "Pushed to the script of every game.", "as started", kind=str)
    near = difflib.get_close_matches(name, dials, n=1)
    hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(dials)}, {CLIENT}NAME"
    raise DialError(f"there is no live setting {name!r}; {hint}")


def markdown(dials: Mapping[str, Dial]) -> str:
    """Draw the table for docs/control.md."""
    rows = [
        f"| `{dial.name}` | {dial.allowed()} | {_moved(dial)} | {dial.natural} | {dial.about} |"
        for dial in dials.values()
    ]
    head = "| live setting | takes | a key | natural | what it is |"
    return "\n".join([head, "|---|---|---|---|---|", *rows]) + "\n"


def _moved(dial: Dial) -> str:
    if dial.kind is bool:
        return "switches it"
    return "halves or doubles it" if dial.factor else f"moves it by {dial.step:g}"


def _short(number: float, digits: int = 6) -> str:
    whole = abs(number) < 1e15 and number == int(number)
    return str(int(number)) if whole else f"{number:.{digits}g}"


def _number_or_text(text: str) -> Value:
    """Read a number if it is one that every client can hold, else keep the text."""
    try:
        number = float(text)
    except ValueError:
        return text
    if not math.isfinite(number):
        return text
    return int(number) if number == int(number) and abs(number) < 2**53 else number
