"""Emulators that people watch: real windows on a virtual screen, at the speed of the machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest
from live import Server

MAME = shutil.which("mame", path=f"{os.environ.get('PATH', '')}:/usr/games")
FCEUX = shutil.which("fceux", path=f"{os.environ.get('PATH', '')}:/usr/games")
XVFB = shutil.which("Xvfb")
XWININFO = shutil.which("xwininfo")
REAL_RATE = 15  # decisions a second: 60 frames, one decision in four
pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(sys.platform != "linux", reason="the screen is that of X"),
]
Start = Callable[..., Server]


@pytest.fixture
def screen() -> Iterator[str]:
    """Give the name of a virtual screen."""
    if XVFB is None:
        pytest.skip("Xvfb is not installed")
    reader, writer = os.pipe()
    command = [XVFB, "-displayfd", str(writer), "-screen", "0", "640x480x24", "-nolisten", "tcp"]
    process = subprocess.Popen(
        command, pass_fds=[writer], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    os.close(writer)
    with os.fdopen(reader) as names:
        name = names.readline().strip()  # written once it can be used
    yield f":{name}"
    process.terminate()
    process.wait(30)


def rate(server: Server, agent: str, seconds: float) -> float:
    """Measure the frames a second that a server counts over some time."""

    def frames() -> int:
        pattern = rf"(?s).*\n[\d:]+ +{agent} +clients 1 +frames +([\d,]+)"
        return int(server.wait_for(pattern)[1].replace(",", ""))

    first, began = frames(), time.monotonic()
    time.sleep(seconds)
    return (frames() - first) / (time.monotonic() - began)


@pytest.mark.parametrize(
    ("what", "agent", "name"),
    [
        pytest.param(
            "mame:pong2600",
            "pong2600",
            "mame-pong2600-1",
            marks=pytest.mark.skipif(not MAME, reason="MAME is not installed"),
        ),
        pytest.param(
            "fceux:catch",
            "catch",
            "fceux-catch-1",
            marks=pytest.mark.skipif(
                not FCEUX or not shutil.which("cl65"), reason="FCEUX or cc65 is not installed"
            ),
        ),
        ("ale:pong", "pong", "ale-pong-1"),
    ],
)
def test_an_emulator_plays_in_a_window(
    start: Start, screen: str, what: str, agent: str, name: str
) -> None:
    server = start("--no-training", "--launch", what, "--show", DISPLAY=screen, WAYLAND_DISPLAY="")
    server.wait_for(f"{name} at .* joined agent {agent}")
    if XWININFO is not None:
        assert titles(screen), "there is no window"
    # A busy machine without a graphics card may draw more slowly than the real one did.
    assert 0 < rate(server, agent, 5) < 1.7 * REAL_RATE
    assert "ended with code" not in server.text
    assert server.stop() == 0


def titles(screen: str) -> list[str]:
    """Give the titles of the windows on a screen."""
    assert XWININFO is not None
    deadline = time.monotonic() + 20
    while True:
        command = [XWININFO, "-display", screen, "-root", "-tree"]
        tree = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        found = re.findall(r'0x[0-9a-f]+ "([^"]+)"', tree)
        if found or time.monotonic() > deadline:
            return found
        time.sleep(0.2)


@pytest.mark.skipif(not MAME, reason="MAME is not installed")
def test_throttle_holds_an_emulator_that_nobody_sees_too(start: Start) -> None:
    server = start("--no-training", "--launch", "mame:pong2600", "--throttle")
    server.wait_for("mame-pong2600-1 at .* joined agent pong2600")
    assert 0 < rate(server, "pong2600", 5) < 1.7 * REAL_RATE
    assert server.stop() == 0


def test_without_a_display_the_server_says_so_at_once(start: Start) -> None:
    server = start("--launch", "ale:pong", "--show", DISPLAY="", WAYLAND_DISPLAY="")
    assert server.wait() == 2
    assert len(server.lines) == 1
    assert "there is no display to show emulators on" in server.text
