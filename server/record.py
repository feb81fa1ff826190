"""Frozen dataclasses as JSON and back, so that what people see can travel to another process."""

from __future__ import annotations

import dataclasses
import functools
import json
import types
import typing
from typing import Any, TypeVar

T = TypeVar("T")


def to_json(value: Any) -> str:
    """Write a dataclass of plain values, tuples, dicts and further dataclasses."""
    return json.dumps(value, default=_fields_of, separators=(",", ":"))


def from_plain(kind: type[T], plain: Any) -> T:
    """Build a dataclass from what JSON gave back; a field that it does not know is left out."""
    made: T = _built(kind, plain)
    return made


def _fields_of(value: Any) -> dict[str, Any]:
    """Give a dataclass's fields; json asks for whatever it does not know itself."""
    kind: Any = type(value)
    return {name: getattr(value, name) for name in _names(kind)}


def _built(kind: Any, plain: Any) -> Any:
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        hints: dict[str, Any] = _hints(kind)
        return kind(
            **{name: _built(hints[name], value) for name, value in plain.items() if name in hints}
        )
    origin = typing.get_origin(kind)
    if origin is tuple:
        return tuple(_built(typing.get_args(kind)[0], item) for item in plain)
    if origin is dict:
        return {name: _built(typing.get_args(kind)[1], item) for name, item in plain.items()}
    if origin in (types.UnionType, typing.Union) and plain is not None:
        inner = next(part for part in typing.get_args(kind) if part is not types.NoneType)
        return _built(inner, plain)
    return plain


@functools.cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind)
