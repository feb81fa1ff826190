"""Pictures of real emulators' screens, from emulators that the server launches itself."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
import png
import pytest
from live import PATIENCE_S, Server

from server.learn.replay import Layout, Replay

PLACES = f"{os.environ.get('PATH', '')}:/usr/games:/usr/local/games"
LAYOUTS = {  # of each game's replay
    "pong2600": Layout(20000, "float32", 10, 1, 1),
    "catch": Layout(20000, "float32", 7, 1, 0),
}
pytestmark = pytest.mark.timeout(180)


def needs(*programs: str) -> pytest.MarkDecorator:
    absent = [name for name in programs if shutil.which(name, path=PLACES) is None]
    return pytest.mark.skipif(bool(absent), reason=f"{', '.join(absent)} not installed")


def wait_for_pictures(path: Path, count: int) -> list[npt.NDArray[np.uint8]]:
    """Wait for several pictures in the same file."""
    found: list[npt.NDArray[np.uint8]] = []
    seen, deadline = 0.0, time.monotonic() + 2 * PATIENCE_S
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} pictures at {path}"
        if path.exists() and path.stat().st_mtime > seen:
            seen = path.stat().st_mtime
            found.append(png.decode(path.read_bytes()))
        time.sleep(0.05)
    return found


@pytest.mark.parametrize(
    ("emulator", "game", "transport"),
    [
        pytest.param("mame", "pong2600", "luasocket", marks=needs("mame")),
        pytest.param("mame", "pong2600", "file", marks=needs("mame")),
        pytest.param("fceux", "catch", "", marks=needs("fceux", "cl65")),
    ],
)
def test_an_emulators_screen_is_seen(
    tmp_path: Path, emulator: str, game: str, transport: str
) -> None:
    server = Server(
        tmp_path / "runs",
        *("--launch", f"{emulator}:{game}", "--preview-every", "20", "--epsilon-end", "1"),
        COINOP_TRANSPORT=transport,
    )
    try:
        name = f"{emulator}-{game}-1"
        pictures = wait_for_pictures(tmp_path / "runs/default/previews" / f"{name}.png", 3)
        assert server.stop() == 0
    finally:
        server.kill()
    for picture in pictures:
        assert picture.shape == (120, 160, 3)
        assert len(np.unique(picture.reshape(-1, 3), axis=0)) >= 2
    assert any((picture != pictures[0]).any() for picture in pictures[1:])  # the game goes on
    output = (tmp_path / "runs/default/emulators" / name / "output.log").read_text()
    assert ("over emu.file" in output) == (transport == "file")
    assert "error" not in output
    replay = Replay.to_read(tmp_path / "runs/default/agents" / game / "replay.bin", LAYOUTS[game])
    assert replay.head >= 40  # three pictures lie at least that far apart
    replay.check_valid()
