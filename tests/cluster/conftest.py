"""One Ray cluster for the module's tests: several nodes, all of them on this machine."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from typing import Any

import pytest

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
try:
    import ray
    from ray.cluster_utils import Cluster
except ModuleNotFoundError:
    pytest.skip("Ray is not installed (requirements-cluster.txt)", allow_module_level=True)

_NODE = {"object_store_memory": 100 << 20}


class Nodes:
    """A head that has little, and further nodes that come and go."""

    def __init__(self) -> None:
        self.cluster: Any = Cluster(
            initialize_head=True,
            head_node_args={"num_cpus": 1, **_NODE},
        )

    @property
    def address(self) -> str:
        return str(self.cluster.address)

    def add(self, cpus: int) -> Any:
        node = self.cluster.add_node(num_cpus=cpus, **_NODE)
        self.cluster.wait_for_nodes()
        return node

    def remove(self, node: Any) -> None:
        self.cluster.remove_node(node, allow_graceful=False)


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    nodes = Nodes()
    ray.init(nodes.address, log_to_driver=False, logging_level="ERROR")
    yield nodes
    ray.shutdown()
    nodes.cluster.shutdown()


@pytest.fixture
def ports() -> int:
    """The first of some free ports in a row."""
    for first in range(20000 + os.getpid() % 5000, 32000, 10):
        try:
            for port in range(first, first + 4):
                socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return first
    raise AssertionError("no free ports")
