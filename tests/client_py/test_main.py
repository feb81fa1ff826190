"""The real process: what it prints, how it ends."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from client_py.__main__ import _game, _parser, main
from server.net import wire
from tests.client_py.peer import Line, Peer

pytestmark = pytest.mark.timeout(30)

ROOT = Path(__file__).parents[2]


def start(port: int, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "client_py", "--server", f"127.0.0.1:{port}", *options],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_a_bye_and_exit_code_0(number: signal.Signals) -> None:
    playing, seen = threading.Event(), []

    def script(line: Line) -> None:
        line.greet()
        line.play(20)
        playing.set()
        seen.extend(line.play())

    with Peer(script) as peer, start(peer.port, "--env", "CartPole-v1") as process:
        assert playing.wait(20)
        process.send_signal(number)
        out, err = process.communicate(timeout=10)
    assert process.returncode == 0 and err == ""
    assert isinstance(seen[-1], wire.Bye)
    assert out.startswith("connected to the server at 127.0.0.1:")


def test_plays_its_episodes_and_prints_a_line_for_each() -> None:
    seen: list[Any] = []

    def script(line: Line) -> None:
        seen.append(line.greet())
        seen.extend(line.play())

    options = ("--ale", "breakout", "--episodes", "2", "--seed", "3", "--agent", "mine")
    with Peer(script) as peer, start(peer.port, *options) as process:
        out, err = process.communicate(timeout=20)
    assert process.returncode == 0 and err == ""
    hello, frames = seen[0], seen[1:-1]
    assert (hello.game, hello.agent, hello.client) == ("breakout", "mine", "client_py")
    assert sum(bool(f.flags & wire.START) for f in frames) == 2
    assert sum(bool(f.flags & wire.TERMINAL) for f in frames) == 2
    lines = out.splitlines()
    assert len(lines) == 3 and lines[1].startswith("episode 1: return ")
    assert frames[-1].info["score"] == float(lines[2].split()[3].rstrip(","))


def test_an_evaluation_is_announced_and_sticky_actions_reach_the_emulator() -> None:
    seen: list[Any] = []

    def script(line: Line) -> None:
        seen.append(line.greet())
        line.play()

    options = ("--env", "CartPole-v1", "--episodes", "1", "--evaluate")
    with Peer(script) as peer, start(peer.port, *options) as process:
        process.communicate(timeout=20)
    assert process.returncode == 0
    assert seen[0].evaluate
    for given, wanted in (((), 0.0), (("--sticky", "0.25"), 0.25)):
        game: Any = _game(_parser().parse_args(["--ale", "pong", *given]), 1)
        assert game._ale.getFloat("repeat_action_probability") == wanted


@pytest.mark.parametrize("share", ["1", "-0.1", "much", "nan"])
def test_a_share_of_sticky_actions_is_from_0_to_below_1(
    share: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--ale", "pong", f"--sticky={share}"])
    assert "is not a share from 0 to below 1" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["--env", "CartPole-v1", "--sticky", "0.25"])
    assert "--sticky goes with --ale" in capsys.readouterr().err


def test_quiet_prints_nothing_and_the_token_is_proven(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("sesame\n")
    seen: list[Any] = []

    def script(line: Line) -> None:
        seen.append(line.greet(token="sesame"))
        line.play()

    options = ("--env", "CartPole-v1", "--episodes", "1", "--quiet", "--token-file", str(token))
    with Peer(script) as peer, start(peer.port, *options) as process:
        out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (0, "", "")
    assert len(seen[0].nonce) == 32


def test_a_rejection_is_one_line_and_exit_code_2() -> None:
    def script(line: Line) -> None:
        line.receive()
        line.send(wire.encode(wire.Reject("this agent expects 128 uint8")))

    with Peer(script) as peer, start(peer.port, "--env", "CartPole-v1") as process:
        out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (2, "")
    assert len(err.splitlines()) == 1 and "this agent expects 128 uint8" in err


def test_mistakes_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--ale", "pnog"]) == 2
    assert capsys.readouterr().err == (
        "client_py: ale-py has no game named 'pnog'; did you mean pong?\n"
    )
    assert main(["--env", "CartPole-v1", "--agent", "../x"]) == 2
    assert "--agent" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--env", "A", "--ale", "b"],
        ["--ale", "pong", "--server", "nowhere"],
        ["--ale", "pong", "--frame-skip", "0"],
        ["--ale", "pong", "--token-file", "/no/such/file"],
        ["--env", "CartPole-v1", "--observation", "ram"],
    ],
)
def test_bad_options(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(options)
    assert stop.value.code == 2
    assert "error:" in capsys.readouterr().err


def test_help_teaches_with_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "python -m client_py --ale pong" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "rate"), [(("--ale", "pong"), 15), (("--env", "CartPole-v1"), 50)]
)
def test_throttle_plays_at_the_speed_of_the_real_machine(
    options: tuple[str, ...], rate: float
) -> None:
    seconds: list[float] = []

    def script(line: Line) -> None:
        line.greet()
        line.play(1)
        began = time.monotonic()
        line.play(30)
        seconds.append(time.monotonic() - began)
        line.send(wire.encode(wire.Bye("enough")))

    command = (*options, "--throttle", "--once")
    with Peer(script) as peer, start(peer.port, *command) as process:
        process.communicate(timeout=20)
    # Some frames begin an episode, and those are not waited for.
    assert 0.8 * 30 / rate < seconds[0] < 3 * 30 / rate
