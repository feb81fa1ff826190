"""Every Lua that the client must run on, with a guarded global table."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
VERSIONS = ("lua51", "lua52", "lua53", "lua54", "luajit21")

# A file of ours may read what Lua and the emulator offer, and write no global at all.
_GUARD = """
local allowed = ...
return setmetatable({}, {
  __index = function(_, name)
    local value = allowed[name]
    if value == nil then error("reads the global '" .. tostring(name) .. "'", 2) end
    return value
  end,
  __newindex = function(_, name) error("writes the global '" .. tostring(name) .. "'", 2) end,
})
"""
_LOAD = """
local text, name, environment = ...
if setfenv then
  local chunk, problem = loadstring(text, name)
  if not chunk then error(problem) end
  return setfenv(chunk, environment)
end
local chunk, problem = load(text, name, "t", environment)
if not chunk then error(problem) end
return chunk
"""


class Lua:
    """One Lua state; strings are bytes on both sides."""

    def __init__(self, version: str) -> None:
        module = importlib.import_module(f"lupa.{version}")
        self.runtime: Any = module.LuaRuntime(encoding=None, unpack_returned_tuples=True)
        self._load = self.runtime.eval(b"function(...) " + _LOAD.encode() + b" end")
        self._guard = self.runtime.eval(b"function(...) " + _GUARD.encode() + b" end")

    def load(self, path: str, **extra: Any) -> Any:
        """Run a file of client_lua under the guard and give what it returns."""
        return self.chunk(path, **extra)()

    def game(self, name: str) -> Any:
        """Load and check a game as an emulator does, every file of it under the guard."""
        games = self.load("game.lua", loadfile=lambda path: self.chunk(path.decode()))
        return games[b"load"](f"games/{name}.lua".encode())

    def chunk(self, path: str, **extra: Any) -> Any:
        """Give a file of client_lua as a function that runs it under the guard."""
        allowed = self.runtime.eval(b"setmetatable({}, {__index = _G})")
        for name, value in extra.items():
            allowed[name.encode()] = value
        text = (ROOT / "client_lua" / path).read_bytes()
        return self._load(text, b"@" + path.encode(), self._guard(allowed))

    def table(self, value: Any) -> Any:
        """Give a Lua value for a Python one: dicts and lists become tables, str becomes bytes."""
        if isinstance(value, str):
            return value.encode()
        if isinstance(value, dict):
            return self.runtime.table_from(
                {self.table(key): self.table(item) for key, item in value.items()}
            )
        if isinstance(value, list | tuple):
            return self.runtime.table_from([self.table(item) for item in value])
        return value

    def plain(self, value: Any) -> Any:
        """Give a Python value for a Lua one; a table with only 1..n is a list."""
        if not hasattr(value, "items"):
            return value
        items = {key: self.plain(item) for key, item in value.items()}
        if set(items) == set(range(1, len(items) + 1)):
            return [items[key] for key in range(1, len(items) + 1)]
        return items
