"""The fleet: what it launches, and how it keeps emulators running."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from server import emulators
from server.emulators import Command, LaunchError, Seat
from server.fleet import Fleet, Launch, parse

MAME = shutil.which("mame", path=f"{os.environ.get('PATH', '')}:/usr/games")


class Clock:
    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead


@pytest.mark.parametrize(
    ("text", "launch"),
    [
        ("ale:pong=2", Launch("ale", "pong", 2)),
        ("gym:CartPole-v1", Launch("gym", "CartPole-v1", 1)),
        ("gym:ALE/Pong-v5=3", Launch("gym", "ALE/Pong-v5", 3)),
        pytest.param(
            "mame:pong2600=4",
            Launch("mame", "pong2600", 4),
            marks=pytest.mark.skipif(not MAME, reason="MAME is not installed"),
        ),
    ],
)
def test_what_can_be_launched(text: str, launch: Launch) -> None:
    assert parse(text) == launch


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("pong", "must be emulator:game=count"),
        ("ale:pong=x", "must be emulator:game=count"),
        ("ale:pong=0", "the count must be 1 to 1024"),
        ("ale:pongg", "ale-py has no game 'pongg'; did you mean pong"),
        ("sega:sonic", "unknown emulator 'sega'; known: ale, gym, mame"),
    ],
)
def test_what_cannot_is_told(text: str, words: str) -> None:
    with pytest.raises(LaunchError, match=words):
        parse(text)


def seat(tmp_path: Path) -> Seat:
    return Seat("one", "127.0.0.1:9", 7, tmp_path, "secret")


def test_a_mame_that_is_not_installed_is_named_with_the_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(emulators, "_MAME_PLACES", str(tmp_path))
    with pytest.raises(LaunchError, match="apt-get install mame"):
        parse("mame:pong2600=2")
    with pytest.raises(LaunchError, match="apt-get install mame"):
        emulators.command("mame", "pong2600", seat(tmp_path))


def test_a_game_that_mame_has_not_is_named_with_those_it_has(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match=r"no game 'sonic' for MAME; there are: .*pong2600"):
        emulators.command("mame", "sonic", seat(tmp_path))


def test_a_rom_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match=r"expected at .*nothing\.bin; put it there"):
        emulators._rom("x", str(tmp_path / "nothing.bin"))
    assert emulators._rom("pong2600", "ale:pong").stat().st_size == 2048


def test_secrets_travel_in_the_environment_only(tmp_path: Path) -> None:
    command = emulators.command("ale", "pong", seat(tmp_path))
    assert "secret" not in " ".join(command.arguments)
    assert command.environment["COINOP_TOKEN"] == "secret"


Stage = Callable[[str], tuple[Fleet, Clock]]


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """Start a fleet of one real process that runs a line of Python."""
    fleets: list[Fleet] = []

    def start(line: str) -> tuple[Fleet, Clock]:
        kinds = {"ale": lambda game, seat: Command([sys.executable, "-c", line])}
        monkeypatch.setattr(emulators, "_KINDS", kinds)
        clock = Clock()
        fleets.append(Fleet([Launch("ale", "x", 1)], seed=1, niceness=0, clock=clock))
        fleets[-1].start("127.0.0.1:9", "", tmp_path, 0)
        return fleets[-1], clock

    yield start
    for fleet in fleets:
        fleet.stop()


def news(fleet: Fleet) -> str:
    """Wait for the next thing the fleet has to say."""
    deadline = time.monotonic() + 20
    while not (told := fleet.tend()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return told[0]


def test_a_fallen_emulator_is_started_again_later_and_later(stage: Stage) -> None:
    fleet, clock = stage("print('out of coins'); raise SystemExit(3)")
    for wait in (1, 2, 4, 8):
        told = news(fleet)
        assert "emulator ale-x-1 ended with code 3: out of coins" in told
        assert f"starting it again in {wait} s" in told
        clock.ahead += wait - 0.6
        assert fleet.tend() == []
        clock.ahead += 0.6
        assert news(fleet) == "emulator ale-x-1 started again"
    told = news(fleet)
    assert "it fell 5 times in a row and stays down" in told
    clock.ahead += 1000
    assert fleet.tend() == []


def test_an_emulator_that_ran_for_long_is_forgiven(stage: Stage) -> None:
    fleet, clock = stage("raise SystemExit(1)")
    for _ in range(8):
        time.sleep(0.3)
        clock.ahead += 100  # as if it had run for minutes before it fell
        assert "starting it again in 1 s" in news(fleet)
        clock.ahead += 2
        news(fleet)


def test_a_refused_emulator_is_not_started_again(stage: Stage) -> None:
    fleet, clock = stage("print('wrong token'); raise SystemExit(2)")
    assert "wrong token; not started again" in news(fleet)
    clock.ahead += 1000
    assert fleet.tend() == []


def test_stop_ends_even_who_does_not_listen(stage: Stage) -> None:
    fleet, _ = stage(
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
    )
    process = fleet._emulators[0]._process
    assert process is not None
    time.sleep(0.5)
    fleet.stop()
    assert process.returncode is not None
