"""Keeps the event loop on the core of its only client, as long as there is just one nearby.

Client and server take turns then: neither gains by a core of its own, and both lose by it. A core
that nobody uses between two frames falls asleep, and on a virtual machine waking it takes longer
than the answer. The core is the kernel's word (SO_INCOMING_CPU). Only a client that is held on its
core is followed, as the fleet holds a lone emulator: another one would leave it when we come.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

_SURE = 3  # looks that must find a client on the same core before it is followed
_THREADS = Path("/proc/self/task")


class Perch:
    """The event loop's place: one core, or any. Used by the event loop's own thread only."""

    def __init__(self) -> None:
        self._cores = cores()
        self._client: object | None = None
        self._core: int | None = None  # where the client was at the last look
        self._found = 0  # looks in a row that found it there
        self._moves = False  # the client came away when it was followed
        self.core: int | None = None  # where we sit; None: anywhere

    def look(self, client: object | None, core: int | None) -> None:
        """Follow the only client to its core; None where there is no such client, or core."""
        if client is not self._client:
            self._client, self._found, self._moves = client, 0, False
            self.leave()
        self._found = self._found + 1 if core == self._core else 0
        self._core = core
        if self.core is not None and core != self.core:
            self._moves = True
            self.leave()
        if core is None or core not in self._cores or self._moves or len(self._cores) < 2:
            return
        if self._found >= _SURE:
            self.core = core
            os.sched_setaffinity(0, {core})
            self._free_others()

    def leave(self) -> None:
        """Sit anywhere again, also before something is started: it would inherit our core."""
        if self.core is not None:
            self.core, self._found = None, 0
            os.sched_setaffinity(0, self._cores)

    def _free_others(self) -> None:
        """Give threads that we started from here all cores back."""
        own = threading.get_native_id()
        for thread in _THREADS.iterdir():
            try:
                if int(thread.name) != own and len(os.sched_getaffinity(int(thread.name))) == 1:
                    os.sched_setaffinity(int(thread.name), self._cores)
            except ProcessLookupError:  # it has ended meanwhile
                continue


def cores() -> frozenset[int]:
    """Give the cores that this thread may use; none where the system does not say."""
    return frozenset(os.sched_getaffinity(0)) if sys.platform == "linux" else frozenset()
