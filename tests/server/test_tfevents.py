"""Event files: hand-computed bytes, and TensorBoard's own reader."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from server import tfevents


@pytest.mark.parametrize(
    ("data", "crc"),
    # RFC 3720, appendix B.4, and the check value of the catalogues.
    [
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (b"123456789", 0xE3069283),
    ],
)
def test_the_checksum_is_crc32c(data: bytes, crc: int) -> None:
    assert tfevents.crc32c(data) == crc


def test_a_record_byte_by_byte() -> None:
    record = tfevents.scalars(1.0, 300, {"a": 0.5})
    value = b"\x0a\x01a" + b"\x15" + struct.pack("<f", 0.5)  # tag, simple_value
    summary = b"\x0a" + bytes([len(value)]) + value
    event = b"\x09" + struct.pack("<d", 1.0) + b"\x10\xac\x02" + b"\x2a" + bytes([len(summary)])
    event += summary
    assert record[:8] == struct.pack("<Q", len(event))
    assert record[12:-4] == event
    assert len(record) == 8 + 4 + len(event) + 4


def test_tensorboard_reads_what_we_write(tmp_path: Path) -> None:
    path = tmp_path / tfevents.FILE_NAME.format(time_s=1234.5)
    path.write_bytes(
        tfevents.head(1000.0)
        + tfevents.scalars(1001.0, 10, {"return/mean": -20.5, "learning/loss": 0.25})
        + tfevents.text(1001.5, 15, "settings", "epsilon: natural → 0.25 (keyboard)")
        + tfevents.scalars(1002.0, 2**40, {"return/mean": 3.0})
    )
    reader = EventAccumulator(str(tmp_path))
    reader.Reload()
    assert reader.file_version == 2.0
    assert sorted(reader.Tags()["scalars"]) == ["learning/loss", "return/mean"]
    points = [(e.wall_time, e.step, e.value) for e in reader.Scalars("return/mean")]
    assert points == [(1001.0, 10, -20.5), (1002.0, 2**40, 3.0)]
    (marker,) = reader.Tensors("settings")
    assert (marker.wall_time, marker.step) == (1001.5, 15)
    assert marker.tensor_proto.string_val[0].decode() == "epsilon: natural → 0.25 (keyboard)"
    assert reader.SummaryMetadata("settings").plugin_data.plugin_name == "text"
