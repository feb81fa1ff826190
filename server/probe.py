"""Measures contention: how late the event loop is, and how long Python's lock is waited for.

A thread has the event loop called now and then; the time until that happens is the loop's lag.
Then it sleeps for a random time, outside of Python's lock, and wants the lock back, as the event
loop does each time its poll returns. The kernel counts how often a thread goes to sleep:
more than once means that the lock was taken and had to be waited for. How long that took is what
the sleep was longer than others that found the lock free.

Who looks at random finds the lock taken as often as it is taken, so the share must agree with what
``py-spy --gil`` sees from outside (docs/metrics.md says how well it does).
"""

from __future__ import annotations

import contextlib
import random
import resource
import threading
import time
from collections.abc import Callable

from server.stats import Contention, Recent, percentiles

# On average. A look may take the lock from the event loop, which then waits for a switch interval
# or two to get it back.
INTERVAL_S = 0.4
_WINDOW_S = 60.0  # over which figures are taken
_FORGET = 0.05  # share of a new value in the usual one


class Probe:
    """Owns the thread and what it found."""

    def __init__(self, post: Callable[..., object], *, interval_s: float = INTERVAL_S) -> None:
        self._post = post  # has the event loop call something, from another thread
        self._interval_s = interval_s
        window = round(_WINDOW_S / interval_s)
        self.lag_s = Recent(window)
        self._wait_s = Recent(window)  # 0 where the lock was free
        self._usual_s = 0.0  # what a sleep takes longer than asked where the lock is free
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="probe", daemon=True)

    def start(self) -> None:
        """Begin to measure."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stopping = True
        if self._thread.is_alive():
            self._thread.join()

    def view(self, seconds: float | None = None) -> Contention | None:
        """Give what was found in the last seconds (a minute), or None if that is nothing."""
        newest = None if seconds is None else max(1, int(seconds / self._interval_s))
        lags, waits = 1e3 * self.lag_s.values(newest), 1e3 * self._wait_s.values(newest)
        if not len(lags):
            return None
        lag_p50_ms, lag_p99_ms, lag_max_ms = percentiles(lags, 50, 99, 100)
        return Contention(
            lag_p50_ms=lag_p50_ms,
            lag_p99_ms=lag_p99_ms,
            lag_max_ms=lag_max_ms,
            gil_share=float((waits > 0).mean()) if len(waits) else None,
            gil_wait_mean_ms=float(waits.mean()) if len(waits) else None,
            gil_wait_p99_ms=percentiles(waits, 99)[0] if len(waits) else None,
        )

    def _run(self) -> None:
        dice = random.Random()
        with contextlib.suppress(RuntimeError):  # the loop is closed: there is nothing to measure
            while not self._stopping:
                self._post(self._arrived, time.perf_counter())
                # Random, and long enough for what that call stirred up to settle. One sleep is all:
                # each time that this thread wakes, somebody loses the lock.
                asleep_s = self._interval_s * dice.uniform(0.5, 1.5)
                before, began = _naps(), time.perf_counter()
                time.sleep(asleep_s)
                late_s = time.perf_counter() - began - asleep_s
                if before is not None and (after := _naps()) is not None:
                    self._note(late_s, taken=after - before > 1)

    def _note(self, late_s: float, *, taken: bool) -> None:
        if taken:
            self._wait_s.add(max(1e-6, late_s - self._usual_s))
        else:
            self._usual_s += _FORGET * (late_s - self._usual_s)
            self._wait_s.add(0.0)

    def _arrived(self, posted_s: float) -> None:
        """Note the event loop's lag; called by it."""
        self.lag_s.add(time.perf_counter() - posted_s)


def _naps() -> int | None:
    """Give how often this thread has gone to sleep; asking does not let go of Python's lock."""
    if not hasattr(resource, "RUSAGE_THREAD"):  # another system than Linux: it does not tell
        return None
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
