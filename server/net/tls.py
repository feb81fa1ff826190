"""TLS for both sides: what a server shows, and whom a client trusts."""

from __future__ import annotations

import ssl
from pathlib import Path


class TlsError(OSError):
    """A certificate or key that cannot be used; the message names the file and the fix."""


def for_server(certificate: Path, key: Path) -> ssl.SSLContext:
    """Make what a server needs to encrypt its connections."""
    for what, path in (("tls_cert", certificate), ("tls_key", key)):
        _check_readable(what, path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        # A key with a password would be asked for at the terminal: it is refused instead.
        context.load_cert_chain(certificate, key, password=lambda: "")
    except (ssl.SSLError, ValueError) as error:
        raise TlsError(
            f"tls_cert = {certificate} and tls_key = {key} cannot be used: {_plain(error)}; both "
            "must be PEM, belong together and need no password"
        ) from error
    return context


def for_client(authority: Path | None) -> ssl.SSLContext:
    """Make what a client needs: it trusts this file's certificates, or the system's."""
    if authority is None:
        return ssl.create_default_context()
    _check_readable("--tls-ca", authority)
    try:
        return ssl.create_default_context(cafile=str(authority))
    except ssl.SSLError as error:
        raise TlsError(f"--tls-ca {authority} holds no certificate: {_plain(error)}") from error


def _check_readable(what: str, path: Path) -> None:
    """Refuse a file that cannot be read; OpenSSL would not say which of two it is."""
    try:
        path.read_bytes()
    except OSError as error:
        raise TlsError(f"cannot read {what} = {path}: {error.strerror}") from error


def _plain(error: Exception) -> str:
    return getattr(error, "reason", None) or str(error)
