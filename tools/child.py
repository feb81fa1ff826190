"""An emulator that runs for a command: its lines are read as they come, and it ends with us."""

from __future__ import annotations

import os
import re
import select
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from server.emulators import Command

_SILENCE_S = 120.0  # without a line: our scripts say something every few hundred frames
_LAST_WORDS = 20  # lines of one that fell
_NOISE = re.compile(r"^ALSA lib|^Average speed|^Warning: -video none|^QStandardPaths|^\s*$")


class ChildError(RuntimeError):
    """An emulator that did not do its work; the message has its last words."""


def run(command: Command, hear: Callable[[str], bool]) -> None:
    """Run an emulator to its end. ``hear`` gets each line and says whether it was expected."""
    command.prepare()
    words: list[str] = []
    with _running(command) as process:
        for line in _lines(process):
            if not _NOISE.search(line) and not hear(line):
                words.append(line)
        code = process.wait()
    if code != 0:
        last = "\n  ".join(words[-_LAST_WORDS:]) or "it said nothing"
        raise ChildError(f"the emulator ended with code {code}:\n  {last}")


@contextmanager
def _running(command: Command) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        command.arguments,
        cwd=command.directory,
        env={**os.environ, **command.environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def _lines(process: subprocess.Popen[bytes]) -> Iterator[str]:
    """Give the lines until the process ends; raise if it is silent for too long."""
    assert process.stdout is not None
    number, rest = process.stdout.fileno(), b""
    heard_s = time.monotonic()
    while True:
        if time.monotonic() - heard_s > _SILENCE_S:
            raise ChildError(f"the emulator was silent for {_SILENCE_S:g} s, and was ended")
        if not select.select([number], [], [], 1.0)[0]:
            continue
        data = os.read(number, 65536)
        heard_s = time.monotonic()
        *whole, rest = (rest + data).split(b"\n")
        yield from (line.decode(errors="replace") for line in whole)
        if not data:
            yield rest.decode(errors="replace")
            return
