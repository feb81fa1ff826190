"""Learners that step together: the first one tells what comes next, and gradients are averaged.

Every rank calls the same things in the same order, or waits for those who did not yet; who is gone,
or silent for too long, is an error for all others. Words and small figures cross between the
processors (gloo); gradients do as well, or between the graphics cards (nccl) if all have one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch import distributed as dist

_dist: Any = dist  # its types do not know of all that it has
Store = Any  # torch's: values by key, for whoever knows the port
_MEET_S = timedelta(seconds=120)  # for all to be there: torch is loaded on each node
_ANSWER_S = timedelta(seconds=60)  # for the others to come to where one is already
_MOST_BYTES = 2048  # of an order
LONGEST_SILENCE_S = 1.0  # of the first rank, however little there is to tell


class Place(NamedTuple):
    """Where the ranks of a group find each other."""

    host: str
    port: int


def open_place(place: Place, descriptor: int) -> Store:
    """Listen for those who come to meet, at a socket that is bound there and ours from now on.

    Left to itself, torch would listen on every address of this machine.
    """
    return _dist.TCPStore(
        *place, None, True, _MEET_S, wait_for_workers=False, master_listen_fd=descriptor
    )


def go_to(place: Place) -> Store:
    """Go to where the first rank listens."""
    return _dist.TCPStore(place.host, place.port, None, False, _MEET_S)


class Group:
    """One rank's line to all others; they meet when it is first used."""

    def __init__(
        self, rank: int, size: int, address: str, store: Callable[[], Store], device: str = "cpu"
    ) -> None:
        self.rank = rank
        self.size = size
        self._address = address  # by which the others reach this machine
        self._store = store
        self._device = device
        self._lines: Any = None  # to all others
        self._time_s = self._told_s = 0.0

    def clock(self) -> float:
        """Give the first rank's time at its newest order: the same for all."""
        return self._time_s

    @property
    def silence_s(self) -> float:
        """Seconds since the newest order was told."""
        return time.monotonic() - self._told_s

    def tell(self, order: dict[str, Any]) -> None:
        """Tell all others what comes next; the first rank does."""
        text = json.dumps({**order, "time_s": time.monotonic()}).encode()
        self._pass_on(torch.frombuffer(bytearray(text.ljust(_MOST_BYTES)), dtype=torch.uint8))
        self._time_s = self._told_s = json.loads(text)["time_s"]

    def hear(self) -> dict[str, Any]:
        """Wait for what comes next."""
        words = torch.zeros(_MOST_BYTES, dtype=torch.uint8)
        self._pass_on(words)
        order: dict[str, Any] = json.loads(words.numpy().tobytes())
        self._time_s = order.pop("time_s")
        return order

    def all(self, ready: bool) -> bool:
        """Say whether every rank is ready."""
        agreed = torch.tensor([int(ready)])
        self._reduce(agreed, _dist.ReduceOp.MIN)
        return bool(agreed.item())

    def mean(self, flat: Tensor, figure: float) -> tuple[Tensor, float]:
        """Give the mean of all ranks' tensors, and of a figure that goes with each."""
        both = torch.cat([flat, flat.new_tensor([figure])])
        if self._device == "cuda":
            self._meet()
            dist.all_reduce(both)
        else:
            there = both.cpu()
            self._reduce(there, _dist.ReduceOp.SUM)
            both = there.to(flat.device)
        both /= self.size
        return both[:-1], both[-1].item()

    def spread(self, tensors: Iterable[Tensor]) -> None:
        """Make tensors those of the first rank, everywhere."""
        for tensor in tensors:
            there = tensor.cpu()
            self._pass_on(there)
            tensor.copy_(there)

    # --- the lines --------------------------------------------------------------------------

    def _meet(self) -> Any:
        """Give the lines to all others; made once all ranks are there."""
        if self._lines is None:
            self._lines = self._connect()
        return self._lines

    def _connect(self) -> Any:
        store = self._store()
        here = [f"here/{rank}" for rank in range(self.size)]
        store.set(here[self.rank], "")
        store.wait(here, _MEET_S)
        options = _dist.ProcessGroupGloo._Options()
        options._devices = [_dist.ProcessGroupGloo.create_device(hostname=self._address)]
        options._timeout = _ANSWER_S
        if self._device == "cuda":
            dist.init_process_group(
                "nccl",
                store=_dist.PrefixStore("nccl", store),
                rank=self.rank,
                world_size=self.size,
                timeout=_ANSWER_S,
            )
        return _dist.ProcessGroupGloo(
            _dist.PrefixStore("gloo", store), self.rank, self.size, options
        )

    def _pass_on(self, tensor: Tensor) -> None:
        options = _dist.BroadcastOptions()
        options.rootRank = 0
        self._meet().broadcast([tensor], options).wait()

    def _reduce(self, tensor: Tensor, how: Any) -> None:
        options = _dist.AllreduceOptions()
        options.reduceOp = how
        self._meet().allreduce([tensor], options).wait()
