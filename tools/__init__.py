"""The commands beside the server: each module is one, named after itself."""
