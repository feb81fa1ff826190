"""The dashboard in a real terminal: tmux shows it, keys steer it, the screen is left clean."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from live import PATIENCE_S, ROOT, Server, Steady

from server.console.hotkeys import HOTKEYS
from server.controls import Command

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


class Terminal:
    """A tmux session of its own, 100 by 30, with a shell in it."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._tmux("new-session", "-d", "-x", "100", "-y", "30", "env PS1='ready> ' sh")
        self.wait_for("ready>")

    def _tmux(self, *arguments: str) -> str:
        command = ["tmux", "-S", str(self._socket), "-f", "/dev/null", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def type(self, text: str) -> None:
        self._tmux("send-keys", "-l", text)

    def press(self, key: str) -> None:
        self._tmux("send-keys", key)

    def screen(self) -> str:
        return self._tmux("capture-pane", "-p")

    def wait_for(self, *words: str) -> str:
        deadline = time.monotonic() + PATIENCE_S
        while not all(word in (shown := self.screen()) for word in words):
            assert time.monotonic() < deadline, f"{words} not in:\n{shown}"
            time.sleep(0.05)
        return shown

    def resize(self, width: int, height: int) -> None:
        self._tmux("resize-window", "-x", str(width), "-y", str(height))

    def is_clean(self) -> None:
        """Wait for a shell that echoes what is typed, below nothing of ours."""
        self.type("stty -a | grep -c ' echo '; echo $((40 + 2))")
        self.press("Enter")
        self.wait_for("\n1\n42")

    def end(self) -> None:
        subprocess.run(
            ["tmux", "-S", str(self._socket), "kill-server"], capture_output=True, check=False
        )


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    running = Terminal(tmp_path / "tmux")
    yield running
    running.end()


def command(tmp_path: Path, *options: str) -> str:
    parts = [sys.executable, "main.py", "--runs-dir", str(tmp_path / "runs"), "--port", "0"]
    parts += ["--hidden-sizes", "16", "--replay-capacity", "20000", *options]
    return f"cd {ROOT} && {' '.join(parts)}; echo code=$?"


def test_the_dashboard_lives_in_a_real_terminal(terminal: Terminal, tmp_path: Path) -> None:
    terminal.type(command(tmp_path, "--launch gym:CartPole-v1=2 --min-replay 500"))
    terminal.press("Enter")
    terminal.wait_for("Coinop", "CartPole-v1", "e-v1-1", "e-v1-2")  # both ends of long names
    terminal.wait_for("training")
    terminal.type("t")
    terminal.wait_for("training on → off", "paused")
    terminal.type("t")
    terminal.wait_for("training off → on")
    terminal.type("o")
    terminal.wait_for("epsilon natural →")
    terminal.type("z")
    terminal.wait_for("→ natural (undone)")
    terminal.type("?")
    terminal.wait_for("u/i/o", "epsilon down, natural, up")
    terminal.type("?")
    terminal.type("s")
    terminal.wait_for("saved")
    terminal.press("Up")  # an arrow is three bytes, and no command here
    terminal.type("6")
    terminal.press("Down")
    terminal.wait_for("▶ greedy")
    for _ in range(3):
        terminal.press("Down")
    terminal.press("Enter")
    terminal.type("1.5")
    terminal.press("Enter")
    terminal.type("5")
    terminal.wait_for("epsilon = 1.5 is out of range: 0 to 1 share")
    terminal.type("D")
    terminal.wait_for("Forget every frame in the replay? (y/n)")
    terminal.type("n")
    terminal.type("D")
    terminal.type("y")
    shown = terminal.wait_for("frames forgotten")
    assert shown.count("replay emptied") == 1
    terminal.press("Escape")
    terminal.wait_for("throughput")
    terminal.resize(80, 24)
    shown = terminal.wait_for("Coinop", "-v1-1", "quit")
    assert len(shown.splitlines()) <= 24
    terminal.type("q")
    shown = terminal.wait_for("code=0")
    assert "quit" not in shown  # the dashboard is gone
    terminal.type("echo still-a-shell")
    terminal.press("Enter")
    shown = terminal.wait_for("\nstill-a-shell")
    assert "ready> echo still-a-shell" in shown  # the terminal echoes again


# What each key leads to, in this order: every change is told in the events.
TOLD = {
    "t": "training on → off",
    "g": "greedy off → on",
    "x": "expert off → on",
    "p": "exploring on → off",
    "u": "epsilon natural → 0.45",
    "o": "epsilon 0.45 → 0.5",
    "i": "epsilon 0.5 → natural",
    "j": "expert ratio natural → 0.45",
    "l": "expert ratio 0.45 → 0.5",
    "k": "expert ratio 0.5 → natural",
    "b": "learning rate natural → 0.00025",
    "m": "learning rate 0.00025 → 0.0005",
    "n": "learning rate 0.0005 → natural",
    "a": "steps per sample natural → 3",
    "A": "steps per sample 3 → 4",
    "r": "max replay ratio natural → 64",
    "R": "max replay ratio 64 → none",
    "f": "n step natural → 2",
    "F": "n step 2 → 3",
    "h": "heartbeat s natural → 0.5",
    "H": "heartbeat s 0.5 → 1",
    "z": "heartbeat s 1 → 0.5 (undone)",
    "vv": "verbose on → off",  # at once: told of every episode, nobody could read the rest
    "w": "weights in play are new",
    "y": "target network is new",
    "s": "saved",
    "e": "evaluating CartPole-v1: 4 episodes",
    "Dy": "replay emptied",
    "Clevel=3\r": "client.level natural → 3",
}


def test_every_key_of_the_table_works(terminal: Terminal, tmp_path: Path) -> None:
    commands = {hotkey.key for hotkey in HOTKEYS if isinstance(hotkey.does, Command)}
    assert commands - {"q"} <= {typed[0] for typed in TOLD}
    shares = "--epsilon-start 0.5 --epsilon-end 0.5 --expert-start 0.5 --expert-end 0.5"
    terminal.type(command(tmp_path, "--launch gym:CartPole-v1", shares))
    terminal.resize(100, 50)
    terminal.press("Enter")
    terminal.wait_for("CartPole-v1-1")
    terminal.type("5")
    terminal.wait_for("events ", "joined agent")
    for typed, told in TOLD.items():
        terminal.type(typed)
        terminal.wait_for(told)
    terminal.type("c")
    deadline = time.monotonic() + PATIENCE_S
    while "target network is new" in terminal.screen():
        assert time.monotonic() < deadline, "the events were not cleared"
        time.sleep(0.05)
    for key, told in (("2", "clients 1"), ("3", "last 100k"), ("4", "loop lag"), ("6", "chosen")):
        terminal.type(key)
        terminal.wait_for(told)
    terminal.type("q")
    terminal.wait_for("code=0")
    terminal.is_clean()


def test_ctrl_c_and_an_empty_server(terminal: Terminal, tmp_path: Path) -> None:
    terminal.type(command(tmp_path))
    terminal.press("Enter")
    terminal.wait_for("python -m client_py --ale pong --server 127.0.0.1:")
    terminal.press("C-c")
    terminal.wait_for("code=0")
    terminal.is_clean()


def test_suspended_resumed_and_ended_by_a_signal(terminal: Terminal, tmp_path: Path) -> None:
    terminal.type(command(tmp_path))
    terminal.press("Enter")
    terminal.wait_for("? help")
    terminal.press("C-z")
    terminal.wait_for("Stopped", "ready>")
    assert "? help" not in terminal.screen()
    terminal.is_clean()
    terminal.type("fg")
    terminal.press("Enter")
    terminal.wait_for("? help", "Connect an emulator")
    terminal.type("6")
    terminal.wait_for("▶ training")  # keys work again
    pid = (tmp_path / "runs" / "default" / "lock").read_text()
    os.kill(int(pid), signal.SIGTERM)
    shown = terminal.wait_for("saved in")
    assert "? help" not in shown
    terminal.press("Enter")
    terminal.is_clean()


def test_attached_terminals_see_and_steer_the_same_server(
    terminal: Terminal, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    server = Server(runs)
    second = Terminal(tmp_path / "tmux2")
    try:
        assert server.port
        player = Steady(server.port)
        for end in (terminal, second):
            end.type(
                f"cd {ROOT} && {sys.executable} main.py attach --runs-dir {runs}; echo code=$?"
            )
            end.press("Enter")
            end.wait_for("Coinop", "test", "? help")
        second.type("5")
        terminal.type("u")
        second.wait_for("epsilon natural → 0.9")
        terminal.type("e")
        second.wait_for("agent game is not evaluated: none of its clients was started by this")
        terminal.type("6")
        terminal.wait_for("▶ training", "chosen")
        second.type("q")
        second.wait_for("left; the server goes on", "code=0")
        second.is_clean()
        player.finish()
        assert server.stop() == 0
        terminal.wait_for("the server has ended", "code=0")
        terminal.is_clean()
    finally:
        second.end()
        server.kill()


def test_an_error_in_the_server_gives_the_terminal_back(terminal: Terminal, tmp_path: Path) -> None:
    script = tmp_path / "broken.py"
    script.write_text(
        "import sys\n"
        f"sys.path.insert(0, {str(ROOT)!r})\n"
        "import main\n"
        "from server.app import App\n"
        "async def fail(self):\n"
        "    raise ArithmeticError('broken for the test')\n"
        "App._mind_clocks = fail\n"
        "sys.exit(main.main())\n"
    )
    terminal.type(command(tmp_path).replace("main.py", str(script)))
    terminal.press("Enter")
    terminal.wait_for("a task of the server died", "code=1")
    terminal.is_clean()
