"""Many machines: the lanes of one server as actors of Ray. Only here is Ray imported."""

LOCAL = "local"  # a cluster of this machine only, for as long as the server runs


class ClusterError(RuntimeError):
    """A cluster that cannot be used; the message names it and the fix."""
