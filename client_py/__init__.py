"""The Coinop client for Python: plays Gymnasium environments and Atari games for a server."""
