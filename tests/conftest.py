"""What holds for every test."""

from __future__ import annotations

import pytest
from hypothesis import settings

# A shared machine stalls now and then: speed is measured in bench/, never by a test's deadline.
settings.register_profile("coinop", deadline=None)
settings.load_profile("coinop")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what starts Ray: on two cores its nodes lose each other when others work beside them."""
    for item in items:
        if item.path.parent.name == "cluster":
            item.add_marker(pytest.mark.alone)
