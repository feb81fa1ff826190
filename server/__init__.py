"""The Coinop server: frames in, actions out, one learner that gets better."""

VERSION = "0.1.0"  # as in pyproject.toml
