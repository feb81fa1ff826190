"""Finding out what a game's RAM means: what is tried, what is recorded, what it tells."""
