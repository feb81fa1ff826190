"""The forward pass in C, compiled once for this machine where it has a compiler.

Numpy needs a dozen calls for it, and each finds its code and the weights evicted by the emulators
that ran meanwhile. Without a compiler there is no library, and numpy plays.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

_SOURCE = Path(__file__).with_name("forward.c")
_COMPILERS = ("cc", "gcc", "clang")
_OPTIONS = ("-O3", "-march=native", "-shared", "-fPIC")
_COMPILE_S = 60.0
_PANEL = 16  # columns, as in forward.c


class _Network(ctypes.Structure):
    """struct network of forward.c."""

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

    def judge(self, observation: npt.NDArray[Any]) -> Floats:
        """Give the outputs for a batch of observations: (batch, outputs)."""
        rows = len(observation)
        if rows > self._rows:
            self._make_room(rows)
        self._first[:rows] = observation
        said = self._said[self._forward(self._network, rows)]
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


@functools.cache
def library() -> ctypes.PyDLL | None:
    """Give the compiled code; None where it cannot be had. The first call may take a second.

    It keeps Python's lock: an answer takes microseconds, and getting the lock back from a thread
    that trains could take milliseconds.
    """
    try:
        source = _SOURCE.read_bytes()
        path = _cache() / f"forward-{_fingerprint(source)}.so"
        if not path.exists():
            _compile(path)
        found = ctypes.PyDLL(str(path))
    except (OSError, subprocess.SubprocessError):
        return None
    found.forward.argtypes = (ctypes.c_void_p, ctypes.c_int32)
    found.choose.argtypes = (ctypes.c_void_p, ctypes.c_char_p)
    return found


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "coinop"


def _fingerprint(source: bytes) -> str:
    """Name what the code is made of and for: a home may be shared by unlike machines."""
    processor = platform.processor()
    about = Path("/proc/cpuinfo")
    if about.exists():
        lines = about.read_text(encoding="utf-8", errors="replace").splitlines()
        told = [line for line in lines if line.startswith(("flags", "Features", "model name"))]
        processor = "\n".join(sorted(set(told)))
    parts = (source, platform.machine().encode(), processor.encode(), repr(_OPTIONS).encode())
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def _compile(path: Path) -> None:
    compiler = next(filter(None, map(shutil.which, _COMPILERS)), None)
    if compiler is None:
        raise FileNotFoundError("no C compiler")
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as room:
        made = Path(room) / path.name
        command = [compiler, *_OPTIONS, "-o", str(made), str(_SOURCE)]
        subprocess.run(command, check=True, capture_output=True, timeout=_COMPILE_S)
        made.replace(path)
