"""How two sides show each other that they know the token, without sending it.

Each gives an HMAC-SHA256, keyed with the token, over its own label, the server's nonce and the
payload of the hello, which holds the client's nonce. docs/protocol.md is the normative text.
"""

from __future__ import annotations

import hashlib
import hmac

NONCE_BYTES = 32
PROOF_BYTES = 32

_CLIENT = b"coinop client\0"  # other labels: what one side shows is never the other's proof
_SERVER = b"coinop server\0"


def by_client(token: str, nonce: bytes, hello: bytes) -> bytes:
    """Give what a client answers to a challenge."""
    return _proof(token, _CLIENT, nonce, hello)


def by_server(token: str, nonce: bytes, hello: bytes) -> bytes:
    """Give what a server shows in its welcome."""
    return _proof(token, _SERVER, nonce, hello)


def equal(shown: bytes, expected: bytes) -> bool:
    """Compare in a time that does not tell how much of it is right."""
    return hmac.compare_digest(shown, expected)


def _proof(token: str, label: bytes, nonce: bytes, hello: bytes) -> bytes:
    return hmac.new(token.encode(), label + nonce + hello, hashlib.sha256).digest()
