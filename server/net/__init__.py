"""Bytes: what goes over the wire, one connection's rules, and the sockets."""
