"""Exploring games: the command, its report, the game file it writes, and real games in MAME."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from live import ROOT
from lua import VERSIONS, Lua
from rich.console import Console
from test_exploring import record
from toygame import BASE, INPUTS, NAMES, SIZE, button

from tools.exploring import ram, report, skeleton
from tools.exploring.inventory import Inventory
from tools.exploring.plan import Press
from tools.exploring.report import Findings
from tools.exploring.skeleton import Start

MAME = shutil.which("mame", path=f"{os.environ.get('PATH', '')}:/usr/games")
needs_mame = pytest.mark.skipif(MAME is None, reason="MAME is not installed")
pytestmark = pytest.mark.timeout(600)
START = Start((Press(button("Start"), 60),), 130)


@pytest.fixture(scope="module")
def findings() -> Findings:
    """What exploring the toy game finds."""
    study = ram.study(record(list(range(len(NAMES))), seed=1))
    inventory = Inventory((*INPUTS, button("Start")), ((BASE, BASE + SIZE - 1),))
    return Findings("toy", inventory, tuple(INPUTS), inventory.ram, study, 9000)


# --- the report ---------------------------------------------------------------------------------


def shown(findings: Findings) -> list[str]:
    console = Console(width=120, highlight=False, markup=False)
    with console.capture() as capture:
        console.print(report.render(findings))
    return [" ".join(line.split()) for line in capture.get().splitlines()]


def test_the_report_names_inputs_and_bytes(findings: Findings) -> None:
    lines = shown(findings)
    x, flag, seconds = (BASE + NAMES.index(name) for name in ("x", "flag", "seconds"))
    high, low = (BASE + NAMES.index(name) for name in ("score_high", "score_low"))
    assert lines[0].startswith("toy: 24 bytes of RAM, 0x80 to 0x97; 5 inputs tried, 9,000 frames")
    assert any(line.startswith(f":JOY1/P1 Left button 1 0x{x:02X} (2) down") for line in lines)
    assert ":JOY2/P2 Button 1 button 1 nothing" in lines
    assert ":JOY1/P1 Start button 1 starts the game" in lines
    (score,) = [
        line for line in lines if line.startswith(f"0x{high:02X} (6) 0x{low:02X} (7) score")
    ]
    assert "BCD, 0 to" in score and "never without" in score
    assert f"0x{seconds:02X} (1) every 60 frames, -1 (BCD), 34 to 59" in lines
    assert any(
        line.startswith(f"0x{x:02X} (2) 20 140 P1 Left down, P1 Right up;") for line in lines
    )
    assert f"0x{flag:02X} copies of the inputs" in lines
    assert "0x8D-97 never changed" in lines


def test_everything_is_also_plain_data(findings: Findings) -> None:
    plain = json.loads(json.dumps(report.to_json(findings)))
    assert plain["ram"] == [[BASE, BASE + SIZE - 1]]
    assert len(plain["bytes"]) == SIZE
    x = plain["bytes"][NAMES.index("x")]
    assert x["kind"] == "place"
    assert {e["input"]: e["way"] for e in x["effects"]} == {
        ":JOY1/P1 Left": "goes down",
        ":JOY1/P1 Right": "goes up",
    }
    high, low = BASE + NAMES.index("score_high"), BASE + NAMES.index("score_low")
    assert [high, low] in [number["bytes"] for number in plain["scores"]]
    assert [BASE + NAMES.index("lives")] in [number["bytes"] for number in plain["lives"]]


# --- the game file ------------------------------------------------------------------------------


def test_the_player_who_moves_things_is_chosen(findings: Findings) -> None:
    assert skeleton.best_player(findings) == 1
    assert skeleton.useful_inputs(findings, 1) == INPUTS[:4]
    assert skeleton.useful_inputs(findings, 2) == [INPUTS[4]]  # it does nothing, but it is all


@pytest.mark.parametrize("version", VERSIONS)
def test_the_written_file_passes_the_check_and_plays(
    findings: Findings, version: str, tmp_path: Path
) -> None:
    file = tmp_path / "toy.lua"
    file.write_text(skeleton.game_file("toy", findings, START, 1), encoding="utf-8")
    lua = Lua(version)
    games = lua.load("game.lua", loadfile=lambda path: lua.chunk(path.decode()))
    game = games[b"load"](str(file).encode())
    memory = {BASE + NAMES.index("score_low"): 0x25, BASE + NAMES.index("lives"): 3}
    pressed: dict[str, float] = {}
    machine = lua.runtime.table()
    machine[b"read"] = lambda address: memory.get(address, 0)
    machine[b"read_range"] = lambda first, last: bytes(int(last - first) + 1)
    machine[b"press"] = lambda name, value: pressed.update({name.decode(): value})
    machine[b"release"] = pressed.clear
    actions, episode, state = game[b"actions"], game[b"episode"], lua.runtime.table()

    assert lua.plain(game[b"observation"][b"shape"]) == [SIZE]
    assert len(game[b"observation"][b"read"](machine, state)) == SIZE
    names = [control[b"name"] for control in lua.plain(actions[b"discrete"])]
    assert names == [b"horizontal", b"button_1"]
    actions[b"apply"](machine, lua.table({"discrete": [2, 0], "continuous": [99.6]}))
    assert pressed == {"left": 0, "right": 1, "button_1": 0, "paddle": 100}
    actions[b"release"](machine)
    assert pressed == {}

    ready = [frame for frame in range(1, 140) if episode[b"ready"](machine, frame)]
    assert ready[0] == START.ready and pressed == {"start": 0}
    episode[b"begin"](machine, state)
    memory[BASE + NAMES.index("score_low")] = 0x35
    memory[BASE + NAMES.index("score_high")] = 0x01
    memory[BASE + NAMES.index("enemy")] = 4
    assert lua.plain(game[b"reward"](machine, state)) == [110 - 4]
    assert lua.plain(game[b"reward"](machine, state)) == [0]
    assert episode[b"over"](machine, state) is None
    memory[BASE + NAMES.index("lives")] = 0
    assert episode[b"over"](machine, state) == b"terminal"


def test_an_episode_that_nothing_ends_is_cut(findings: Findings, tmp_path: Path) -> None:
    bare = ram.Study(findings.study.bytes, (), (), findings.study.effects)
    found = Findings("toy", findings.inventory, findings.probed, findings.ram, bare, 1)
    file = tmp_path / "bare.lua"
    file.write_text(skeleton.game_file("bare", found, Start((), 10), 1), encoding="utf-8")
    lua = Lua("lua53")
    games = lua.load("game.lua", loadfile=lambda path: lua.chunk(path.decode()))
    game, state, machine = games[b"load"](str(file).encode()), lua.runtime.table(), None
    game[b"episode"][b"begin"](machine, state)
    assert lua.plain(game[b"reward"](machine, state)) == [0]
    ends = [game[b"episode"][b"over"](machine, state) for _ in range(7200)]
    assert set(ends[:-1]) == {None} and ends[-1] == b"truncated"


def test_the_start_file_is_toml() -> None:
    wanted = {"system": "a2600", "options": ["-joyport1", "pad"], "cart": 'C:\\my "games"\\a.bin'}
    assert tomllib.loads(skeleton.start_file(wanted)) == {"mame": wanted}


# --- the command --------------------------------------------------------------------------------


def explore(
    directory: Path, *options: str, code: int = 0, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the command in a directory."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "main.py"), "explore", *options],
        cwd=directory,
        env={**os.environ, "COLUMNS": "160", **environment},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


@needs_mame
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["ale:pong"], "'ale:pong' must be mame:SYSTEM"),
        (["mame:a2600", "--cart", "ale:pongg"], "ale-py has no game 'pongg'; did you mean pong"),
        (["mame:a2600", "--cart", "no.bin"], r"is expected at .*no\.bin; put it there"),
        (["mame:a2600", "--cart", "ale:pong", "--ram", "9"], "--ram '9' must be FIRST-LAST"),
        (["mame:a2600", "--cart", "ale:pong", "--ram", "9-5"], "--ram '9-5' must be FIRST-LAST"),
        (["mame:a2600", "--cart", "ale:pong", "--ram", "0-8192"], "8193 bytes .* choose some"),
        (["mame:a2600", "--cart", "ale:pong", "--start", "x"], "the machine has no input 'x'"),
        (["mame:a2600", "--cart", "ale:pong", "--input", "x"], "the machine has no input 'x'"),
        (["mame:a2600", "--cart", "ale:pong", "--write", "a b"], "--write = 'a b' must be"),
        (["mame:a2600", "--cart", "ale:pong", "--write", "old"], "games/old.lua is there already"),
        (["mame:pong"], "MAME tells of no RAM in this machine; name it: --ram"),
    ],
)
def test_what_cannot_be_explored_is_told(tmp_path: Path, options: list[str], words: str) -> None:
    (tmp_path / "games").mkdir()
    (tmp_path / "games" / "old.lua").write_text("mine")
    told = explore(tmp_path, *options, code=2).stderr
    assert len(told.splitlines()) == 1
    assert re.search(words, told), told
    assert (tmp_path / "games" / "old.lua").read_text() == "mine"


@needs_mame
def test_a_machine_that_mame_cannot_run_is_told_in_its_words(tmp_path: Path) -> None:
    told = explore(tmp_path, "mame:nosuchmachine", code=1).stderr
    assert "Unknown system 'nosuchmachine'" in told
    told = explore(tmp_path, "mame:tempest1", code=1, HOME=str(tmp_path)).stderr
    assert "put tempest1.zip into" in told


SMALL = ("--moments", "1", "--runs", "1", "--frames", "90", "--json", "found.json")


@needs_mame
def test_the_same_seed_finds_the_same_and_the_hint_helps(tmp_path: Path) -> None:
    stick = ("--input", ":joyport1:joy:JOY/P1 Up")
    knob = ("--input", ":joyport1:pad:POTX/Paddle", "--option", "joyport1=pad")
    found = []
    for options in (stick, knob, knob):
        done = explore(tmp_path, "mame:a2600", "--cart", "ale:breakout", *SMALL, *options)
        found.append(json.loads((tmp_path / "found.json").read_text()))
        assert "exploring" in done.stderr
        assert ("need --option joyport1=pad" in done.stdout) == (options is stick)
    assert found[0] != found[1] == found[2]


@needs_mame
def test_inputs_ram_and_start_can_be_chosen(tmp_path: Path) -> None:
    options = ("--input", ":joyport1:joy:JOY/P1 Up", "--ram", "0x8E-0x8F", "--ram", "160-163")
    options += ("--start", ":SWB/Reset Game@30", "--write", "here/mine")
    explore(tmp_path, "mame:a2600", "--cart", "ale:boxing", *SMALL, *options)
    found = json.loads((tmp_path / "found.json").read_text())
    assert [i["name"] for i in found["inputs"] if i["tried"]] == ["P1 Up"]
    assert [byte["address"] for byte in found["bytes"]] == [0x8E, 0x8F, 160, 161, 162, 163]
    text = (tmp_path / "here" / "mine.lua").read_text()
    assert "machine.read_range(0x8E, 0x8F) .. machine.read_range(0xA0, 0xA3)" in text
    assert '{ 30, "reset_game" }' in text
    assert "shape = { 6 }" in text


def _children(pid: int) -> list[str]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [child for task in tasks for child in task.read_text().split()]


@needs_mame
def test_ctrl_c_ends_it_and_its_emulator(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "main.py"), "explore", "mame:a2600", "--cart"]
    process = subprocess.Popen(
        [*command, "ale:boxing", "--write", "boxing", "--frames", "100000"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        assert process.stderr is not None
        assert "exploring" in process.stderr.readline()
        deadline = time.monotonic() + 30
        while not (children := _children(process.pid)):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert len(children) == 1
        process.send_signal(signal.SIGINT)
        assert "stopped; nothing was written" in process.communicate(timeout=30)[1]
        assert process.returncode == 130
        assert not Path(f"/proc/{children[0]}").exists()
        assert not (tmp_path / "games").exists()
    finally:
        process.kill()
        process.wait()


# --- real games ---------------------------------------------------------------------------------


class Found:
    """What exploring a game of the Atari 2600 found, by offset from the start of its RAM."""

    def __init__(self, directory: Path, game: str, *options: str) -> None:
        told = ("--cart", f"ale:{game}", "--json", "found.json", "--write", game, *options)
        self.text = explore(directory, "mame:a2600", *told).stdout
        self._plain = json.loads((directory / "found.json").read_text())
        self.lua = (directory / "games" / f"{game}.lua").read_text()
        self.toml = tomllib.loads((directory / "games" / f"{game}.toml").read_text())

    def byte(self, offset: int) -> dict[str, Any]:
        found: dict[str, Any] = self._plain["bytes"][offset]
        return found

    def ways(self, offset: int) -> dict[str, str]:
        return {e["input"].split("/")[1]: e["way"] for e in self.byte(offset)["effects"]}

    def numbers(self, kind: str) -> dict[tuple[int, ...], bool]:
        return {tuple(a - 0x80 for a in n["bytes"]): n["sure"] for n in self._plain[kind]}


PAD = ":ctrl1:joypad:JOYPAD/P1"
CATCH = ("--input", f"{PAD} Left", "--input", f"{PAD} Right", "--json", "found.json")
CATCH += ("--moments", "3", "--runs", "2", "--frames", "1200")


@dataclass(frozen=True)
class Expeditions:
    """The long explorations, all on their way at once: each keeps one core busy for a minute."""

    pong: Future[Found]
    breakout: Future[Found]
    catch: Future[tuple[str, Any]]


@pytest.fixture(scope="module")
def expeditions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Expeditions]:
    def catch(directory: Path) -> tuple[str, Any]:
        text = explore(directory, "mame:nes", "--cart", "cc65:catch.c", *CATCH).stdout
        return text, json.loads((directory / "found.json").read_text())

    paddle = ("--option", "joyport1=pad", "--moments", "3")
    with ThreadPoolExecutor(2) as pool:
        yield Expeditions(
            pool.submit(Found, tmp_path_factory.mktemp("pong"), "pong", *paddle),
            pool.submit(Found, tmp_path_factory.mktemp("breakout"), "breakout", *paddle),
            pool.submit(catch, tmp_path_factory.mktemp("catch")),
        )


@needs_mame
def test_the_facts_of_pong(expeditions: Expeditions) -> None:
    pong = expeditions.pong.result()
    assert pong.ways(51)["Paddle 2"] in ("follows", "follows, reversed")
    assert "Paddle" not in pong.ways(51)
    assert pong.byte(51)["kind"] == "place"
    for ball in (49, 54):
        assert pong.byte(ball)["kind"] == "place"
        assert not {"follows", "goes up", "goes down"} & set(pong.ways(ball).values())
    assert pong.byte(50)["kind"] == "place"  # the opponent
    scores = pong.numbers("scores")
    assert scores[(13,)] and scores[(14,)]
    assert not pong.numbers("lives")
    # The opponent scores by itself, so its points count against us.
    assert "return machine.read(0x8E) - machine.read(0x8D)" in pong.lua
    assert 'name = "paddle_2", low = 0, high = 255' in pong.lua
    assert pong.toml["mame"] == {
        "system": "a2600",
        "options": ["-joyport1", "pad"],
        "cart": "ale:pong",
    }


@needs_mame
def test_the_facts_of_breakout(expeditions: Expeditions) -> None:
    breakout = expeditions.breakout.result()
    assert breakout.ways(72)["Paddle"] == "follows, reversed"
    assert breakout.byte(99)["kind"] == breakout.byte(101)["kind"] == "place"  # the ball
    assert breakout.numbers("lives") == {(57,): True}
    # Chance hits few balls, so it may not be sure; but nothing else comes before it.
    best, *_ = breakout.numbers("scores")
    assert best in ((77,), (76, 77))
    assert "machine.read(0xCD)" in breakout.lua
    assert breakout.byte(90)["kind"] == "clock" and breakout.byte(90)["detail"] == "every frame, +1"
    assert "local LIVES = 0xB9" in breakout.lua
    assert 'name = "paddle", low = 0, high = 255' in breakout.lua
    assert 'name = "button_1", choices = 2' in breakout.lua


@needs_mame
@pytest.mark.skipif(shutil.which("cl65") is None, reason="cc65 is not installed")
def test_another_machine_needs_no_other_options(expeditions: Expeditions) -> None:
    """Catch for the NES, whose source says what each byte is (client_lua/games/catch.c)."""
    text, found = expeditions.catch.result()
    assert f"{PAD} Start" in text and "starts the game" in text
    assert found["ram"] == [[0, 0x7FF]]
    kinds = {byte["address"]: byte["kind"] for byte in found["bytes"]}
    assert kinds[0x501] == kinds[0x502] == kinds[0x503] == "place"  # basket, apple
    ways = {e["input"]: e["way"] for e in found["bytes"][0x501]["effects"]}
    assert ways == {f"{PAD} Left": "goes down", f"{PAD} Right": "goes up"}
    assert [0x507] in [number["bytes"] for number in found["scores"]]  # apples lost
    assert kinds[0x508] == "clock" and kinds[0x500] == "once"  # the phase: the game was lost
