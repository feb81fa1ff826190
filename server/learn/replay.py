"""A ring of frames, each stored once and linked to its client's next: what the agent remembers.

The rules:
- One writer appends and links; one reader gathers. There is no lock.
- A frame has an index that only grows; its slot is the index modulo the capacity.
- The head is published after a frame's data, a link after both: whoever sees a link may follow it.
- A frame's reward is what the step to it earned, so it belongs to the action of the frame before.
- The writer destroys at most GUARD frames beyond the head before it moves the head, so frames
  younger than the head minus the capacity plus GUARD are whole (``oldest``).
- To empty the replay, the writer moves the floor up to the head: frames below it are forgotten,
  though the ring still holds them. The floor lives beside the head and only grows.
- A stack is a frame and those before it in its episode. Where there are none (the episode or the
  ring begins), the oldest that is there stands in for them.
"""

from __future__ import annotations

import dataclasses
import json
import mmap
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from server import document
from server.net.wire import ENDED, START, TERMINAL
from server.spaces import Spaces

GUARD = 1024  # frames
MIN_CAPACITY = 4 * GUARD
USUAL_CAPACITY = 1_000_000
USUAL_BYTES = 10**9  # at most, unless somebody asks for more

_MAGIC = b"COINOPRB"
_FORMAT = 1
_HEADER_BYTES = 4096
_HEAD_AT = 64  # where the head lives: eight bytes of its own, written in one go
_FLOOR_AT = 72  # the same for the floor
_HEAD_AGAIN_AT = 80  # both once more, written after the first: two that differ are damaged
_FLOOR_AGAIN_AT = 88
_LAYOUT_AT = 128

Ints = npt.NDArray[np.int64]
Array = npt.NDArray[Any]


class ReplayError(RuntimeError):
    """A replay that cannot be used, or whose rules are broken."""


class Frames(NamedTuple):
    """A batch to append: at most one frame of each client."""

    observation: Array  # (batch, values)
    choice: Sequence[Sequence[int]] | Array  # (batch, heads) the chosen value of each head
    continuous: Array  # (batch, controls) in -1..1
    reward: Sequence[float]  # (batch,)
    flags: Sequence[int]  # (batch,)
    source: Sequence[int] | Array  # (batch,)
    version: int  # of the weights that chose
    previous: Sequence[int]  # (batch,) index of the same client's frame before, -1 for none

    def rows(self, start: int, stop: int) -> Frames:
        """Give a part of the batch."""
        parts = {
            name: column if name == "version" else column[start:stop]
            for name, column in self._asdict().items()
        }
        return Frames(**parts)


class Columns(NamedTuple):
    """Frames in a row as a ring holds them: what travels to another ring."""

    observation: Array  # (frames, values)
    choice: Array  # (frames, heads)
    continuous: Array  # (frames, controls)
    reward: Array  # (frames,)
    flags: Array  # (frames,)
    source: Array  # (frames,)
    version: Array  # (frames,)
    previous: Ints  # (frames,) index of the same client's frame before, -1 for none

    def rows(self, start: int, stop: int) -> Columns:
        """Give a part of them."""
        return Columns(*(column[start:stop] for column in self))


class Transitions(NamedTuple):
    """What a gradient step learns from; each row carries its own discount."""

    observation: Array  # (batch, depth * values)
    choice: Array  # (batch, heads)
    continuous: Array  # (batch, controls)
    reward: Array  # (batch,) discounted sum over the steps taken
    discount: Array  # (batch,) of what follows; 0 after a terminal frame
    next_observation: Array  # (batch, depth * values)
    source: Array  # (batch,)


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of a replay: what decides whether a file fits."""

    capacity: int
    observation: str  # numpy dtype
    values: int
    heads: int
    controls: int

    @classmethod
    def of(cls, spaces: Spaces, capacity: int) -> Layout:
        """Give the layout for a game's spaces."""
        return cls(
            capacity,
            spaces.observation.dtype,
            spaces.observation.values,
            len(spaces.actions.heads),
            len(spaces.actions.continuous),
        )

    @classmethod
    def usual(cls, spaces: Spaces, least: int = MIN_CAPACITY) -> Layout:
        """Give the layout of a million frames, or of as many as 1 GB holds."""
        million = cls.of(spaces, USUAL_CAPACITY)
        fitting = USUAL_CAPACITY * USUAL_BYTES // million.size_bytes() // 1000 * 1000
        return cls.of(spaces, min(USUAL_CAPACITY, max(fitting, least, MIN_CAPACITY)))

    def as_kept(self, path: Path) -> Layout:
        """Give the layout with the capacity of the replay in a file, if there is one."""
        if not path.exists():
            return self
        with path.open("rb") as file:
            found = _read_layout(path, file.read(_HEADER_BYTES))
        return dataclasses.replace(self, capacity=found.capacity)

    def columns(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Give each column's dtype and shape."""
        one = (self.capacity,)
        return {
            "observation": (self.observation, (self.capacity, self.values)),
            "choice": ("int16", (self.capacity, self.heads)),
            "continuous": ("float32", (self.capacity, self.controls)),
            "reward": ("float32", one),
            "flags": ("uint8", one),
            "source": ("uint8", one),
            "version": ("uint32", one),
            "next": ("int32", one),
            "prev": ("int32", one),
        }

    def describe(self) -> str:
        """Say it in words, for a person who has to compare two."""
        return (
            f"{self.capacity:,} frames of {self.values} {self.observation} values, "
            f"{self.heads} discrete heads and {self.controls} continuous controls"
        )

    def size_bytes(self) -> int:
        """Give the size of the whole file."""
        return _HEADER_BYTES + sum(
            _aligned(np.dtype(dtype).itemsize * int(np.prod(shape)))
            for dtype, shape in self.columns().values()
        )


class Replay:
    """The ring itself: columns of one mapped block, in a file or in memory of its own."""

    def __init__(self, block: mmap.mmap, layout: Layout) -> None:
        self.layout = layout
        self._block = block
        self._head = np.frombuffer(block, np.int64, 1, _HEAD_AT)
        self._floor = np.frombuffer(block, np.int64, 1, _FLOOR_AT)
        self._head_again = np.frombuffer(block, np.int64, 1, _HEAD_AGAIN_AT)
        self._floor_again = np.frombuffer(block, np.int64, 1, _FLOOR_AGAIN_AT)
        self.note = ""  # what a person should know of how it was found
        columns: dict[str, Array] = {}
        at = _HEADER_BYTES
        for name, (dtype, shape) in layout.columns().items():
            count = int(np.prod(shape))
            columns[name] = np.frombuffer(block, dtype, count, at).reshape(shape)
            at += _aligned(columns[name].nbytes)
        self._observation = columns["observation"]
        self._choice = columns["choice"]
        self._continuous = columns["continuous"]
        self._reward = columns["reward"]
        self._flags = columns["flags"]
        self._source = columns["source"]
        self._version = columns["version"]
        self._next = columns["next"]
        self._prev = columns["prev"]
        # The same memory for single items, which numpy is slow to write.
        self._items: dict[str, Any] = {
            name: column.reshape(-1).data for name, column in columns.items()
        }
        self._observation_items = self._items["observation"].cast("B")
        self._observation_bytes = self._observation.strides[0]
        self._head_item, self._head_again_item = self._head.data, self._head_again.data

    @classmethod
    def in_memory(cls, layout: Layout) -> Replay:
        """Make a replay that dies with the process."""
        _check_capacity(layout)
        return cls(mmap.mmap(-1, layout.size_bytes()), layout)

    @classmethod
    def in_file(cls, path: Path, layout: Layout) -> Replay:
        """Open the replay in a file, or make it: for its one writer, as this may mend it."""
        _check_capacity(layout)
        if not path.exists():
            _create(path, layout)
        replay = cls(_map(path, layout, mmap.ACCESS_WRITE), layout)
        replay._settle(path)
        return replay

    @classmethod
    def to_read(cls, path: Path, layout: Layout) -> Replay:
        """Open the replay in a file that another process writes; nothing here can change it."""
        return cls(_map(path, layout, mmap.ACCESS_READ), layout)

    def _settle(self, path: Path) -> None:
        """Find out where the head and the floor were; one that is not sure is told or refused."""
        head, again = int(self._head[0]), int(self._head_again[0])
        if again and head != again:  # 0: of before it was written twice
            if min(head, again) < 0 or abs(head - again) > GUARD:
                raise ReplayError(
                    f"the header of the replay {path} is damaged (its head is {head} and {again}); "
                    "delete it, or use --fresh"
                )
            # Frames beyond the lower one may be half written, and no more than GUARD are.
            self.note = f"the head of the replay {path} is damaged: {head} and {again}; "
            head = min(head, again)
            self.note += f"going on with the {head:,} frames that are whole"
        if head < 0:
            raise ReplayError(f"the replay {path} has a negative head; delete it, or use --fresh")
        floor, floor_again = int(self._floor[0]), int(self._floor_again[0])
        if again and floor != floor_again:
            self.note = (self.note and self.note + "; ") + (
                f"the floor of the replay {path} is damaged: {floor} and {floor_again}; "
                "frames below the higher one are left out"
            )
        # After a power failure, the floor may be on disk and the head not.
        floor = min(max(0, floor, floor_again), head)
        self._head[0] = self._head_again[0] = head
        self._floor[0] = self._floor_again[0] = floor

    def addresses(self) -> dict[str, int]:
        """Give where its columns and its head are in memory, for the lane in C that writes there.

        The replay itself must be kept: it owns that memory.
        """
        columns = {
            "observation": self._observation,
            "choice": self._choice,
            "continuous": self._continuous,
            "reward": self._reward,
            "flags": self._flags,
            "source": self._source,
            "version": self._version,
            "next": self._next,
            "prev": self._prev,
            "head": self._head,
            "head_again": self._head_again,
        }
        return {name: column.ctypes.data for name, column in columns.items()}

    @property
    def head(self) -> int:
        """Number of frames ever appended, which is the index of the next one."""
        return int(self._head[0])

    @property
    def oldest(self) -> int:
        """Index of the oldest frame that is certainly whole, and not forgotten."""
        return max(int(self._floor[0]), self.head - self.layout.capacity + GUARD)

    @property
    def size(self) -> int:
        """Number of frames that can be read."""
        return max(0, self.head - self.oldest)

    # --- the writer -------------------------------------------------------------------------

    def append(self, frames: Frames) -> int:
        """Add frames, each linked to its client's frame before; give the first index."""
        first = self.head
        count = len(frames.previous)
        if count <= GUARD:
            self._append(frames)
            return first
        for start in range(0, count, GUARD):
            self._append(frames.rows(start, start + GUARD))
        return first

    def append_one(
        self,
        observation: bytes,
        choice: Sequence[int],
        continuous: Sequence[float],
        reward: float,
        flags: int,
        source: int,
        version: int,
        previous: int,
    ) -> int:
        """Add a lone frame and give its index; items are written much faster than slices."""
        capacity = self.layout.capacity
        index: int = self._head_item[0]
        slot = index % capacity
        prev = previous % capacity if previous >= max(0, index + 1 - capacity) else -1
        items = self._items
        size = self._observation_bytes
        self._observation_items[slot * size : slot * size + size] = observation
        first = slot * len(choice)
        for head, chosen in enumerate(choice):
            items["choice"][first + head] = chosen
        first = slot * len(continuous)
        for control, value in enumerate(continuous):
            items["continuous"][first + control] = value
        items["reward"][slot] = reward
        items["flags"][slot] = flags
        items["source"][slot] = source
        items["version"][slot] = version
        items["next"][slot] = -1
        items["prev"][slot] = prev
        # Published, and then written once more: the data above is whole.
        self._head_item[0] = self._head_again_item[0] = index + 1
        if prev >= 0:
            items["next"][prev] = slot
        return index

    def flush(self) -> None:
        """Forget every frame so far; the reader looks at ``oldest`` before and after it reads."""
        self._floor[0] = self.head
        self._floor_again[0] = self.head

    def _append(self, frames: Frames) -> None:
        capacity = self.layout.capacity
        index, count = self.head, len(frames.previous)
        # A frame whose predecessor was overwritten meanwhile begins a chain of its own.
        alive = max(0, index + count - capacity)
        prev = [before % capacity if before >= alive else -1 for before in frames.previous]
        at = index % capacity
        first = min(count, capacity - at)
        self._write(slice(at, at + first), frames, prev, slice(0, first))
        if first < count:
            self._write(slice(0, count - first), frames, prev, slice(first, count))
        # Published, and then written once more: the data above is whole.
        self._head_item[0] = self._head_again_item[0] = index + count
        links = self._next
        for row, slot in enumerate(prev):
            if slot >= 0:
                links[slot] = (at + row) % capacity

    def _write(self, here: slice, frames: Frames, prev: list[int], rows: slice) -> None:
        self._observation[here] = frames.observation[rows]
        self._choice[here] = frames.choice[rows]
        if self.layout.controls:
            self._continuous[here] = frames.continuous[rows]
        self._reward[here] = frames.reward[rows]
        self._flags[here] = frames.flags[rows]
        self._source[here] = frames.source[rows]
        self._version[here] = frames.version
        self._next[here] = -1
        self._prev[here] = prev[rows]

    def extend(self, frames: Columns) -> int:
        """Add frames of another ring, whose links lead to frames here; give the first index."""
        first = self.head
        for start in range(0, len(frames.previous), GUARD):
            self._extend(frames.rows(start, start + GUARD))
        return first

    def _extend(self, frames: Columns) -> None:
        capacity = self.layout.capacity
        index, count = self.head, len(frames.previous)
        slots = np.arange(index, index + count) % capacity
        alive = frames.previous >= max(0, index + count - capacity)
        prev = np.where(alive, frames.previous % capacity, -1)
        self._observation[slots] = frames.observation
        self._choice[slots] = frames.choice
        self._continuous[slots] = frames.continuous
        self._reward[slots] = frames.reward
        self._flags[slots] = frames.flags
        self._source[slots] = frames.source
        self._version[slots] = frames.version
        self._next[slots] = -1
        self._prev[slots] = prev
        # Published, and then written once more: the data above is whole.
        self._head_item[0] = self._head_again_item[0] = index + count
        self._next[prev[alive]] = slots[alive]

    def correct(
        self, index: int, choice: Sequence[int], continuous: Sequence[float], source: int
    ) -> int | None:
        """Replace an action by the one really executed, only before the frame is linked.

        Gives who had chosen before, or None where the frame is gone already.
        """
        if index < self.oldest:
            return None
        slot = index % self.layout.capacity
        before = int(self._source[slot])
        self._choice[slot] = choice
        self._continuous[slot] = continuous
        self._source[slot] = source
        return before

    # --- the reader -------------------------------------------------------------------------

    def index_at(self, slot: Ints, head: int) -> Ints:
        """Give the index of the youngest frame in each slot, when the head was there."""
        return head - 1 - (head - 1 - slot) % self.layout.capacity

    def linked(self, index: Ints) -> npt.NDArray[np.bool_]:
        """Say which of these frames have a successor, so that a transition starts there."""
        linked: npt.NDArray[np.bool_] = self._next[index % self.layout.capacity] >= 0
        return linked

    def stack(self, index: Ints, depth: int) -> Ints:
        """Give the indices of each frame and those before it, oldest first: (batch, depth)."""
        capacity, oldest = self.layout.capacity, self.oldest
        stack = np.empty((len(index), depth), np.int64)
        stack[:, -1] = index
        for column in range(depth - 1, 0, -1):
            after = stack[:, column]
            prev = self._prev.take(after % capacity)
            # A predecessor was alive when its successor came, so it is less than a round older;
            # it may be gone by now.
            before = after - (after - prev) % capacity
            stack[:, column - 1] = np.where((prev >= 0) & (before >= oldest), before, after)
        return stack

    def stacked(self, observation: Array, previous: Sequence[int], depth: int) -> Array:
        """Put the frames before them on observations that are about to be appended.

        They are the stacks that ``gather`` will give: (batch, depth * values), oldest first.
        """
        before = np.array(previous)
        follows = before >= self.oldest
        stack = self.stack(np.where(follows, before, 0), depth - 1)
        frames = np.empty((len(observation), depth, self.layout.values), observation.dtype)
        frames[:, :-1] = self._observation.take(stack % self.layout.capacity, axis=0)
        frames[~follows] = observation[~follows, None]
        frames[:, -1] = observation
        return frames.reshape(len(observation), -1)

    def cut(self, first: int, stop: int) -> Columns:
        """Give a copy of frames in a row; it is whole if ``oldest`` is not above the first now."""
        capacity = self.layout.capacity
        index = np.arange(first, stop)
        slots = index % capacity
        prev = self._prev.take(slots).astype(np.int64)
        return Columns(
            self._observation.take(slots, axis=0),
            self._choice.take(slots, axis=0),
            self._continuous.take(slots, axis=0),
            self._reward.take(slots),
            self._flags.take(slots),
            self._source.take(slots),
            self._version.take(slots),
            np.where(prev >= 0, index - (index - prev) % capacity, -1),
        )

    def gather(self, index: Ints, *, n_step: int, gamma: float, depth: int = 1) -> Transitions:
        """Collect the transitions of up to n steps that start at these linked frames.

        Their observations are stacks of so many frames.
        """
        at = index % self.layout.capacity
        end = at
        returns = np.zeros(len(index), np.float32)
        discount = np.ones(len(index), np.float32)
        for _ in range(n_step):
            following = self._next.take(end)
            going = following >= 0
            end = np.where(going, following, end)
            returns += np.where(going, discount * self._reward.take(end), np.float32(0))
            discount *= np.where(going, np.float32(gamma), np.float32(1))
        # Nothing is linked after an episode's end, so a terminal frame can only be the last one.
        discount[(self._flags.take(end) & TERMINAL) != 0] = 0
        return Transitions(
            self._seen(index, depth),
            self._choice.take(at, axis=0),
            self._continuous.take(at, axis=0),
            returns,
            discount,
            self._seen(index + (end - at) % self.layout.capacity, depth),
            self._source.take(at),
        )

    def _seen(self, index: Ints, depth: int) -> Array:
        """Give the stacked observations of these frames: (batch, depth * values)."""
        if depth == 1:
            return self._observation.take(index % self.layout.capacity, axis=0)
        slots = self.stack(index, depth) % self.layout.capacity
        return self._observation.take(slots, axis=0).reshape(len(index), -1)

    # --- the inspector ----------------------------------------------------------------------

    def check_valid(self) -> None:
        """Raise a ReplayError if any rule of the links is broken; for a quiet replay only."""
        head, capacity = self.head, self.layout.capacity
        _require(0 <= int(self._floor[0]) <= head, "the floor lies above the head")
        index = np.arange(self.oldest, head)
        slot = index % capacity
        following, before = self._next[slot].astype(np.int64), self._prev[slot].astype(np.int64)
        _require(bool(np.all((following >= -1) & (following < capacity))), "a link leaves the ring")
        after = self.index_at(following, head)
        has_next = following >= 0
        _require(bool(np.all(after[has_next] > index[has_next])), "a link goes back in time")
        _require(
            bool(np.all(self._prev[following[has_next]] == slot[has_next])),
            "a successor does not name its predecessor",
        )
        _require(
            not np.any(has_next & ((self._flags[slot] & ENDED) != 0)),
            "a frame that ends its episode has a successor",
        )
        _require(
            not np.any((before >= 0) & ((self._flags[slot] & START) != 0)),
            "a frame that starts its episode has a predecessor",
        )

    def column(self, name: str) -> Array:
        """Give a whole column, for a look at what is stored."""
        column: Array = getattr(self, f"_{name}")
        return column


def _create(path: Path, layout: Layout) -> None:
    """Make the file under a temporary name, so that it is complete or absent."""
    text = json.dumps({"format": _FORMAT, **dataclasses.asdict(layout)}).encode()
    header = bytearray(_HEADER_BYTES)
    header[: len(_MAGIC)] = _MAGIC
    header[_LAYOUT_AT : _LAYOUT_AT + 8] = len(text).to_bytes(4, "little") + zlib.crc32(
        text
    ).to_bytes(4, "little")
    header[_LAYOUT_AT + 8 : _LAYOUT_AT + 8 + len(text)] = text
    temporary = path.with_suffix(".new")
    try:
        with temporary.open("wb") as file:
            # Reserved now: a full disk is an error here, not a SIGBUS in the middle of a game.
            _reserve(file.fileno(), layout.size_bytes())
            file.write(header)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        document.sync_directory(path.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise ReplayError(
            f"cannot make the replay {path} of {layout.size_bytes() / 1e6:,.0f} MB: "
            f"{error.strerror}; a smaller --replay-capacity or --replay-storage memory helps"
        ) from error


def _map(path: Path, layout: Layout, access: int) -> mmap.mmap:
    """Map a replay's file if it is of that layout."""
    with path.open("r+b" if access == mmap.ACCESS_WRITE else "rb") as file:
        found = _read_layout(path, file.read(_HEADER_BYTES))
        if found != layout:
            raise ReplayError(
                f"the replay {path} holds {found.describe()}; asked for is {layout.describe()}; "
                "use the settings it was made with, another --run, or --fresh"
            )
        size = os.fstat(file.fileno()).st_size
        if size != layout.size_bytes():
            raise ReplayError(
                f"the replay {path} has {size} bytes instead of {layout.size_bytes()}; "
                "delete it, or use --fresh"
            )
        return mmap.mmap(file.fileno(), size, access=access)


def _reserve(descriptor: int, size_bytes: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size_bytes)
    else:  # macOS
        os.truncate(descriptor, size_bytes)


def _read_layout(path: Path, header: bytes) -> Layout:
    try:
        if header[: len(_MAGIC)] != _MAGIC:
            raise ValueError("no replay's first bytes")
        length = int.from_bytes(header[_LAYOUT_AT : _LAYOUT_AT + 4], "little")
        text = header[_LAYOUT_AT + 8 : _LAYOUT_AT + 8 + length]
        if zlib.crc32(text) != int.from_bytes(header[_LAYOUT_AT + 4 : _LAYOUT_AT + 8], "little"):
            raise ValueError("a wrong checksum")
        plain = json.loads(text)
        if plain.pop("format") != _FORMAT:
            raise ValueError("another format")
        return Layout(**plain)
    except (ValueError, TypeError, KeyError) as error:
        raise ReplayError(
            f"the header of the replay {path} is damaged ({error}); delete it, or use --fresh"
        ) from error


def _check_capacity(layout: Layout) -> None:
    if layout.capacity < MIN_CAPACITY:
        raise ReplayError(f"a replay needs at least {MIN_CAPACITY} frames, not {layout.capacity}")


def _aligned(size_bytes: int) -> int:
    return -(-size_bytes // mmap.PAGESIZE) * mmap.PAGESIZE


def _require(holds: bool, broken: str) -> None:
    if not holds:
        raise ReplayError(broken)
