"""``--cluster local``, as somebody tries it first: it plays, learns, hides, and ends whole."""

from __future__ import annotations

import ipaddress
import signal
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from live import Server, until

from server.cluster import fabric
from tests.cluster.stage import QUICK

pytestmark = pytest.mark.timeout(300)
_LISTENING = "0A"  # include/net/tcp_states.h


def processes(root: int) -> set[int]:
    """The process and all that descend from it."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has just ended
            continue
        children.setdefault(parent, []).append(int(stat.parent.name))
    found, left = set(), [root]
    while left:
        found.add(here := left.pop())
        left += children.get(here, [])
    return found


def watches_only(pid: int) -> bool:
    """Whether it is one of Ray's agents: without its cluster it takes a minute to give up."""
    try:
        return "Agent" in Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:  # it has just ended
        return False


def doors(pids: set[int]) -> list[tuple[str, int]]:
    """Every address and port on which one of these processes listens, in the host's byte order."""
    listening: dict[str, tuple[str, int]] = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == _LISTENING:
                address, port = words[1].split(":")
                listening[f"socket:[{words[9]}]"] = (_address(address), int(port, 16))
    found = []
    for pid in pids:
        for descriptor in _descriptors(pid):
            try:
                found.append(listening[str(descriptor.readlink())])
            except (OSError, KeyError):
                continue
    return found


def _descriptors(pid: int) -> Iterator[Path]:
    try:
        yield from Path(f"/proc/{pid}/fd").iterdir()
    except OSError:  # it has just ended
        return


def _address(text: str) -> str:
    """Read an address as the kernel shows it: words of 32 bits in its own byte order."""
    words = [int(text[at : at + 8], 16) for at in range(0, len(text), 8)]
    packed = struct.pack(f"={len(words)}I", *words)
    return socket.inet_ntop(socket.AF_INET if len(words) == 1 else socket.AF_INET6, packed)


def is_loopback(address: str) -> bool:
    known = ipaddress.ip_address(address)
    inner = getattr(known, "ipv4_mapped", None) or known
    return bool(inner.is_loopback)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_it_plays_learns_listens_on_loopback_only_and_leaves_nothing_behind(
    tmp_path: Path, ports: int, number: signal.Signals
) -> None:
    asked = ("--gateways", "2", "--learners", "2", "--port", str(ports))
    asked += ("--launch", "gym:CartPole-v1=2")
    # Ray keeps a token in the home directory: not in ours.
    server = Server(tmp_path, "--cluster", "local", "--plain", *asked, *QUICK, HOME=str(tmp_path))
    try:
        assert server.wait_for(r"listening on ([\d.:,]+\d)")[1] == ",".join(
            f"127.0.0.1:{port}" for port in (ports, ports + 1)
        )
        for gateway in range(2):
            server.wait_for(rf"gateway-{gateway}: g{gateway}-gym-CartPole-v1-1 at .* joined")
        until(lambda: server.steps > 20)
        started = processes(server.process.pid)
        found = doors(started)
        # Two gateways and two learners, and each listens twice; and Ray's own.
        assert {ports, ports + 1} <= {port for _, port in found}
        assert len(found) > 8
        assert [door for door in found if not is_loopback(door[0])] == []
        if number == signal.SIGKILL:
            started = {pid for pid in started if not watches_only(pid)}
        assert server.stop(number) == (0 if number == signal.SIGINT else -number), server.text
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in started))
    finally:
        server.kill()


def test_a_card_that_no_node_has_is_told_at_once_instead_of_waited_for(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has one")
    server = Server(tmp_path, "--cluster", "local", "--device", "cuda", HOME=str(tmp_path))
    try:
        assert server.wait() == 2
        assert server.text == (
            "coinop: device = cuda with learners = 1 needs as many GPUs, and the cluster has 0; "
            "use --device cpu"
        )
    finally:
        server.kill()


def test_who_listens_for_others_is_told_to_them_by_an_address_that_they_can_reach() -> None:
    assert fabric.outside_address("10.1.2.3") == "10.1.2.3"
    address = fabric.outside_address("127.0.0.1")
    assert socket.create_server((address, 0)).close() is None  # it is one of this machine's
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
        try:
            way.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no way to others")
    assert not is_loopback(address)
