"""The server's C, compiled once for this machine where it has a compiler.

Without a compiler there is no library, and Python and numpy do the same, only slower.
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
from pathlib import Path

_HERE = Path(__file__).parent
_SOURCES = (_HERE / "learn" / "forward.c", _HERE / "lane.c")
_HEADERS = (_HERE / "learn" / "forward.h",)
_COMPILERS = ("cc", "gcc", "clang")
_OPTIONS = ("-O3", "-march=native", "-shared", "-fPIC")
_COMPILE_S = 60.0


@functools.cache
def library() -> ctypes.PyDLL | None:
    """Give the compiled code; None where it cannot be had. The first call may take a second.

    It keeps Python's lock: an answer takes microseconds, and getting the lock back from a thread
    that trains could take milliseconds.
    """
    try:
        path = _cache() / f"coinop-{_fingerprint()}.so"
        if not path.exists():
            _compile(path)
        found = ctypes.PyDLL(str(path))
    except (OSError, subprocess.SubprocessError):
        return None
    number, place, real = ctypes.c_int32, ctypes.c_void_p, ctypes.c_double
    found.forward.argtypes = (place, number)
    found.choose.argtypes = (place, ctypes.c_char_p)
    found.put.argtypes = (place, place, ctypes.c_char_p, ctypes.c_int64)
    found.receive.argtypes = (place, place, number)
    found.answer.argtypes = (place, place, ctypes.c_uint32, real, real)
    found.serve.argtypes = (place, place, place, number, ctypes.c_uint32, real, real)
    return found


def wanted() -> str:
    """Name what could compile it."""
    return f"{', '.join(_COMPILERS[:-1])} or {_COMPILERS[-1]}"


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "coinop"


def _fingerprint() -> str:
    """Name what the code is made of and for: a home may be shared by unlike machines."""
    processor = platform.processor()
    about = Path("/proc/cpuinfo")
    if about.exists():
        lines = about.read_text(encoding="utf-8", errors="replace").splitlines()
        told = [line for line in lines if line.startswith(("flags", "Features", "model name"))]
        processor = "\n".join(sorted(set(told)))
    sources = [path.read_bytes() for path in (*_SOURCES, *_HEADERS)]
    parts = (*sources, platform.machine().encode(), processor.encode(), repr(_OPTIONS).encode())
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def _compile(path: Path) -> None:
    compiler = next(filter(None, map(shutil.which, _COMPILERS)), None)
    if compiler is None:
        raise FileNotFoundError("no C compiler")
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as room:
        made = Path(room) / path.name
        command = [compiler, *_OPTIONS, "-o", str(made), *map(str, _SOURCES), "-lm"]
        subprocess.run(command, check=True, capture_output=True, timeout=_COMPILE_S)
        made.replace(path)
