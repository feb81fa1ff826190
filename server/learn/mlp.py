"""A plain network as forward.c reads it.

Numpy needs a dozen calls for a forward pass, and each finds its code and the weights evicted by the
emulators that ran meanwhile.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

_PANEL = 16  # columns, as in forward.c


class _Network(ctypes.Structure):
    """struct network of forward.h."""

    _fields_ = (
        ("layers", ctypes.c_int32),
        ("heads", ctypes.c_int32),
        ("sizes", ctypes.c_void_p),
        ("ends", ctypes.c_void_p),
        ("panels", ctypes.c_void_p),
        ("from_", ctypes.c_void_p),
        ("to", ctypes.c_void_p),
        ("widest", ctypes.c_int32),
        ("value_bytes", ctypes.c_int32),
        ("best", ctypes.c_void_p),
    )


class Mlp:
    """A plain MLP and the memory that observations pass through in it; for one thread."""

    def __init__(
        self,
        library: ctypes.PyDLL,
        layers: Sequence[Floats],
        branches: Sequence[int],
        observation: str = "float32",
    ) -> None:
        """Take each layer's matrix (inputs + 1, outputs) with its bias last, and heads' sizes.

        A lone observation comes as bytes: of float32 or of uint8 values.
        """
        self._value_bytes = np.dtype(observation).itemsize
        self._forward, self._choose = library.forward, library.choose
        self._sizes = np.array([len(layer) - 1 for layer in layers] + [layers[-1].shape[1]], "i4")
        self._outputs = int(self._sizes[-1])
        self._ends = np.cumsum(branches, dtype="i4")
        self._panels = np.concatenate([_panels(layer) for layer in layers])
        self._best = (ctypes.c_int32 * len(branches))()
        self._rows = 0
        self._make_room(1)

    def ready_for(self, rows: int) -> ctypes.c_void_p:
        """Give forward.c's network, with room for so many observations."""
        if rows > self._rows:
            self._make_room(rows)
        return self._network

    def judge(self, observation: npt.NDArray[Any]) -> Floats:
        """Give the outputs for a batch of observations: (batch, outputs)."""
        rows = len(observation)
        network = self.ready_for(rows)
        self._first[:rows] = observation
        said = self._said[self._forward(network, rows)]
        kept: Floats = said[:rows].copy()  # the next batch goes through the same memory
        return kept

    def choose(self, observation: bytes) -> tuple[list[int], Floats]:
        """Give each head's best choice for a lone observation, and the outputs for this moment."""
        said = self._lone[self._choose(self._network, observation)]
        return self._best[:], said

    def _make_room(self, rows: int) -> None:
        widest = max(_padded(int(size)) for size in self._sizes)
        memory = np.zeros((2, rows, widest), np.float32)
        self._rows = rows
        self._first = memory[0, :, : self._sizes[0]]
        self._said = [half[:, : self._outputs] for half in memory]
        self._lone = [half[0] for half in self._said]
        self._held = _Network(
            len(self._sizes) - 1,
            len(self._ends),
            self._sizes.ctypes.data,
            self._ends.ctypes.data,
            self._panels.ctypes.data,
            memory[0].ctypes.data,
            memory[1].ctypes.data,
            widest,
            self._value_bytes,
            ctypes.addressof(self._best),
        )
        self._network = ctypes.c_void_p(ctypes.addressof(self._held))


def _panels(layer: Floats) -> Floats:
    """Lay a matrix out as forward.c reads it."""
    inputs, outputs = layer.shape
    padded = np.zeros((inputs, _padded(outputs)), np.float32)
    padded[:, :outputs] = layer
    return padded.reshape(inputs, -1, _PANEL).transpose(1, 0, 2).ravel()


def _padded(size: int) -> int:
    return -(-size // _PANEL) * _PANEL
