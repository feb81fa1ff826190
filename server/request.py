"""What is said over the control socket, as lines; pure: no socket, no clock.

The rules:
- One JSON object per line, UTF-8. Whoever connects asks, the server answers each request in its
  order: {"ok": ...}, or {"error": TEXT} for a person to read.
- {"do": "status"} is answered with a whole Snapshot, {"do": "get"} with the live settings.
- {"do": "command", "verb": ..., "name": ..., "value": ..., "over": ..., "who": ...} does what a key
  does; the answer says what came of it. docs/control.md lists the verbs.
- {"do": "watch", "every_s": 0.25} is answered with Snapshots from then on, newest wins: whoever
  reads slowly misses some. No other request may follow.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from typing import Any

from server.controls import Command, Verb

MAX_LINE = 1 << 16  # bytes of a request
_MOST_FRAMES = 2**40
_MOST_TEXT = 512  # characters of a name or a value
_LONGEST_S = 3600.0


class RequestError(ValueError):
    """A request that is not understood, or one that was refused; for a person to read."""


class Do(Enum):
    """What can be asked."""

    STATUS = "status"
    GET = "get"
    COMMAND = "command"
    WATCH = "watch"


@dataclass(frozen=True, slots=True)
class Request:
    """One request."""

    do: Do
    command: Command | None = None  # of a COMMAND
    who: str = "socket"
    every_s: float = 1.0  # of a WATCH


def encode(request: Request) -> bytes:
    """Write a request as a line."""
    plain: dict[str, Any] = {"do": request.do.value}
    if request.command is not None:
        command = request.command
        plain |= {"verb": command.verb.value, "name": command.name, "value": command.value}
        plain |= {"over": command.over, "who": request.who}
    if request.do is Do.WATCH:
        plain["every_s"] = request.every_s
    return _line(plain)


def read(line: bytes) -> Request:
    """Read a request; what is wrong with it is a RequestError."""
    plain = _object(line)
    try:
        do = Do(plain.get("do"))
    except ValueError:
        known = ", ".join(kind.value for kind in Do)
        raise RequestError(f"do = {plain.get('do')!r} is none of {known}") from None
    if do is Do.COMMAND:
        return Request(do, _command(plain), _text(plain, "who", "socket")[:32])
    if do is Do.WATCH:
        every_s = plain.get("every_s", 1.0)
        if isinstance(every_s, bool) or not isinstance(every_s, int | float):
            raise RequestError(f"every_s = {every_s!r} must be a number")
        return Request(do, every_s=min(_LONGEST_S, max(0.0, float(every_s))))
    return Request(do)


def answer(value_json: str) -> bytes:
    """Write an answer whose value is JSON already."""
    return f'{{"ok":{value_json}}}\n'.encode()


def refusal(text: str) -> bytes:
    """Write why a request came to nothing."""
    return _line({"error": text})


def read_answer(line: bytes) -> Any:
    """Read an answer; a refusal is a RequestError."""
    plain = _object(line)
    if "error" in plain:
        raise RequestError(str(plain["error"]))
    return plain.get("ok")


def _command(plain: dict[str, Any]) -> Command:
    try:
        verb = Verb(plain.get("verb"))
    except ValueError:
        known = ", ".join(kind.value for kind in Verb)
        raise RequestError(f"verb = {plain.get('verb')!r} is none of {known}") from None
    over = plain.get("over", 0)
    if isinstance(over, bool) or not isinstance(over, int) or not 0 <= over <= _MOST_FRAMES:
        raise RequestError(f"over = {over!r} must be a number of frames, 0 to {_MOST_FRAMES}")
    return Command(verb, _text(plain, "name"), _text(plain, "value"), over)


def _text(plain: dict[str, Any], name: str, default: str = "") -> str:
    value = plain.get(name, default)
    if not isinstance(value, str) or len(value) > _MOST_TEXT or not (value + " ").isprintable():
        raise RequestError(f"{name} must be text of at most {_MOST_TEXT} characters")
    return value


def _object(line: bytes) -> dict[str, Any]:
    try:
        plain = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"not a line of JSON: {error}") from None
    if not isinstance(plain, dict):
        raise RequestError("a line must be a JSON object")
    return plain


def _line(plain: dict[str, Any]) -> bytes:
    return json.dumps(plain, separators=(",", ":")).encode() + b"\n"
