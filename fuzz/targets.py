"""What must hold for any bytes at all: each target takes some and raises where a rule is broken."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch

from server.learn import checkpoint as checkpoints
from server.learn.replay import Frames, Layout, Replay, ReplayError
from server.learn.sampler import UniformSampler
from server.net.protocol import Event, Protocol, State
from server.net.wire import START, TERMINAL, Frame, Hello, Welcome, WireError

_MOST_BYTES = 4096  # of a message; small, so that the limit is met
_PATCH_BYTES = 5  # where (4), and what (1)


def protocol(data: bytes) -> None:
    """A stream is a list of events, however it is cut; after a fault nothing more is read.

    The first byte says how long the pieces are into which the rest is cut.
    """
    piece, stream = 1 + (data[0] if data else 0), data[1:]
    pieces = [stream[at : at + piece] for at in range(0, len(stream), piece)]
    whole, cut = _events([stream]), _events(pieces)
    if [str(event) for event in whole] != [str(event) for event in cut]:
        raise AssertionError(f"the cut matters: {whole} and {cut}")


def _events(pieces: list[bytes]) -> list[Event]:
    """Give what a server that welcomes everybody hears."""
    listening, heard = Protocol(max_message_bytes=_MOST_BYTES), list[Event]()
    frame_bytes = 0
    for piece in pieces:
        lone = listening.lone_frame(piece)
        for event in listening.receive(piece) if lone is None else [lone]:
            if heard and isinstance(heard[-1], WireError):
                raise AssertionError("something is read after a fault")
            heard.append(event)
            if isinstance(event, Hello):
                frame_bytes = event.spaces.observation.size_bytes
                listening.welcome(Welcome("s", 10.0, _MOST_BYTES), event.spaces)
            elif isinstance(event, Frame) and len(event.observation) != frame_bytes:
                raise AssertionError("an observation of another size")
        if listening.buffered_bytes > _MOST_BYTES + 4:
            raise AssertionError("more is held than a message may have")
    if heard and isinstance(heard[-1], WireError) and listening.state is not State.CLOSED:
        raise AssertionError("a fault leaves the connection open")
    return heard


def checkpoint(data: bytes) -> None:
    """A checkpoint with some bytes changed is refused by name, or is the one that was written."""
    good = _checkpoint()
    with _file(_patched(good, data)) as path:
        try:
            read = checkpoints.read(path)
        except checkpoints.CheckpointError as error:
            if str(path) not in str(error):
                raise AssertionError("the file is not named") from error
            return
    if dict(read.plain) != {"frames": 7}:
        raise AssertionError("a damaged checkpoint is read as if it were good")


def replay(data: bytes) -> None:
    """A replay with some bytes changed is refused, or can be sampled without harm."""
    layout = Layout(4096, "uint8", 1, 1, 1)
    with _file(_patched(_replay(), data)) as path:
        try:
            found = Replay.in_file(path, layout)
            found.check_valid()
        except ReplayError:
            return
        UniformSampler(found, seed=1).sample(64, n_step=3, gamma=0.9)


def _patched(good: bytes, patches: bytes) -> bytes:
    """Change single bytes; an odd end cuts the file there."""
    changed = bytearray(good)
    for at in range(0, len(patches), _PATCH_BYTES):
        patch = patches[at : at + _PATCH_BYTES]
        where = int.from_bytes(patch[:4], "little") % max(1, len(changed))
        if len(patch) < _PATCH_BYTES:
            del changed[where:]
        elif changed:
            changed[where] = patch[4]
    return bytes(changed)


@functools.cache
def _checkpoint() -> bytes:
    """Give a small good checkpoint."""
    with tempfile.TemporaryDirectory() as directory:
        kept = checkpoints.Checkpoint({"weights": torch.arange(3.0)}, {"frames": 7})
        checkpoints.save(Path(directory), kept)
        return Path(directory, checkpoints.NAME).read_bytes()


@functools.cache
def _replay() -> bytes:
    """Give a small good replay that has gone round its ring."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "replay.bin")
        made = Replay.in_file(path, Layout(4096, "uint8", 1, 1, 1))
        nothing = np.zeros((1, 1), np.float32)
        for number in range(5000):
            place = number % 50
            flags = START if place == 0 else TERMINAL if place == 49 else 0
            seen = np.array([[number % 256]], np.uint8)
            before = number - 1 if place else -1
            made.append(Frames(seen, [[1]], nothing, [1.0], [flags], [0], 1, [before]))
        return path.read_bytes()


@contextmanager
def _file(data: bytes) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "file")
        path.write_bytes(data)
        yield path


TARGETS: dict[str, Callable[[bytes], None]] = {
    "protocol": protocol,
    "checkpoint": checkpoint,
    "replay": replay,
}
