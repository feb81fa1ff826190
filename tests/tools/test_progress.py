"""A line that says what is waited for, on a real pseudo-terminal and in a pipe."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCRIPT = """
import time
from tools.progress import Progress
with Progress("counting sheep") as progress:
    time.sleep(0.7)
    progress.tell("one sheep")
    progress.say("counting on")
    time.sleep(0.7)
print("done")
"""


def seen_on_a_terminal() -> str:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT], cwd=ROOT, stdout=theirs, stderr=theirs, close_fds=True
    )
    os.close(theirs)
    data = b""
    while select.select([ours], [], [], 30)[0]:
        try:
            piece = os.read(ours, 4096)
        except OSError:  # the other end is closed
            break
        data += piece
    os.close(ours)
    assert process.wait(30) == 0
    return data.decode()


def test_a_terminal_sees_the_line_while_it_is_true() -> None:
    seen = seen_on_a_terminal()
    assert "counting sheep, " in seen and "counting on, " in seen
    # What stays begins in a line of its own, and nothing is left of the rest.
    assert "\r\x1b[2Kone sheep\r\n" in seen
    assert seen.endswith("\r\x1b[2Kdone\r\n")


def test_a_pipe_sees_only_what_stays() -> None:
    command = [sys.executable, "-c", SCRIPT]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert (ended.stdout, ended.stderr) == ("one sheep\ndone\n", "")
