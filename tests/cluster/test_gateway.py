"""A gateway's process: what it prepares for, before Ray or anybody else has a word."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from live import ROOT

CODE = """
import resource, sys
from pathlib import Path
resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
import config
from server.cluster import gateway
from server.cluster.fabric import Node
gateway._this_node = lambda meant: meant
settings = config.from_values({"server": {"port": 0, "max_clients": 100}})
post = gateway.Post(0, Node("a", "127.0.0.1", 1, 0, True), Path(sys.argv[1]), ())
actor = gateway.GatewayActor(settings, post, "", "space", {})
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
actor.close()
"""


def test_a_gateway_may_have_as_many_connections_as_the_settings_allow(tmp_path: Path) -> None:
    command = [sys.executable, "-c", CODE, str(tmp_path)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout) >= 4 * 100  # two descriptors each, twice as many before their Hello
