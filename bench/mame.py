"""What the client costs MAME: 2600 Pong without a socket, in lockstep every frame, and training."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from bench import host, silent
from bench.cabinet import CLIENT, NICENESS, SCRIPTS, Cabinet, cabinets
from bench.figures import Round
from server.agent import Agent
from server.app import App
from server.emulators import LaunchError
from server.net import wire

ABOUT = "one and two MAMEs: free, in lockstep every frame, and beside training"
OPTIONS = {"--rounds": 5, "--seconds": 5.0, "--niceness": NICENESS}
_BOOT_FRAMES = 200  # until the game is switched on and can be played
_PATIENCE_S = 60.0
_WARMUP_S = 1.0
_FIRST_STEPS = 8  # of training, which begins slowly
_MOST_BOOT_S = 3.0
_MOST_SILENCE_S = 6.0  # with the boot before, less than the ten after which the client gives up
_EVERY_FRAME = {"COINOP_FRAME_SKIP": "1", "COINOP_AGENT": host.AGENT}


async def measure(options: argparse.Namespace) -> Round:
    """Measure one round, each free run right before the lockstep run it is compared with."""
    free_one = await _free(1, options)
    lockstep_one, _ = await _lockstep(1, options)
    free_two = await _free(2, options)
    lockstep_two, trained = await _lockstep(2, options, train=True)
    return {
        "socketless_fps_one": free_one,
        "lockstep_fps_one": lockstep_one,
        "mame_one": lockstep_one / free_one,
        "socketless_fps_two": free_two,
        "lockstep_fps_two": lockstep_two,
        "mame_two": lockstep_two / free_two,
        "trained_fps_two": trained["fps"],
        "trained_steps_per_s": trained["steps_per_s"],
        "trained_over_untrained": trained["fps"] / lockstep_two,
        "waiting_core_share": await _waiting(min(options.seconds, _MOST_SILENCE_S)),
        **await _lua_cost(),
    }


async def _free(count: int, options: argparse.Namespace) -> float:
    """Give the frames/s of all MAMEs together, with a script that only counts."""
    script, niceness = SCRIPTS / "frames.lua", options.niceness
    async with cabinets(count, script=script, environment={}, niceness=niceness) as games:
        await _until(lambda: all(game.frames >= _BOOT_FRAMES for game in games), games)
        await asyncio.sleep(_WARMUP_S)
        (fps,) = await _rates(options.seconds, lambda: sum(game.frames for game in games))
    return fps


async def _lockstep(
    count: int, options: argparse.Namespace, *, train: bool = False
) -> tuple[float, Round]:
    """Give the frames/s in lockstep without training, and the figures with it if asked for."""
    async with _playing(count, options.niceness) as (app, agent, games):
        (fps,) = await _rates(options.seconds, lambda: agent.frames)
        if not train:
            return fps, {}
        host.set_training(app, True)
        steps = agent.trainer.report.steps + _FIRST_STEPS
        await _until(lambda: agent.trainer.report.steps >= steps, games)
        await asyncio.sleep(_WARMUP_S)
        trained_fps, steps_per_s = await _rates(
            options.seconds, lambda: agent.frames, lambda: agent.trainer.report.steps
        )
    return fps, {"fps": trained_fps, "steps_per_s": steps_per_s}


@contextlib.asynccontextmanager
async def _playing(count: int, niceness: int) -> AsyncIterator[tuple[App, Agent, list[Cabinet]]]:
    """Run our server, without training, and MAMEs that play on it at full speed."""
    async with (
        host.server(trainer={"training": False}) as app,
        cabinets(
            count, port=app.listener.port, environment=_EVERY_FRAME, niceness=niceness
        ) as games,
    ):
        await _until(lambda: app.lobby.connected == count, games)
        agent = host.agent_of(app)
        await _until(lambda: agent.frames >= count * _BOOT_FRAMES, games)
        await asyncio.sleep(_WARMUP_S)
        yield app, agent, games


async def _waiting(seconds: float) -> float:
    """Give the share of a core that a MAME uses while its server does not answer."""
    asked = asyncio.Event()
    server = await silent.listen(asked)
    port = server.sockets[0].getsockname()[1]
    async with cabinets(1, port=port, environment=_EVERY_FRAME) as (game,):
        await _until(asked.is_set, [game])
        if not any("over LuaSocket" in line for line in game.lines):
            raise LaunchError(
                "MAME finds no LuaSocket, so its client waits in a loop; "
                "on Debian: apt-get install lua-socket"
            )
        await _booted(game.pid)
        (share,) = await _rates(seconds, lambda: _cpu_s(game.pid))
    server.close()
    return share


async def _lua_cost() -> Round:
    """Time what the Lua client does in a frame, inside MAME and without a socket."""
    action = wire.encode_action(2**32 - 1, [], [127.5], wire.Source.POLICY)
    told = {
        **_EVERY_FRAME,
        "BENCH_CLIENT": str(CLIENT),
        "BENCH_WELCOME": wire.encode(silent.WELCOME).hex(),
        "BENCH_ACTION": action.hex(),
    }
    async with cabinets(1, script=SCRIPTS / "cost.lua", environment=told) as (game,):
        await asyncio.wait_for(game.ended(), _PATIENCE_S)
        words = [line.split() for line in game.lines if line.startswith("lua_")]
        if not words:
            raise RuntimeError(f"MAME did not time its Lua: {game.last_words}")
    return {name: float(value) for name, value in words}


async def _until(reached: Callable[[], bool], games: list[Cabinet]) -> None:
    """Wait for something, as long as all MAMEs live."""
    deadline = time.perf_counter() + _PATIENCE_S
    while not reached():
        for game in games:
            game.check()
        if time.perf_counter() > deadline:
            raise RuntimeError(f"MAME does not play: {games[0].last_words}")
        await asyncio.sleep(0.05)


async def _rates(seconds: float, *counters: Callable[[], float]) -> list[float]:
    """Give how fast some counters grow, per second of wall clock."""
    before, began = [counter() for counter in counters], time.perf_counter()
    await asyncio.sleep(seconds)
    after, ended = [counter() for counter in counters], time.perf_counter()
    return [(b - a) / (ended - began) for a, b in zip(before, after, strict=True)]


async def _booted(pid: int) -> None:
    """Give MAME's other threads time to end what they do at its start, while its script waits."""
    deadline = time.perf_counter() + _MOST_BOOT_S
    while len(list(Path(f"/proc/{pid}/task").iterdir())) > 1 and time.perf_counter() < deadline:
        await asyncio.sleep(0.05)


def _cpu_s(pid: int) -> float:
    """Give the processor time that a process has used."""
    text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    fields = text.rpartition(")")[2].split()  # the name before may hold anything
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # user, system
