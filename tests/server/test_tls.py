"""TLS with the example of docs/security.md, and what a server's files let others see."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import ssl
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from live import PATIENCE_S, ROOT, SPACES, Client, Server

from client_py.link import Distrusted, Link, Unreachable
from server.net import tls, wire

Start = Callable[..., Server]
TOKEN = "a token that is long enough"
HELLO = wire.Hello("test", "1", "game", "game", SPACES)

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")


def certificate(directory: Path, address: str = "127.0.0.1") -> tuple[Path, Path]:
    """Make a certificate and its key by the very command that the document shows."""
    directory.mkdir(exist_ok=True)
    document = (ROOT / "docs" / "security.md").read_text()
    command = re.findall(r"^openssl req .*$", document, re.MULTILINE)[0]
    subprocess.run(
        shlex.split(command.replace("10.0.0.5", address)),
        cwd=directory,
        check=True,
        capture_output=True,
    )
    return directory / "cert.pem", directory / "key.pem"


def served(start: Start, paths: tuple[Path, Path], *options: str) -> Server:
    cert, key = map(str, paths)
    return start("--tls-cert", cert, "--tls-key", key, *options, COINOP_TOKEN=TOKEN)


def linked(server: Server, context: ssl.SSLContext) -> Link:
    return Link(
        "127.0.0.1", server.port, timeout_s=PATIENCE_S, connect_timeout_s=PATIENCE_S, tls=context
    )


def test_the_documents_example(start: Start, tmp_path: Path) -> None:
    paths = certificate(tmp_path / "made")
    server = served(start, paths, "--launch", "gym:CartPole-v1")
    server.wait_for("gym-CartPole-v1-1 at 127.0.0.1:.* joined")  # by the door inside
    command = [sys.executable, "-m", "client_py", "--env", "CartPole-v1", "--episodes", "2"]
    command += ["--server", f"127.0.0.1:{server.port}", "--tls-ca", str(paths[0]), "--once"]
    played = subprocess.run(
        [*command, "--name", "far"],
        cwd=ROOT,
        env={**os.environ, "COINOP_TOKEN": TOKEN},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert played.returncode == 0, played.stderr
    assert "episode 2: return" in played.stdout
    server.wait_for("far at .* left: all episodes are played")
    assert server.stop() == 0


def test_another_certificate_is_not_trusted(start: Start, tmp_path: Path) -> None:
    paths = certificate(tmp_path / "made")
    server = served(start, paths)
    other, _ = certificate(tmp_path / "other")
    with pytest.raises(Distrusted, match="certificate is not to be trusted"):
        linked(server, tls.for_client(other))
    with pytest.raises(Distrusted, match="certificate is not to be trusted"):
        linked(server, tls.for_client(None))
    link = linked(server, tls.for_client(paths[0]))
    assert link.greet(HELLO, TOKEN).session
    link.close("done")


def test_a_certificate_for_another_address_is_not_trusted(start: Start, tmp_path: Path) -> None:
    paths = certificate(tmp_path / "made", "10.1.2.3")
    server = served(start, paths)
    with pytest.raises(Distrusted, match="IP address mismatch"):
        linked(server, tls.for_client(paths[0]))


def test_tls_and_none_do_not_go_together(start: Start, tmp_path: Path) -> None:
    paths = certificate(tmp_path / "made")
    server = served(start, paths)
    plain = Client(server.port)
    plain.send(wire.encode(HELLO))
    assert plain.socket.recv(4096)[4:8] != b"\x87\xa4ty"  # an alert, and no message of ours
    open_server = start("--run", "open")
    with pytest.raises(Unreachable, match="no TLS there"):
        linked(open_server, tls.for_client(paths[0]))
    steady = linked(server, tls.for_client(paths[0]))
    assert steady.greet(HELLO, TOKEN).session
    for sequence in range(50):
        frame = wire.Frame(sequence, 0, [0.0], bytes(16))
        assert steady.exchange(frame).sequence == sequence
    steady.close("done")


def test_a_waiting_link_wakes_and_says_bye_inside_tls(start: Start, tmp_path: Path) -> None:
    paths = certificate(tmp_path / "made")
    server = served(start, paths)
    link = linked(server, tls.for_client(paths[0]))
    link.greet(HELLO, TOKEN)
    link.wake()
    link.close("was woken")
    server.wait_for("left: was woken")


def test_wrong_files_are_named(start: Start, tmp_path: Path) -> None:
    cert, key = certificate(tmp_path / "made")
    _, other = certificate(tmp_path / "other")
    for options, words in (
        (("--tls-cert", str(cert)), "go together: give both or none"),
        (("--tls-cert", "/nowhere", "--tls-key", str(key)), "cannot read tls_cert = /nowhere"),
        (("--tls-cert", str(cert), "--tls-key", str(other)), "cannot be used"),
    ):
        server = start(*options)
        assert server.wait() == 2
        assert words in server.text and len(server.lines) == 1, server.text
    with pytest.raises(tls.TlsError, match="holds no certificate"):
        tls.for_client(key)


def test_everything_in_a_run_is_its_owners_alone(start: Start, tmp_path: Path) -> None:
    run = tmp_path / "runs" / "default"
    run.mkdir(parents=True, mode=0o755)  # as an older version left it
    server = start("--launch", "gym:CartPole-v1", "--save-interval-s", "1", COINOP_TOKEN=TOKEN)
    server.wait_for("joined")
    server.wait_for(r"info +saved")
    paths = [run, *run.rglob("*")]
    names = {path.name for path in paths}
    assert {"control.sock", "settings.json", "replay.bin", "checkpoint.safetensors"} <= names
    for path in paths:
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
    assert server.stop() == 0
    for path in run.rglob("*"):
        assert not path.is_file() or TOKEN.encode() not in path.read_bytes(), path
