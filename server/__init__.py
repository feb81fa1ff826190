"""The Coinop server: frames in, actions out, one learner that gets better."""
