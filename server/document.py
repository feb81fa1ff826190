"""A small JSON document that must not be lost: checked, complete or absent, and kept twice."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

_CHECKSUM = "checksum"


class DocumentError(ValueError):
    """A document that cannot be read; the message names it and says what is wrong."""


def write(path: Path, value: dict[str, Any]) -> None:
    """Write a document and its copy; each is complete or absent, even after a power loss."""
    text = json.dumps({**value, _CHECKSUM: checksum(value)}, indent=2)
    for target in (copy_of(path), path):
        temporary = target.with_suffix(".new")
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    sync_directory(path.parent)


def read(path: Path) -> tuple[dict[str, Any], str]:
    """Read a document, or its copy where it is damaged; also give what a person should know."""
    copy = copy_of(path)
    try:
        return _checked(path, older=not copy.exists()), ""
    except DocumentError as error:
        if not copy.exists():
            raise
        return _checked(copy, older=False), f"{error}; using {copy} instead"


def copy_of(path: Path) -> Path:
    """Give where a document's copy is."""
    return path.with_name(f"{path.stem}.copy{path.suffix}")


def checksum(value: dict[str, Any]) -> str:
    """Give a digest of what a document says, however it is laid out."""
    plain = json.dumps(value, sort_keys=True).encode()
    return hashlib.blake2b(plain, digest_size=8).hexdigest()


def sync_directory(directory: Path) -> None:
    """Make what was renamed or made in a directory survive a power loss."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _checked(path: Path, *, older: bool) -> dict[str, Any]:
    """Read one file; one without a checksum is of before there were any, and then has no copy."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(value, dict):
            raise ValueError("it is no object")
        found = value.pop(_CHECKSUM, None)
        if found != checksum(value) and not (older and found is None):
            raise ValueError("its checksum does not match its contents")
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise DocumentError(f"{path} is damaged: {reason}") from error
    return value
