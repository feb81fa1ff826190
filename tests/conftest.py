"""What holds for every test."""

from __future__ import annotations

from hypothesis import settings

# A shared machine stalls now and then: speed is measured in bench/, never by a test's deadline.
settings.register_profile("coinop", deadline=None)
settings.load_profile("coinop")
