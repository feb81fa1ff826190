"""What a game's Lua file says of itself."""

from __future__ import annotations

import importlib
from typing import Any

from server.emulators import ROOT, game_file
from server.spaces import Actions, Continuous, Discrete, Observation

_CLIENT = ROOT / "client_lua"
_LOAD = "function(client, game) return dofile(client .. '/game.lua').load(game) end"


def comment(game: str) -> list[str]:
    """Give the comment that heads the file, line by line."""
    lines = []
    for line in game_file(game).read_text(encoding="utf-8").splitlines():
        if not line.startswith("--"):
            break
        lines.append(line.lstrip("-").removeprefix(" "))
    return lines


def facts(game: str) -> dict[str, str]:
    """Load the file and give what it declares, in words, by name."""
    try:
        lupa: Any = importlib.import_module("lupa")
    except ImportError:
        return {"more": "pip install lupa, and its observation and controls are shown here"}
    try:
        load = lupa.LuaRuntime().eval(_LOAD)
        table = load(str(_CLIENT), str(game_file(game)))
    except lupa.LuaError as error:
        return {"problem": str(error)}
    return _declared(table)


def _declared(table: Any) -> dict[str, str]:
    observation = Observation(table.observation.dtype, tuple(_list(table.observation.shape)))
    actions = Actions(
        tuple(Discrete(c.name, c.choices) for c in _list(table.actions.discrete)),
        tuple(Continuous(c.name, c.low, c.high) for c in _list(table.actions.continuous)),
        bool(table.actions.joint),
    )
    declared = {
        "observation": observation.describe(),
        "controls": actions.describe(),
        "rewards": ", ".join(_list(table.rewards)),
        "decision": "when the game asks for one" if table.decide else _every(table.frame_skip or 1),
        "expert": "yes" if table.expert else "no",
    }
    settings = [
        f"{s.name}: {s.about} ({s.low:g} to {s.high:g}, default {s.default:g})"
        for s in _list(table.settings)
    ]
    return {**declared, "settings": "\n".join(settings)} if settings else declared


def _every(frames: int) -> str:
    return f"every {frames} frames" if frames > 1 else "every frame"


def _list(table: Any) -> list[Any]:
    return [] if table is None else list(table.values())
