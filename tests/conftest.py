"""What holds for every test."""

from __future__ import annotations

import pytest
from hypothesis import settings

# A shared machine stalls now and then: speed is measured in bench/, never by a test's deadline.
settings.register_profile("coinop", deadline=None)
settings.load_profile("coinop")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have one process run all that starts Ray: two clusters at once are too much for two cores."""
    for item in items:
        if "cluster" in item.path.parts or item.path.name == "test_cluster.py":
            item.add_marker(pytest.mark.xdist_group("ray"))
