"""How many files and connections this process may have open at once."""

from __future__ import annotations

import resource

_EACH = 2  # of a connection: the transport's and the inlet
_RESERVE = 64  # for the run's files, logs of emulators, and refusals, which are connections too


def allow(connections: int) -> None:
    """Let this process have that many connections, as far as the system permits."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _EACH * connections + _RESERVE
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def connections() -> int:
    """Give how many connections there can be, with enough left for everything else."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 30 if soft == resource.RLIM_INFINITY else max(1, (soft - _RESERVE) // _EACH)
