"""The fleet: what it launches, and how it keeps emulators running."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from live import Server, until

import config
from server import app, emulators
from server.emulators import Command, Exam, LaunchError, Program, Seat
from server.evaluation import SEED
from server.fleet import Fleet, Launch, parse, reachable

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
    assert parse(text).check() == launch


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
        parse(text).check()


def seat(tmp_path: Path) -> Seat:
    return Seat("one", "127.0.0.1:9", 7, tmp_path, "secret")


def test_a_mame_that_is_not_installed_is_named_with_the_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(emulators, "_PLACES", str(tmp_path))
    with pytest.raises(LaunchError, match="apt-get install mame"):
        parse("mame:pong2600=2").check()
    with pytest.raises(LaunchError, match="apt-get install mame"):
        emulators.command("mame", "pong2600", seat(tmp_path))


def test_on_other_machines_it_is_they_who_need_the_emulator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(emulators.PROGRAMS, "mame", Program("no-such-mame", "MAME", "mame"))

    def asked(launch: str, cluster: str) -> list[Launch]:
        values = {"emulators": {"launch": [launch]}, "cluster": {"cluster": cluster}}
        return app._launches(config.from_values(values))

    (launch,) = asked("mame:pong2600=2", "10.0.0.1:6379")
    assert (launch.emulator, launch.count) == ("mame", 2)
    for here in ("", "local"):
        with pytest.raises(LaunchError, match="MAME is not installed"):
            asked("mame:pong2600=2", here)
    with pytest.raises(LaunchError, match="unknown emulator 'mane'"):
        asked("mane:pong2600", "10.0.0.1:6379")


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("ale:pong", "the game 'pong' comes with ale-py; pip install ale-py"),
        ("gym:CartPole-v1", "the game 'CartPole-v1' needs gymnasium; pip install gymnasium"),
    ],
)
def test_a_package_that_is_not_installed_is_named_with_the_fix(
    monkeypatch: pytest.MonkeyPatch, what: str, words: str
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(LaunchError, match=words):
        parse(what).check()


def test_a_game_that_mame_has_not_is_named_with_those_it_has(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match=r"no game 'sonic' for MAME; there are: .*pong2600"):
        emulators.command("mame", "sonic", seat(tmp_path))


def test_a_rom_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match=r"expected at .*nothing\.bin; put it there"):
        emulators._rom("x", str(tmp_path / "nothing.bin"))
    assert emulators._rom("pong2600", "ale:pong").stat().st_size == 2048


def test_what_an_emulator_was_started_as_is_known_by_its_name(tmp_path: Path) -> None:
    fleet = Fleet([parse("ale:pong=2"), parse("gym:CartPole-v1")], seed=1)
    fleet.seat("127.0.0.1:9", "", tmp_path)
    assert fleet.launch_of({"gym-CartPole-v1-1", "ale-pong-2"}) == Launch("ale", "pong", 2)
    assert fleet.launch_of({"somebody"}) is None
    assert fleet.awaited({"somebody", "ale-pong-2"}) == 2
    fleet.stop()
    assert fleet.awaited(set()) == 0


def test_who_plays_for_an_evaluation_is_told_so(tmp_path: Path) -> None:
    exam = Exam("mine", 7, sticky=0.25, observation="ram", frame_skip=3)
    told = emulators.command("ale", "pong", replace(seat(tmp_path), exam=exam)).arguments
    line = " ".join(told)
    assert "--evaluate --agent mine --episodes 7 --sticky 0.25 --observation ram" in line
    assert line.endswith("--frame-skip 3")
    plain = Exam("mine", 7)
    told = emulators.command("gym", "CartPole-v1", replace(seat(tmp_path), exam=plain)).arguments
    assert told[-5:] == ["--evaluate", "--agent", "mine", "--episodes", "7"]
    with pytest.raises(LaunchError, match=r"--sticky 0\.25: only ale games can"):
        emulators.command("gym", "CartPole-v1", replace(seat(tmp_path), exam=exam))


@pytest.mark.skipif(not MAME, reason="MAME is not installed")
def test_a_lua_client_is_told_by_its_environment(tmp_path: Path) -> None:
    usual = emulators.command("mame", "pong2600", seat(tmp_path)).environment
    assert "COINOP_EVALUATE" not in usual
    exam = Exam("mine", 7, frame_skip=2)
    told = emulators.command("mame", "pong2600", replace(seat(tmp_path), exam=exam)).environment
    assert (told["COINOP_EVALUATE"], told["COINOP_AGENT"]) == ("1", "mine")
    assert told["COINOP_FRAME_SKIP"] == "2"


def test_secrets_travel_in_the_environment_only(tmp_path: Path) -> None:
    command = emulators.command("ale", "pong", seat(tmp_path))
    assert "secret" not in " ".join(command.arguments)
    assert command.environment["COINOP_TOKEN"] == "secret"


def test_show_and_throttle_follow_from_each_other_unless_given() -> None:
    def settled(launch: Launch, show: bool, throttle: bool | None) -> tuple[object, ...]:
        got = launch.settled(show=show, throttle=throttle, niceness=10)
        return got.show, got.throttle, got.niceness

    plain = Launch("ale", "pong")
    assert settled(plain, False, None) == (False, False, 10)
    assert settled(plain, True, None) == (True, True, 10)
    assert settled(plain, True, False) == (True, False, 10)
    assert settled(plain, False, True) == (False, True, 10)
    assert settled(replace(plain, show=True, niceness=3), False, None) == (True, True, 3)
    assert settled(replace(plain, show=False), True, None) == (False, False, 10)
    assert settled(replace(plain, throttle=False), True, True) == (True, False, 10)


@pytest.mark.skipif(not MAME, reason="MAME is not installed")
def test_a_window_is_for_people_and_the_rest_is_for_speed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISPLAY", ":77")
    monkeypatch.setenv("XAUTHORITY", "/somewhere/key")
    hidden = emulators.command("mame", "pong2600", seat(tmp_path))
    assert {"none", "-nothrottle"} < set(hidden.arguments)
    assert hidden.environment["SDL_VIDEODRIVER"] == "dummy"
    assert hidden.environment["COINOP_ONCE"] == "1"
    shown = emulators.command(
        "mame", "pong2600", replace(seat(tmp_path), show=True, throttle=True, once=False)
    )
    assert {"-window", "-throttle"} < set(shown.arguments)
    assert not {"-video", "-sound", "-nothrottle"} & set(shown.arguments)
    assert "SDL_VIDEODRIVER" not in shown.environment
    assert shown.environment["XAUTHORITY"] == "/somewhere/key"
    assert (shown.environment["COINOP_ONCE"], shown.environment["COINOP_WAIT"]) == ("", "1")


@pytest.mark.parametrize(("kind", "game"), [("ale", "pong"), ("gym", "CartPole-v1")])
def test_python_clients_are_shown_and_held_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, game: str
) -> None:
    monkeypatch.setenv("DISPLAY", ":77")
    hidden = emulators.command(kind, game, seat(tmp_path))
    assert not {"--render", "--throttle"} & set(hidden.arguments)
    assert "--once" in hidden.arguments
    told = replace(seat(tmp_path), show=True, throttle=True, once=False)
    shown = emulators.command(kind, game, told)
    assert {"--render", "--throttle"} < set(shown.arguments)
    assert "--once" not in shown.arguments


@pytest.mark.skipif(sys.platform != "linux", reason="other systems name no display")
def test_without_a_display_show_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    with pytest.raises(LaunchError, match=r"no display to show emulators on.*leave --show out"):
        Launch("ale", "pong", show=True).check()


@pytest.mark.parametrize(
    ("server", "address"),
    [
        ("127.0.0.1:9797", "127.0.0.1:9797"),
        ("localhost:9797", "127.0.0.1:9797"),
        ("0.0.0.0:80", "127.0.0.1:80"),
        ("::1:80", "[::1]:80"),
        ("[::]:80", "[::1]:80"),
    ],
)
def test_emulators_are_given_an_ip(server: str, address: str) -> None:
    assert reachable(server) == address


@pytest.mark.parametrize("server", ["9797", "here:", "here:port", "127.0.0.1:0", "here:65536"])
def test_what_is_no_address_is_told(server: str) -> None:
    with pytest.raises(LaunchError, match=f"the server '{server}' must be HOST:PORT"):
        reachable(server)


def test_a_server_that_nobody_knows_is_named() -> None:
    with pytest.raises(LaunchError, match=r"no server n{64}:9797: "):
        reachable("n" * 64 + ":9797")  # too long for a name: nobody needs to be asked


def test_no_two_emulators_share_a_name_a_home_or_a_seed(tmp_path: Path) -> None:
    launches = [Launch("ale", "pong", 2), Launch("gym", "ALE/Pong-v5"), Launch("ale", "pong", 2)]
    fleet = Fleet(launches, seed=1, prefix="box-")
    fleet.seat("127.0.0.1:9", "", tmp_path)
    seats = [emulator.seat for emulator in fleet._emulators]
    assert [seat.name for seat in seats] == [
        "box-ale-pong-1",
        "box-ale-pong-2",
        "box-gym-ALE-Pong-v5-1",
        "box-ale-pong-3",
        "box-ale-pong-4",
    ]
    assert len({seat.home for seat in seats}) == len({seat.seed for seat in seats}) == 5


@pytest.mark.parametrize("seed", [1, 2, 3, 2**31 - 1])
def test_training_never_plays_the_episodes_of_an_evaluation(tmp_path: Path, seed: int) -> None:
    """Clients count their seeds up, by one an episode."""
    fleet = Fleet([Launch("ale", "pong", 16)], seed=seed)
    fleet.seat("127.0.0.1:9", "", tmp_path, played=10**9)
    episodes = 10**8
    assert all(emulator.seat.seed + episodes < SEED for emulator in fleet._emulators)


Stage = Callable[..., tuple[Fleet, Clock]]


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """Start a fleet of real processes that run a line of Python."""
    fleets: list[Fleet] = []

    def start(
        line: str, count: int = 1, show: bool = False, **settings: float
    ) -> tuple[Fleet, Clock]:
        kinds = {"ale": lambda game, seat: Command([sys.executable, "-c", line])}
        monkeypatch.setattr(emulators, "_KINDS", kinds)
        monkeypatch.setenv("DISPLAY", ":77")
        clock = Clock()
        launch = Launch("ale", "x", count, show=show)
        fleets.append(Fleet([launch], seed=1, clock=clock, **settings))  # type: ignore[arg-type]
        fleets[-1].seat("127.0.0.1:9", "", tmp_path)
        fleets[-1].tend()
        return fleets[-1], clock

    yield start
    for fleet in fleets:
        fleet.stop()


def news(fleet: Fleet, silences: dict[str, float] | None = None) -> str:
    """Wait for the next thing the fleet has to say."""
    deadline = time.monotonic() + 20
    while not (told := fleet.tend(silences)):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return told[0]


def pids(fleet: Fleet) -> list[int]:
    """Give the processes that run."""
    processes = [emulator._process for emulator in fleet._emulators]
    return [process.pid for process in processes if process is not None]


def pass_time(fleet: Fleet, clock: Clock, seconds: float, heard: bool = False) -> list[str]:
    """Let time go by second by second, as a server would see it."""
    told = []
    for _ in range(int(seconds)):
        clock.ahead += 1
        told += fleet.tend({"ale-x-1": 0.0} if heard else {})
    return told


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


def test_last_words_of_several_lines_are_told_and_kept(stage: Stage, tmp_path: Path) -> None:
    fleet, clock = stage(r"print('noise\nthe game is not right:\n  no name\n  no shape'); exit(3)")
    assert "ended with code 3: the game is not right: no name no shape; starting" in news(fleet)
    clock.ahead += 2
    assert news(fleet) == "emulator ale-x-1 started again"
    (kept,) = tmp_path.rglob("before-*")
    assert "noise" in kept.read_text()


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
    assert "wrong token; not started again (log: " in news(fleet)
    clock.ahead += 1000
    assert fleet.tend() == []


DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
QUIET = "import time; print('insert coin', flush=True); time.sleep(60)"


def test_stop_ends_even_who_does_not_listen(stage: Stage) -> None:
    fleet, _ = stage(DEAF)
    (number,) = pids(fleet)
    time.sleep(0.5)
    fleet.stop()
    assert not Path(f"/proc/{number}").exists()


def test_many_who_do_not_listen_take_no_longer_to_end_than_one(stage: Stage) -> None:
    fleet, _ = stage(DEAF, count=4)
    numbers = pids(fleet)
    assert len(numbers) == 4
    time.sleep(0.5)
    began = time.monotonic()
    fleet.stop()
    assert time.monotonic() - began < 8
    assert not any(Path(f"/proc/{number}").exists() for number in numbers)


def test_what_an_emulator_started_ends_with_it(stage: Stage, tmp_path: Path) -> None:
    child = "import subprocess; p = subprocess.Popen(['sleep', '60'])"
    fleet, _ = stage(f"{child}; print(p.pid, flush=True); p.wait()")
    log = tmp_path / "ale-x-1" / "output.log"
    until(lambda: log.read_text().endswith("\n"))
    status = Path(f"/proc/{int(log.read_text())}/stat")
    fleet.stop()
    # Whoever adopts it may not bury it.
    until(lambda: not status.exists() or status.read_text().split()[2] == "Z")


def test_emulators_start_one_after_another(stage: Stage) -> None:
    fleet, clock = stage(QUIET, count=3, stagger_s=5)
    assert len(pids(fleet)) == 1
    assert pass_time(fleet, clock, 4) == []
    assert len(pids(fleet)) == 1
    pass_time(fleet, clock, 1)
    assert len(pids(fleet)) == 2
    pass_time(fleet, clock, 5)
    assert len(pids(fleet)) == 3


def test_those_that_fell_together_start_one_after_another_too(stage: Stage) -> None:
    fleet, clock = stage(QUIET, count=2, stagger_s=5)
    pass_time(fleet, clock, 5)
    for number in pids(fleet):
        os.kill(number, signal.SIGKILL)
    time.sleep(0.2)
    fallen = fleet.tend()
    assert len(fallen) == 2
    assert all("starting it again in 1 s" in text for text in fallen)
    clock.ahead += 5
    assert fleet.tend() == ["emulator ale-x-1 started again"]
    assert pass_time(fleet, clock, 4) == []
    assert pass_time(fleet, clock, 1) == ["emulator ale-x-2 started again"]


def test_a_stop_before_the_last_start_starts_nobody_else(stage: Stage) -> None:
    fleet, clock = stage(QUIET, count=3, stagger_s=5)
    fleet.stop()
    clock.ahead += 100
    assert fleet.tend() == []
    assert pids(fleet) == []


def test_one_that_never_connects_is_ended_and_counted(stage: Stage, tmp_path: Path) -> None:
    fleet, clock = stage(QUIET, stall_s=60)
    log = tmp_path / "ale-x-1" / "output.log"
    for fall, wait in enumerate((1, 2, 4, 8), start=1):
        until(lambda: "insert coin" in log.read_text())
        (number,) = pids(fleet)
        assert pass_time(fleet, clock, 58) == []  # it has its time, counted from its start
        assert pids(fleet) == [number]
        told = pass_time(fleet, clock, 3) or [news(fleet)]
        assert told == [
            "emulator ale-x-1 sent no frame for 60 s and was killed: insert coin; "
            f"starting it again in {wait} s"
        ], fall
        assert not Path(f"/proc/{number}").exists()
        clock.ahead += wait
        assert news(fleet) == "emulator ale-x-1 started again"
    pass_time(fleet, clock, 61)
    assert "it fell 5 times in a row and stays down" in news(fleet)
    assert fleet.down


def test_one_that_is_heard_lives_and_its_silence_counts_from_its_last_frame(stage: Stage) -> None:
    fleet, clock = stage(QUIET, stall_s=60)
    (number,) = pids(fleet)
    assert pass_time(fleet, clock, 300, heard=True) == []
    # Its session may be forgotten meanwhile: the fleet remembers when it was heard.
    assert pass_time(fleet, clock, 58) == []
    assert pids(fleet) == [number]
    clock.ahead += 3
    assert "sent no frame for 60 s and was killed" in news(fleet)


def test_a_frozen_process_is_found(stage: Stage) -> None:
    fleet, clock = stage(QUIET, stall_s=60)
    (number,) = pids(fleet)
    pass_time(fleet, clock, 100, heard=True)
    os.kill(number, signal.SIGSTOP)
    told = pass_time(fleet, clock, 61) or [news(fleet)]
    assert "sent no frame for 60 s and was killed" in told[0]
    assert "starting it again in 1 s" in told[0]  # it had played for long


def test_silence_that_is_our_own_fault_is_forgiven(stage: Stage) -> None:
    fleet, clock = stage(QUIET, stall_s=60)
    (number,) = pids(fleet)
    for _ in range(3):
        clock.ahead += 90  # as if the server had stood still
        assert fleet.tend({"ale-x-1": 90.0}) == []
    assert pids(fleet) == [number]
    time.sleep(0.2)
    assert fleet.tend() == []
    assert pids(fleet) == [number]


def test_no_stall_s_lets_emulators_be_silent(stage: Stage) -> None:
    fleet, clock = stage(QUIET, stall_s=0)
    assert pass_time(fleet, clock, 500) == []


def test_a_window_that_somebody_closed_stays_closed(stage: Stage) -> None:
    fleet, clock = stage("print('goodbye')", show=True)
    assert news(fleet) == "emulator ale-x-1 was closed; not started again"
    clock.ahead += 1000
    assert fleet.tend() == []
    assert fleet.down


def test_one_that_cannot_be_started_is_told_and_tried_again(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "ale-x-1").write_text("in the way of its home")
    fleet, clock = stage(QUIET)
    (tmp_path / "ale-x-1").unlink()
    clock.ahead += 1
    assert news(fleet) == "emulator ale-x-1 started again"
    assert len(pids(fleet)) == 1


def test_a_frozen_client_of_a_real_server_is_started_again(start: Callable[..., Server]) -> None:
    # Long enough for an emulator to start on a busy machine: the other one is not to be killed.
    server = start("--launch", "ale:pong=2", "--stall-s", "8", "--stagger-s", "0.5")
    server.wait_for("ale-pong-1 at .* joined agent pong")
    server.wait_for("ale-pong-2 at .* joined agent pong")
    frozen = child_named(server, "ale-pong-2")
    os.kill(frozen, signal.SIGSTOP)
    # Its last words may be none: it joins before it says that it is connected.
    server.wait_for("emulator ale-pong-2 sent no frame for 8 s and was killed: .*again in 1 s")
    assert not Path(f"/proc/{frozen}").exists()
    server.wait_for(r"(?s)ale-pong-2 started again.*ale-pong-2 at .* joined agent pong")
    assert "ale-pong-1 sent no frame" not in server.text
    assert server.stop() == 0


def test_a_file_lists_emulators_each_with_its_own_options(
    start: Callable[..., Server], tmp_path: Path
) -> None:
    file = tmp_path / "coinop.toml"
    file.write_text(
        """
        [emulators]
        niceness = 15
        [[fleet]]
        emulator = "gym"
        game = "CartPole-v1"
        count = 2
        [[fleet]]
        emulator = "gym"
        game = "MountainCar-v0"
        throttle = true
        niceness = 17
        """
    )
    server = start("--config", str(file), "--no-training")
    server.wait_for("gym-CartPole-v1-2 at .* joined agent CartPole-v1")
    server.wait_for("gym-MountainCar-v0-1 at .* joined agent MountainCar-v0")
    own = os.getpriority(os.PRIO_PROCESS, server.process.pid)
    fast, held = (
        child_named(server, name) for name in ("gym-CartPole-v1-1", "gym-MountainCar-v0-1")
    )
    assert os.getpriority(os.PRIO_PROCESS, fast) == max(own, 15)
    assert os.getpriority(os.PRIO_PROCESS, held) == max(own, 17)
    assert "--throttle" in Path(f"/proc/{held}/cmdline").read_text().split("\0")
    assert "--throttle" not in Path(f"/proc/{fast}/cmdline").read_text().split("\0")
    assert server.stop() == 0


def test_ctrl_c_while_emulators_still_start_ends_well(start: Callable[..., Server]) -> None:
    server = start("--launch", "gym:CartPole-v1=8", "--stagger-s", "5")
    server.wait_for("CartPole-v1-1 at .* joined agent CartPole-v1")
    running = server.children()
    assert len(running) < 8
    assert server.stop() == 0
    assert not any(Path(f"/proc/{number}").exists() for number in running)
    assert "CartPole-v1-8" not in server.text


def child_named(server: Server, name: str) -> int:
    (found,) = (
        number
        for number in server.children()
        if name in Path(f"/proc/{number}/cmdline").read_text().split("\0")
    )
    return found
