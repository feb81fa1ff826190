"""Any bit flipped, any end cut off: found and named, the good copy used, never a part loaded."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from live import Server

from server import document
from server.document import DocumentError
from server.journal import Journal, Ramp, new_change, read
from server.learn import checkpoint as checkpoints
from server.learn.checkpoint import BACKUP, NAME, Checkpoint, CheckpointError
from server.learn.replay import GUARD, MIN_CAPACITY, Frames, Layout, Replay, ReplayError
from server.run import Run
from server.spaces import Actions, Discrete, Observation, Spaces

SPACES = Spaces(Observation("float32", (2,)), Actions((Discrete("stick", 3),), ()), ("score",))


def flipped(data: bytes) -> Iterator[bytes]:
    """Give every version of some bytes with one bit turned."""
    for place in range(len(data)):
        for bit in range(8):
            yield data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :]


def cut(data: bytes) -> Iterator[bytes]:
    """Give every version of some bytes whose end is lost."""
    return (data[:size] for size in range(len(data)))


# --- checkpoints ------------------------------------------------------------------------------


def saved(directory: Path, number: int) -> Checkpoint:
    tensors = {"w": torch.full((2, 1), float(number)), "n": torch.tensor([number])}
    checkpoint = Checkpoint(tensors, {"frames": number})
    checkpoints.save(directory, checkpoint)
    return checkpoint


@pytest.mark.parametrize("damage", [flipped, cut])
def test_a_checkpoint_is_loaded_whole_or_not_at_all(
    tmp_path: Path, damage: Callable[[bytes], Iterator[bytes]]
) -> None:
    kept = saved(tmp_path, 7)
    path = tmp_path / NAME
    found = 0
    for data in damage(path.read_bytes()):
        path.write_bytes(data)
        try:
            read_back = checkpoints.read(path)
        except CheckpointError as error:
            assert str(path) in str(error)
            found += 1
            continue
        # What a turned bit did not change, such as a blank in the header, does no harm.
        assert read_back.plain == kept.plain
        assert set(read_back.tensors) == set(kept.tensors)
        for name, tensor in kept.tensors.items():
            assert read_back.tensors[name].dtype == tensor.dtype
            assert torch.equal(read_back.tensors[name], tensor)
    assert found > 200


def test_a_damaged_checkpoint_never_hides_the_good_one(tmp_path: Path) -> None:
    for number in (1, 2):
        saved(tmp_path, number)
    path = tmp_path / NAME
    data = path.read_bytes()
    for size in range(0, len(data), 37):
        path.write_bytes(data[:size])
        checkpoint, note = checkpoints.load(tmp_path)
        assert checkpoint is not None and checkpoint.plain["frames"] == 1
        assert f"{path} is damaged" in note and f"using {tmp_path / BACKUP} instead" in note


# --- the replay's header ----------------------------------------------------------------------


def stored(path: Path, frames: int) -> Layout:
    layout = Layout.of(SPACES, MIN_CAPACITY)
    replay = Replay.in_file(path, layout)
    for first in range(0, frames, 500):
        count = min(500, frames - first)
        zeros = [0] * count
        replay.append(
            Frames(
                np.zeros((count, 2), np.float32),
                np.zeros((count, 1), np.int16),
                np.zeros((count, 0), np.float32),
                [0.0] * count,
                zeros,
                zeros,
                1,
                [-1] * count,
            )
        )
    return layout


@pytest.mark.parametrize("frames", [1500, 1024, 9000])
def test_a_damaged_header_of_the_replay_is_found(tmp_path: Path, frames: int) -> None:
    path = tmp_path / "replay.bin"
    layout = stored(path, frames)
    whole = path.read_bytes()
    for place in (*range(8), *range(64, 96), *range(128, 280)):
        for bit in range(8):
            with path.open("r+b") as file:
                file.seek(place)
                file.write(bytes([whole[place] ^ 1 << bit]))
            _is_sound_or_told(path, layout, frames)
            with path.open("r+b") as file:
                file.write(whole[:4096])
    assert Replay.in_file(path, layout).note == ""


def _is_sound_or_told(path: Path, layout: Layout, frames: int) -> None:
    try:
        replay = Replay.in_file(path, layout)
    except ReplayError as error:
        assert str(path) in str(error)
        return
    assert replay.head == frames or (replay.note and frames - GUARD <= replay.head < frames)
    assert replay.oldest == max(0, frames - MIN_CAPACITY + GUARD) or replay.note
    replay.check_valid()


@pytest.mark.parametrize("size", [0, 1, 100, 4095, 4096, 8192])
def test_a_replay_cut_short_is_refused_by_name(tmp_path: Path, size: int) -> None:
    path = tmp_path / "replay.bin"
    layout = stored(path, 100)
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ReplayError, match=str(path)):
        Replay.in_file(path, layout)


def test_a_replay_of_before_the_head_was_written_twice_is_taken_up(tmp_path: Path) -> None:
    path = tmp_path / "replay.bin"
    layout = stored(path, 700)
    with path.open("r+b") as file:
        file.seek(80)
        file.write(bytes(16))
    replay = Replay.in_file(path, layout)
    assert (replay.head, replay.note) == (700, "")


# --- the journal ------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", [flipped, cut])
def test_no_line_of_the_journal_is_misread(
    tmp_path: Path, damage: Callable[[bytes], Iterator[bytes]]
) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal.open(path)
    journal.write(new_change(10, "epsilon", None, 0.25, "me"))
    journal.write(new_change(20, "n_step", 3, Ramp(3.0, 7.0, 20, 100), "me"))
    journal.close()
    kept = journal.changes
    data = path.read_bytes()
    for broken in damage(data):
        path.write_bytes(broken)
        changes, damaged = read(path)
        assert all(change in kept for change in changes)
        assert len(changes) == 2 or damaged or len(broken) <= data.index(b"\n") + 1


def test_a_journal_of_before_there_were_checksums_is_read(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    line = {"time": 1.5, "frame": 3, "name": "epsilon", "old": None, "new": 0.5, "who": "me"}
    path.write_text(json.dumps({**line, "kind": "set"}) + "\n")
    changes, damaged = read(path)
    assert [change.new for change in changes] == [0.5] and damaged == []


# --- settings and agents ----------------------------------------------------------------------


@pytest.mark.parametrize("damage", [flipped, cut])
def test_a_document_is_read_whole_or_from_its_copy(
    tmp_path: Path, damage: Callable[[bytes], Iterator[bytes]]
) -> None:
    path = tmp_path / "settings.json"
    value = {"seed": 1, "gamma": 0.99, "name": "pong", "list": [True, None]}
    document.write(path, value)
    for data in damage(path.read_bytes()):
        path.write_bytes(data)
        found, note = document.read(path)
        assert found == value
        assert note == "" or (f"{path} is damaged" in note and "settings.copy.json instead" in note)


def test_two_damaged_documents_are_an_error_and_an_older_one_is_read(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_text('{"seed": 4}')  # of before there were checksums
    assert document.read(path) == ({"seed": 4}, "")
    document.write(path, {"seed": 5})
    for file in (path, document.copy_of(path)):
        file.write_text(file.read_text().replace("5", "6", 1))
    with pytest.raises(DocumentError, match=r"settings.copy.json is damaged"):
        document.read(path)


def test_a_lost_or_damaged_agent_file_is_told_and_its_copy_used(tmp_path: Path) -> None:
    run = Run.open(tmp_path, "run", fresh=False)
    run.write_agent("game", "pong", SPACES)
    file = run.agent_directory("game") / "agent.json"
    for damage in (lambda: file.write_text("{}"), file.unlink):
        damage()
        told: list[str] = []
        assert run.agents(told.append) == {"game": ("pong", SPACES)}
        assert len(told) == 1 and f"{file} is damaged" in told[0] and "agent.copy.json" in told[0]
    run.close()


def test_a_server_starts_from_the_copy_and_says_so(tmp_path: Path) -> None:
    run = Run.open(tmp_path / "runs", "default", fresh=False)
    run.write_agent("game", "pong", SPACES)
    (run.agent_directory("game") / "agent.json").write_text('{"game": "pnog"}')
    run.close()
    server = Server(tmp_path / "runs")
    server.wait_for(r"warning +.*agent.json is damaged: .*; using .*agent.copy.json instead")
    assert server.port
    server.stop()
    server.kill()
