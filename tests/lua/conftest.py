"""What several tests of the Lua client share."""

from mame import mame

__all__ = ["mame"]
