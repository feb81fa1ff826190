"""Recorded RAM: what was held, and every byte after every frame."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Trace = npt.NDArray[np.uint8]  # (frames, bytes)
Bytes = npt.NDArray[np.uint8]  # one byte, frame by frame
Column = npt.NDArray[np.int64]  # one number, frame by frame


@dataclass(frozen=True, slots=True)
class Hold:
    """One input held from the first frame of a trace on."""

    control: int  # place in the list of controls
    value: int
    moment: int  # where in the game it was tried
    trace: Trace


@dataclass(frozen=True, slots=True)
class Recording:
    """All that was recorded of one game."""

    addresses: tuple[int, ...]  # of the columns
    analog: tuple[bool, ...]  # of each control
    release: int  # the frame at which held buttons were let go
    baselines: tuple[Trace, ...]  # nothing held, one for each moment
    holds: tuple[Hold, ...]
    idle: Trace  # nothing held for long, from the start on
    plays: tuple[Trace, ...]  # random inputs for long, from the start on

    def repeats(self) -> bool:
        """Say whether the game went the same way twice from the same moment."""
        return bool((self.idle[: len(self.baselines[0])] == self.baselines[0]).all())

    def check_valid(self) -> None:
        """Raise an AssertionError if the parts do not fit together."""
        width = len(self.addresses)
        traces = [*self.baselines, *(hold.trace for hold in self.holds), self.idle, *self.plays]
        assert all(trace.dtype == np.uint8 and trace.shape[1] == width for trace in traces)
        assert list(self.addresses) == sorted(set(self.addresses))
        for hold in self.holds:
            assert 0 <= hold.control < len(self.analog)
            assert len(hold.trace) == len(self.baselines[hold.moment])


def wrapped(differences: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Give the shortest way from one byte value to another: 255 to 0 is one up."""
    return (differences + 128) % 256 - 128


def moves(trace: Trace) -> npt.NDArray[np.int64]:
    """Give how far each byte moved from frame to frame."""
    values = trace.astype(np.int64)
    return wrapped(values[1:] - values[:-1])
