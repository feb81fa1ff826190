"""What the client costs MAME: 2600 Pong without a socket, in lockstep every frame, and training."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import statistics
import time
from collections.abc import AsyncIterator, Callable, Iterator
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
_TURN_S = 0.5  # that one kind of MAME runs at a time
_RESUME_S = 0.15  # until they run as before, after they were stopped
_FIRST_STEPS = 8  # of training, which begins slowly
_MOST_BOOT_S = 3.0
_MOST_SILENCE_S = 6.0  # with the boot before, less than the ten after which the client gives up
_EVERY_FRAME = {"COINOP_FRAME_SKIP": "1", "COINOP_AGENT": host.AGENT}


async def measure(options: argparse.Namespace) -> Round:
    """Measure one round: one MAME, then two, then what waiting and our Lua cost."""
    return {
        **await _compare(1, "one", options),
        **await _compare(2, "two", options, train=True),
        "waiting_core_share": await _waiting(min(options.seconds, _MOST_SILENCE_S)),
        **await _lua_cost(),
    }


async def _compare(
    count: int, name: str, options: argparse.Namespace, *, train: bool = False
) -> Round:
    """Let MAMEs run free and in lockstep by turns, and then in lockstep with training and without.

    Those that are not measured are stopped. The turns are short, because other work on the
    machine comes and goes: what counts is the ratio of neighbours.
    """
    script, niceness = SCRIPTS / "frames.lua", options.niceness
    async with (
        cabinets(count, script=script, environment={}, niceness=niceness) as free,
        _playing(count, niceness) as (app, agent, playing),
    ):
        await _until(lambda: all(game.frames >= _BOOT_FRAMES for game in free), free)
        counters = {
            "socketless": (free, lambda: sum(game.frames for game in free)),
            "lockstep": (playing, lambda: agent.frames),
        }
        fps: dict[str, list[float]] = {kind: [] for kind in counters}
        for game in [*free, *playing]:
            game.pause()
        for kind in _order("socketless", "lockstep", round(options.seconds / _TURN_S)):
            games, counter = counters[kind]
            fps[kind] += await _turn(games, counter)
        means = {kind: statistics.fmean(found) for kind, found in fps.items()}
        figures = {f"{kind}_fps_{name}": mean for kind, mean in means.items()}
        figures[f"mame_{name}"] = means["lockstep"] / means["socketless"]
        for game in playing:
            game.resume()
        if train:
            figures |= await _trained(app, agent, playing, options.seconds)
        for game in free:
            game.resume()
    return figures


def _order(one: str, other: str, turns: int) -> Iterator[str]:
    """Give who is measured when: a, b, b, a and so on, so that a drift cancels out."""
    for turn in range(max(turns, 1)):
        yield from (one, other) if turn % 2 else (other, one)


async def _turn(games: list[Cabinet], counter: Callable[[], float]) -> list[float]:
    """Give the frames/s of MAMEs that run for this while only."""
    for game in games:
        game.resume()
    await asyncio.sleep(_RESUME_S)
    fps = await _rates(_TURN_S, counter)
    for game in games:
        game.pause()
    return fps


async def _trained(app: App, agent: Agent, games: list[Cabinet], seconds: float) -> Round:
    """Give the figures of MAMEs that play beside training, by turns with the same without it."""
    host.set_training(app, True)
    steps = agent.trainer.report.steps + _FIRST_STEPS
    await _until(lambda: agent.trainer.report.steps >= steps, games)
    await asyncio.sleep(_WARMUP_S)
    fps: dict[str, list[float]] = {"lockstep": [], "trained": []}
    steps_per_s = []
    for kind in _order("lockstep", "trained", round(seconds / _TURN_S)):
        host.set_training(app, kind == "trained")
        await asyncio.sleep(_RESUME_S)
        found, stepped = await _rates(
            _TURN_S, lambda: agent.frames, lambda: agent.trainer.report.steps
        )
        fps[kind].append(found)
        if kind == "trained":
            steps_per_s.append(stepped)
    means = {kind: statistics.fmean(found) for kind, found in fps.items()}
    return {
        "trained_fps_two": means["trained"],
        "trained_steps_per_s": statistics.fmean(steps_per_s),
        "trained_over_untrained": means["trained"] / means["lockstep"],
    }


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
