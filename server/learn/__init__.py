"""Numbers: what is remembered, how the network learns from it, how it plays."""
