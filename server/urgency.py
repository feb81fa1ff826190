"""Asks the kernel to let this thread in at once when it wakes, before those that compute.

Linux shares a core out in slices of about a millisecond and a half: who wakes beside an emulator
in the middle of its frame waits for the slice's end. A thread with a short slice does not (Linux
6.12 and newer); it gets no more of the core than before. Where this cannot be, all stays as it is.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys

_SLICE_NS = 100_000  # the shortest that Linux grants
_NOT_INHERITED = 1  # SCHED_FLAG_RESET_ON_FORK: the threads and emulators we start are as usual
_CALLS = {"x86_64": 314, "aarch64": 274}  # numbers of sched_setattr(2), which libc 2.36 has not


class _Attributes(ctypes.Structure):
    """struct sched_attr, as far as Linux 3.14 knows it."""

    _fields_ = (
        ("size", ctypes.c_uint32),
        ("policy", ctypes.c_uint32),
        ("flags", ctypes.c_uint64),
        ("nice", ctypes.c_int32),
        ("priority", ctypes.c_uint32),
        ("runtime_ns", ctypes.c_uint64),
        ("deadline_ns", ctypes.c_uint64),
        ("period_ns", ctypes.c_uint64),
    )


def claim() -> bool:
    """Have the calling thread let in at once from now on; say whether the kernel agreed."""
    call = _CALLS.get(platform.machine()) if sys.platform == "linux" else None
    if call is None or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return False  # somebody has chosen for us
    wanted = _Attributes(
        size=ctypes.sizeof(_Attributes),
        policy=os.SCHED_OTHER,
        flags=_NOT_INHERITED,
        nice=os.getpriority(os.PRIO_PROCESS, 0),
        runtime_ns=_SLICE_NS,
    )
    return bool(ctypes.CDLL(None).syscall(call, 0, ctypes.byref(wanted), 0) == 0)
