"""A learner's state on disk: complete or absent, checked, with the one before it as a backup.

One safetensors file holds the tensors and, in its header, everything else as JSON, with a digest
over both. Nothing is unpickled.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from server import document

FORMAT = 1
LATEST, BEST = "checkpoint", "best"  # the newest state, and the weights that scored highest
NAME = f"{LATEST}.safetensors"
BACKUP = f"{LATEST}.previous.safetensors"
_FOR_NOW = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)  # what keeps a good file from being read


class CheckpointError(RuntimeError):
    """A checkpoint that could not be written or read; the message names the file and the cause."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What is kept of an agent: tensors by name, and plain values."""

    tensors: Mapping[str, Tensor]
    plain: Mapping[str, Any]


def save(directory: Path, checkpoint: Checkpoint, which: str = LATEST) -> None:
    """Write a checkpoint; whatever happens, the newest complete one stays readable."""
    name, backup = _names(which)
    plain = json.dumps({"format": FORMAT, **checkpoint.plain}, sort_keys=True)
    tensors = {name: tensor.contiguous().cpu() for name, tensor in checkpoint.tensors.items()}
    metadata = {"coinop": plain, "checksum": _checksum(plain, tensors)}
    path, temporary = directory / name, directory / f"{name}.new"
    try:
        with temporary.open("wb") as file:
            file.write(safetensors.torch.save(tensors, metadata))
            file.flush()
            os.fsync(file.fileno())
        _keep_as_backup(path, directory / backup)
        temporary.replace(path)
        document.sync_directory(directory)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise CheckpointError(f"cannot write the checkpoint {path}: {error.strerror}") from error


def load(directory: Path, which: str = LATEST) -> tuple[Checkpoint | None, str]:
    """Read the newest good checkpoint; also give what a person should know ('' if nothing)."""
    problems = []
    newest, backup = _names(which)
    for name in (newest, backup):
        path = directory / name
        if not path.exists():
            continue
        try:
            checkpoint = read(path)
        except CheckpointError as error:
            problems.append(str(error))
            continue
        if problems:
            problems.append(f"using {path} instead")
        elif name == backup:
            problems.append(f"{directory / newest} is missing; using {path} instead")
        return checkpoint, "; ".join(problems)
    if problems:
        raise CheckpointError("; ".join([*problems, "start over with --fresh, or another --run"]))
    return None, ""


def _names(which: str) -> tuple[str, str]:
    """Give the files of a checkpoint: the newest, and the one before it."""
    return f"{which}.safetensors", f"{which}.previous.safetensors"


def read(path: Path) -> Checkpoint:
    """Read one checkpoint file and check it whole."""
    try:
        # By Python's own hand: torch says that a file cannot be opened in errors of its own.
        data = path.read_bytes()
        tensors = safetensors.torch.load(data)
        header_bytes = int.from_bytes(data[:8], "little")
        metadata = json.loads(data[8 : 8 + header_bytes])["__metadata__"]
        plain = metadata["coinop"]
        if not _is_whole(metadata, tensors):
            raise ValueError("its checksum does not match its contents")
        values = json.loads(plain)
        if values.pop("format") != FORMAT:
            raise ValueError("it was written by another version")
    except (OSError, ValueError, KeyError, safetensors.SafetensorError) as error:
        raise CheckpointError(f"the checkpoint {path} is damaged: {error}") from error
    return Checkpoint(tensors, values)


def _is_whole(metadata: Mapping[str, str], tensors: Mapping[str, Tensor]) -> bool:
    plain = metadata["coinop"]
    if "checksum" in metadata:
        return metadata["checksum"] == _checksum(plain, tensors)
    return metadata["digest"] == _digest(plain, tensors)  # of before the shapes were covered


def _checksum(plain: str, tensors: Mapping[str, Tensor]) -> str:
    """Give a digest of everything in a checkpoint: values, names, types and shapes."""
    shapes = {name: (str(tensor.dtype), list(tensor.shape)) for name, tensor in tensors.items()}
    return _digest(json.dumps([plain, shapes], sort_keys=True), tensors)


def _digest(plain: str, tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.blake2b(plain.encode(), digest_size=16)
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].reshape(-1).numpy().tobytes())
    return digest.hexdigest()


def _keep_as_backup(path: Path, backup: Path) -> None:
    """Let the newest checkpoint be the backup too, until a newer one takes its name.

    A damaged one must not push out the good backup that it was replaced by.
    """
    try:
        read(path)
    except CheckpointError as error:
        cause = error.__cause__
        if isinstance(cause, OSError) and cause.errno in _FOR_NOW:
            raise cause from error
        return
    link = backup.with_suffix(".link")
    link.unlink(missing_ok=True)
    try:
        os.link(path, link)
    except PermissionError:  # a file system without hard links
        shutil.copyfile(path, link)
    link.replace(backup)
