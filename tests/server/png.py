"""Reads a PNG by hand, chunk by chunk: what our writer wrote, and nothing else."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import numpy.typing as npt


def decode(data: bytes) -> npt.NDArray[np.uint8]:
    """Give the pixels of an RGB file without filters: (height, width, 3)."""
    assert data[:8] == bytes.fromhex("89504e470d0a1a0a")
    chunks, at = [], 8
    while at < len(data):
        (size,) = struct.unpack_from(">I", data, at)
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + size]
        (check,) = struct.unpack_from(">I", data, at + 8 + size)
        assert check == zlib.crc32(kind + body)
        chunks.append((kind, body))
        at += 12 + size
    assert [kind for kind, _ in chunks] == [b"IHDR", b"IDAT", b"IEND"]
    width, height, *rest = struct.unpack(">IIBBBBB", chunks[0][1])
    assert rest == [8, 2, 0, 0, 0]  # bits, RGB, deflate, the five filters, not interlaced
    rows = np.frombuffer(zlib.decompress(chunks[1][1]), np.uint8).reshape(height, 1 + 3 * width)
    assert not rows[:, 0].any()
    return rows[:, 1:].reshape(height, width, 3)
