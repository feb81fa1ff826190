"""Event files as TensorBoard reads them: figures and texts to bytes; pure.

A file is a row of records, a record one protocol buffer ``Event`` between its length and checksums
(TFRecord). Only the fields that we write are here; tests read them with TensorBoard itself.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

FILE_NAME = "events.out.tfevents.{time_s:.0f}.coinop"  # TensorBoard looks for "tfevents"

_CASTAGNOLI = 0x82F63B78  # the polynomial of CRC-32C, bit-reversed
_MASK = 0xA282EAD8  # a checksum of data that holds checksums: TFRecord rotates and adds this
_WORD = 0xFFFFFFFF
_STRING = 7  # DT_STRING of a TensorProto
_VARINT, _DOUBLE, _BYTES, _FLOAT = 0, 1, 2, 5  # wire types of a protocol buffer


def head(time_s: float) -> bytes:
    """Give the record that every file begins with."""
    return _record(_event(time_s, 0) + _bytes(3, b"brain.Event:2"))


def scalars(time_s: float, step: int, figures: Mapping[str, float]) -> bytes:
    """Give the record of some figures, by tag, at one step."""
    values = [
        _bytes(1, tag.encode()) + _key(2, _FLOAT) + struct.pack("<f", value)
        for tag, value in figures.items()
    ]
    return _summary(time_s, step, values)


def text(time_s: float, step: int, tag: str, words: str) -> bytes:
    """Give the record of a text at one step."""
    shape = _bytes(2, _number(1, 1))  # one dimension, of size 1
    tensor = _number(1, _STRING) + _bytes(2, shape) + _bytes(8, words.encode())
    plugin = _bytes(1, _bytes(1, b"text"))
    return _summary(time_s, step, [_bytes(1, tag.encode()) + _bytes(8, tensor) + _bytes(9, plugin)])


def _summary(time_s: float, step: int, values: list[bytes]) -> bytes:
    summary = b"".join(_bytes(1, value) for value in values)
    return _record(_event(time_s, step) + _bytes(5, summary))


def _event(time_s: float, step: int) -> bytes:
    return _key(1, _DOUBLE) + struct.pack("<d", time_s) + _number(2, step)


def _record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + _checksum(length) + data + _checksum(data)


def _checksum(data: bytes) -> bytes:
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + _MASK) & _WORD)


def crc32c(data: bytes) -> int:
    """Give the CRC-32C of some bytes; slow, and quick enough for a few hundred of them."""
    crc = _WORD
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (_CASTAGNOLI if crc & 1 else 0)
    return crc ^ _WORD


# --- protocol buffers -----------------------------------------------------------------------------


def _key(field: int, kind: int) -> bytes:
    return bytes([field << 3 | kind])


def _number(field: int, value: int) -> bytes:
    return _key(field, _VARINT) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _key(field, _BYTES) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    """Write a number from 0 on, seven bits a byte, the lowest first."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
