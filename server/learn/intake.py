"""Takes the frames of other rings into one ring, each exactly once, with its links.

The rules:
- A stream is one ring of one gateway; its frames are numbered by their index there, from 0 on.
- A shipment is frames in a row. One that begins before the frame expected next was taken already,
  wholly or in part: nothing of it is taken, and the answer says where to go on.
- A ring may come back with fewer frames than it had, after a power failure: its gateway says how
  far it goes, and what it appends from there on is new, though the numbers were used before.
- Where several learners share a stream, each expects its own frames only (``Share``).
- A link leads to a frame of the same stream, or it is cut.
- A frame's action may be set right until its successor comes (``Replay.correct``), so a shipment
  also brings the settled actions of the frames before it that its own frames follow.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np

from server.learn.replay import Array, Columns, Ints, Replay
from server.learn.share import ALL, Share

_SPANS = 1024  # shipments that can be linked to: minutes, more than any client may be away


class Settled(NamedTuple):
    """Actions that nothing changes any more."""

    which: Ints  # (frames,) their indices
    choice: Array  # (frames, heads)
    continuous: Array  # (frames, controls)
    source: Array  # (frames,)


class Shipment(NamedTuple):
    """Frames in a row of one stream."""

    first: int  # index of the first of them
    frames: Columns
    settled: Settled
    share: Share = ALL  # of the stream's frames, that they belong to

    @property
    def stop(self) -> int:
        """Index after the last of them."""
        return self.first + len(self.frames.previous)

    @property
    def size_bytes(self) -> int:
        """What it weighs."""
        return sum(column.nbytes for column in (*self.frames, *self.settled))


class Span(NamedTuple):
    """Where frames in a row of a stream were put."""

    first: int
    stop: int
    at: int


def pack(replay: Replay, first: int, stop: int, share: Share = ALL) -> Shipment | None:
    """Make a shipment of some frames; None if the ring's writer overtook us meanwhile."""
    frames = replay.cut(first, stop)
    followed = np.unique(frames.previous)
    index = followed[(followed < first) & (followed >= max(0, replay.oldest))]
    at = index % replay.layout.capacity
    settled = Settled(
        index,
        replay.column("choice").take(at, axis=0),
        replay.column("continuous").take(at, axis=0),
        replay.column("source").take(at),
    )
    oldest = replay.oldest  # only now: all of it has been copied
    if first < oldest:
        return None
    whole = index >= oldest
    return Shipment(first, frames, Settled(*(column[whole] for column in settled)), share)


class _Stream:
    """How far one stream has been taken, and where its newest frames are."""

    def __init__(self, expected: int) -> None:
        self.expected = expected
        self._spans: deque[Span] = deque(maxlen=_SPANS)

    def add(self, span: Span) -> None:
        self._spans.append(span)
        self.expected = span.stop

    def set_back(self, head: int) -> None:
        """Forget where frames are that the stream itself does not have any more."""
        kept = [s._replace(stop=min(s.stop, head)) for s in self._spans if s.first < head]
        self._spans = deque(kept, maxlen=_SPANS)
        self.expected = head

    def places(self, index: Ints) -> Ints:
        """Give where these frames of the stream are, -1 for those that nobody knows of."""
        if not self._spans:
            return np.full(len(index), -1)
        firsts, stops, at = np.array(self._spans).T
        span = np.searchsorted(firsts, index, "right") - 1
        known = (span >= 0) & (index < stops[span])
        return np.where(known, index - firsts[span] + at[span], -1)


class Intake:
    """The only writer of a ring that is fed by streams."""

    def __init__(self, replay: Replay) -> None:
        self._replay = replay
        self._streams: dict[str, _Stream] = {}
        self.shipments = 0
        self.frames = 0
        self.size_bytes = 0
        self.repeated = 0  # shipments that had come before
        self.missing = 0  # frames that their stream skipped

    def expected(self, stream: str) -> int | None:
        """Give the index of the frame to come next; None for a stream that never came."""
        known = self._streams.get(stream)
        return known.expected if known else None

    def resume(self, stream: str, head: int) -> int | None:
        """Give the same for a stream of which its gateway knows frames up to the head only."""
        known = self._streams.get(stream)
        if known is not None and known.expected > head:
            known.set_back(head)
        return self.expected(stream)

    def take(self, stream: str, shipment: Shipment) -> int:
        """Take a shipment that is due; give the index of the frame to come next."""
        known = self._streams.setdefault(stream, _Stream(shipment.first))
        if shipment.first < known.expected:
            self.repeated += 1
            return known.expected
        self.missing += shipment.share.count(known.expected, shipment.first)
        self._settle(known, shipment.settled)
        self._append(known, shipment)
        self.shipments += 1
        self.frames += len(shipment.frames.previous)
        self.size_bytes += shipment.size_bytes
        return known.expected

    def _settle(self, stream: _Stream, settled: Settled) -> None:
        places = stream.places(settled.which).tolist()
        for row, place in enumerate(places):
            if place >= 0:
                self._replay.correct(
                    place, settled.choice[row], settled.continuous[row], int(settled.source[row])
                )

    def _append(self, stream: _Stream, shipment: Shipment) -> None:
        head, previous = self._replay.head, shipment.frames.previous
        links = np.where(
            previous >= shipment.first, previous - shipment.first + head, stream.places(previous)
        )
        self._replay.extend(shipment.frames._replace(previous=links))
        stream.add(Span(shipment.first, shipment.stop, head))
