"""People: the keys they press, and the screen they look at."""
