"""Every figure that Coinop publishes comes from here: ``python -m bench --help``."""
