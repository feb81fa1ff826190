"""The messages whose bytes docs/protocol.md shows, for every language that must produce them."""

from __future__ import annotations

import json
import re
from pathlib import Path

from server.net import proof, wire
from server.net.wire import Choice, Executed, Frame, Source
from server.spaces import Actions, Continuous, Discrete, Observation, Spaces

DOCUMENT = Path(__file__).parents[2] / "docs" / "protocol.md"
SPACES = Spaces(
    Observation("uint8", (4,)),
    Actions((Discrete("stick", 3),), (Continuous("paddle", 0.0, 255.0),)),
    ("score", "bonus"),
)
TOKEN = "secret"
NONCE = bytes(range(32))  # the server's
HELLO = wire.Hello("mame", "0.251", "pong2600", "pong", SPACES, nonce=bytes(range(32, 64)))
CONTROLS = {
    "hello": HELLO,
    "hello_evaluate": wire.Hello("ale", "1", "pong", "pong", SPACES, evaluate=True),
    "challenge": wire.Challenge(NONCE),
    "proof": wire.Proof(proof.by_client(TOKEN, NONCE, wire.encode(HELLO)[wire.HEADER_BYTES :])),
    "welcome": wire.Welcome("1f2e3d4c5b6a7988", 20.0, 1048576, {"start_level": 3}),
    "welcome_proof": wire.Welcome(
        "1f2e3d4c5b6a7988",
        20.0,
        1048576,
        proof=proof.by_server(TOKEN, NONCE, wire.encode(HELLO)[wire.HEADER_BYTES :]),
    ),
    "reject": wire.Reject("the server is full: 256 clients (--max-clients)"),
    "ping": wire.Ping(),
    "pong": wire.Pong(),
    "bye": wire.Bye("the server is shutting down"),
    "preview": wire.Preview(2, 2, bytes.fromhex("ff0000 00ff00 0000ff ffffff")),
    "error": wire.Error("frame 8 has a value that is not finite (NaN or infinity)"),
}
FRAMES = {
    "frame": Frame(7, 0, [1.0, -0.5], bytes([0, 1, 2, 255])),
    "frame_start": Frame(0, wire.START, [0.0, 0.0], bytes(4)),
    "frame_full": Frame(
        70000,
        wire.TERMINAL,
        [0.0, 0.25],
        bytes([9, 8, 7, 6]),
        Executed(Source.HUMAN, Choice([2], [127.5])),
        Choice([1], [0.0]),
        {"score": 1200, "level": 3},
    ),
}
ACTIONS = {
    "action": wire.Action(7, [2], [63.75], Source.POLICY),
    "action_settings": wire.Action(300, [0], [0.0], Source.EXPLORATION, {"start_level": 9}),
}


def examples() -> dict[str, tuple[object, bytes]]:
    """Read the document's examples: name to plain value and bytes."""
    found = {}
    pattern = r"### (\w+)\n\n```json\n(.*?)\n```\n\n```hex\n(.*?)\n```"
    for name, value, digits in re.findall(pattern, DOCUMENT.read_text(), re.DOTALL):
        found[name] = (json.loads(value), bytes.fromhex(digits))
    return found


def plain(value: object) -> object:
    if isinstance(value, bytes):
        return {"bin": value.hex()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value
