"""Hostile input, found by coverage: ``make fuzz`` looks for it, the suite keeps what was found."""
