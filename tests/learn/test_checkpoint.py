"""Checkpoints: complete or absent, checked, with a backup."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from unittest import mock

import pytest
import torch

from server.learn import checkpoint as checkpoints
from server.learn.checkpoint import BACKUP, NAME, Checkpoint, CheckpointError


def example(number: int) -> Checkpoint:
    tensors = {"online.w": torch.full((50, 3), float(number)), "step": torch.tensor(2.5)}
    return Checkpoint(tensors, {"frames": number, "nested": {"returns": [1.5, None]}})


def load(directory: Path) -> tuple[int, str]:
    checkpoint, note = checkpoints.load(directory)
    assert checkpoint is not None
    frames: int = checkpoint.plain["frames"]
    assert torch.equal(checkpoint.tensors["online.w"], example(frames).tensors["online.w"])
    assert torch.equal(checkpoint.tensors["step"], torch.tensor(2.5))
    return frames, note


def test_nothing_saved_is_nothing_found(tmp_path: Path) -> None:
    assert checkpoints.load(tmp_path) == (None, "")


def test_what_was_saved_is_found(tmp_path: Path) -> None:
    checkpoints.save(tmp_path, example(1))
    assert load(tmp_path) == (1, "")
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


def test_the_one_before_is_kept(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        checkpoints.save(tmp_path, example(number))
    assert load(tmp_path) == (3, "")
    assert checkpoints.read(tmp_path / BACKUP).plain["frames"] == 2


DAMAGES = {
    "truncated": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
    "one bit of a tensor": lambda data: data[:-9] + bytes([data[-9] ^ 1]) + data[-8:],
    "one letter of the header": lambda data: data.replace(b"frames", b"framez", 1),
    "garbage": lambda data: b"\x00" * len(data),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_checkpoint_is_named_and_the_backup_used(tmp_path: Path, kind: str) -> None:
    for number in (1, 2):
        checkpoints.save(tmp_path, example(number))
    path = tmp_path / NAME
    path.write_bytes(DAMAGES[kind](path.read_bytes()))
    frames, note = load(tmp_path)
    assert frames == 1
    assert f"{path} is damaged" in note
    assert f"using {tmp_path / BACKUP} instead" in note


def test_a_save_after_damage_keeps_the_good_backup(tmp_path: Path) -> None:
    for number in (1, 2):
        checkpoints.save(tmp_path, example(number))
    (tmp_path / NAME).write_bytes(b"damaged")
    checkpoints.save(tmp_path, example(3))
    assert load(tmp_path) == (3, "")
    assert checkpoints.read(tmp_path / BACKUP).plain["frames"] == 1


def test_a_missing_newest_is_told_and_the_backup_used(tmp_path: Path) -> None:
    """The moment between the two renames of a save."""
    for number in (1, 2):
        checkpoints.save(tmp_path, example(number))
    (tmp_path / NAME).unlink()
    frames, note = load(tmp_path)
    assert frames == 1
    assert "is missing" in note


def test_two_damaged_ones_are_an_error_with_a_way_out(tmp_path: Path) -> None:
    for number in (1, 2):
        checkpoints.save(tmp_path, example(number))
    for name in (NAME, BACKUP):
        (tmp_path / name).write_bytes(b"no")
    with pytest.raises(CheckpointError, match=r"damaged.*damaged.*--fresh"):
        checkpoints.load(tmp_path)


def test_a_save_that_fails_keeps_the_old_one(tmp_path: Path) -> None:
    checkpoints.save(tmp_path, example(1))
    # A directory in the temporary file's place makes the write fail as a bad disk would.
    (tmp_path / f"{NAME}.new").mkdir()
    with pytest.raises(CheckpointError, match=f"cannot write the checkpoint {tmp_path}"):
        checkpoints.save(tmp_path, example(2))
    (tmp_path / f"{NAME}.new").rmdir()
    assert load(tmp_path) == (1, "")


def test_the_best_is_kept_beside_the_latest_and_neither_touches_the_other(tmp_path: Path) -> None:
    checkpoints.save(tmp_path, example(1))
    for number in (7, 8):
        checkpoints.save(tmp_path, example(number), checkpoints.BEST)
    assert load(tmp_path) == (1, "")
    best, note = checkpoints.load(tmp_path, checkpoints.BEST)
    assert best is not None
    assert (best.plain["frames"], note) == (8, "")
    (tmp_path / "best.safetensors").write_bytes(b"damaged")
    best, note = checkpoints.load(tmp_path, checkpoints.BEST)
    assert best is not None
    assert best.plain["frames"] == 7
    assert "best.safetensors is damaged" in note


def test_a_checkpoint_that_cannot_be_read_for_now_is_not_taken_for_damaged(tmp_path: Path) -> None:
    checkpoints.save(tmp_path, example(1))
    full = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    with (
        mock.patch.object(Path, "read_bytes", side_effect=full),
        pytest.raises(
            CheckpointError, match=r"cannot write the checkpoint .*: Too many open files"
        ),
    ):
        checkpoints.save(tmp_path, example(2))
    assert load(tmp_path) == (1, "")
