"""A picture as a PNG file: eight bits each of red, green and blue."""

from __future__ import annotations

import struct
import zlib

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_BITS, _RGB = 8, 2  # of each value; the colour type of the PNG specification
_PLAIN = b"\0"  # a row as it is: what filters save is not worth their time in a small picture


def png(width: int, height: int, pixels: bytes) -> bytes:
    """Give a PNG file's bytes; the pixels are rows of RGB, from top to bottom."""
    row = 3 * width
    rows = b"".join(_PLAIN + pixels[at : at + row] for at in range(0, row * height, row))
    header = struct.pack(">IIBBBBB", width, height, _BITS, _RGB, 0, 0, 0)
    body = _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(rows)) + _chunk(b"IEND", b"")
    return _SIGNATURE + body


def _chunk(kind: bytes, data: bytes) -> bytes:
    check = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)
