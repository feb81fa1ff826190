"""A gateway: the fast lane of a server, for the clients that come to it, on some node.

It answers with its own copy of the weights, keeps frames in its own ring, and needs nobody for
that: while the server that steers is away, it plays and ships on.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import fcntl
import gc
import itertools
import os
import secrets
import threading
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np
import ray

from config import Config
from server import document, front, native, nursery, urgency
from server.agent import Agent
from server.app import loop_factory, prepare_process
from server.cluster.fabric import Fabric, Node, outside_address, this_address
from server.cluster.hand import LearnerPost, learner_name
from server.cluster.report import GatewayReport, Orders, Outbox, Played, Tally
from server.controls import Controls
from server.fleet import EVERYWHERE, Fleet, Launch
from server.learn.network import Weights
from server.learn.replay import Replay, ReplayError
from server.lobby import Refused
from server.net.listener import Connection, Listener
from server.net.wire import Hello, Welcome
from server.perch import Perch
from server.spaces import Spaces
from server.stats import Event, EventLog
from server.train.courier import Courier

_CLOCKS_S = 1.0  # between looks at silent clients
_FLEET_S = 0.1  # between looks at the emulators
_PERCH_S = 0.1  # between looks at whether a lone client shares its core with us
_LAST_SHIPMENT_S = 5.0  # to ship what is left at the end
_STREAM = "stream.json"  # beside a ring: which one it is
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Post:
    """Where a gateway stands: its number, its node, its directory there, its emulators."""

    number: int
    node: Node
    directory: Path
    launches: tuple[Launch, ...]
    again: bool = False  # whether it stood somewhere before

    def port(self, config: Config) -> int:
        """Give the port it listens on; 0 for any that is free."""
        return config.server.port + self.number if config.server.port else 0


class Gateway:
    """Listener, lobby and agents of one gateway, on an event loop of their own."""

    def __init__(self, config: Config, post: Post, token: str, fabric: Fabric) -> None:
        self._config = config
        self._post = post
        self._token = token
        self._fabric = fabric
        self._life = secrets.token_hex(8)
        self._perch = Perch()
        self._controls = Controls(training=config.trainer.training)
        self._before: dict[str, int] = {}
        self._settings: dict[str, Any] = {}
        self._episodes: Outbox[Played] = Outbox()
        self._told: Outbox[Event] = Outbox()
        self._reported: dict[str, int] = {}  # latencies, by agent
        self._tasks: list[asyncio.Task[None]] = []
        self.agents: dict[str, Agent] = {}
        self.events = EventLog()
        self.events.listen(self._told.add)
        self._fleet = Fleet(
            list(post.launches),
            seed=config.run.seed + post.number,
            prefix=f"g{post.number}-",
            stagger_s=config.emulators.stagger_s,
            stall_s=config.emulators.stall_s,
        )
        self.lobby = front.lobby(config, self._find_agent, self.events, _refuse_exam)
        self.listener = Listener(desk=self.lobby, limits=front.limits(config), token=token)

    # --- its life, in reading order ---------------------------------------------------------

    async def startup(self, agents: dict[str, tuple[str, Spaces]]) -> None:
        """Listen, take up the run's agents, start the emulators."""
        urgency.claim()
        native.library()  # compiled now, if ever: later somebody would wait for it
        inside = await front.listen(self.listener, self._config, self._post.port(self._config))
        for name, (game, spaces) in agents.items():
            self._make_agent(name, game, spaces)
        self._fleet.seat(inside, self._token, self._post.directory / "emulators")
        gc.collect()
        gc.freeze()
        self._every(_CLOCKS_S, self._mind_clocks)
        self._every(_FLEET_S, self._tend_fleet)
        self._every(_PERCH_S, self._follow_lone_client)

    async def shutdown(self) -> None:
        """Say Bye, end the emulators, ship what is left."""
        self._perch.leave()
        self.listener.stop_accepting()
        for task in self._tasks:
            task.cancel()
        await self.listener.close("the server is shutting down")
        await asyncio.to_thread(self._fleet.stop)
        for agent in self.agents.values():
            await asyncio.to_thread(agent.trainer.stop, _LAST_SHIPMENT_S)

    # --- what it is told and tells ----------------------------------------------------------

    async def exchange(self, orders: Orders | None) -> GatewayReport:
        """Go by new orders, if there are any, and tell what nobody has heard of yet."""
        if orders is None or orders.life != self._life:
            return self._report(0, 0)  # whoever gave them does not know us yet
        self._before = dict(orders.before)
        for name, (game, spaces) in orders.agents.items():
            if name not in self.agents:
                self._take_up(name, game, spaces)  # its ring may hold frames to be shipped
            elif self.agents[name].spaces != spaces:
                self._drop(name)  # two gateways met the same new agent, and the other was first
        for name, frames in orders.frames.items():
            if name in self.agents:
                self.agents[name].count_frames(frames)
        self._take_controls(orders.controls)
        fresh = {n: v for n, v in orders.settings.items() if self._settings.get(n) != v}
        if fresh:
            self.lobby.set_client_settings(fresh)
            self._settings.update(fresh)
        return self._report(orders.episodes_seen, orders.events_seen)

    def flush(self) -> None:
        """Forget every frame so far; those that were not shipped are never shipped."""
        for agent in self.agents.values():
            agent.replay.flush()

    def _report(self, episodes_seen: int, events_seen: int) -> GatewayReport:
        now = time.monotonic()
        clients = self.lobby.views(now)
        return GatewayReport(
            life=self._life,
            node=self._post.node.id,
            address=self.address,
            pid=os.getpid(),
            controls=self._controls,
            clients=clients,
            tallies={name: self._tally(agent, now) for name, agent in self.agents.items()},
            before=self._before,
            episodes=self._episodes.since(episodes_seen),
            episodes_number=self._episodes.number,
            events=self._told.since(events_seen),
            events_number=self._told.number,
            awaited=self._fleet.awaited({view.name for view in clients}),
        )

    def _tally(self, agent: Agent, now: float) -> Tally:
        courier, weights = agent.trainer, agent.weights
        assert isinstance(courier, Courier)
        batcher = agent.batcher
        latencies_s, self._reported[agent.name] = batcher.latency_s.since(
            self._reported.get(agent.name, 0)
        )
        percentiles = batcher.latency_s.percentiles(50, 99)
        agreed, compared = agent.compared
        return Tally(
            game=agent.game,
            spaces=agent.spaces,
            players=batcher.players,
            frames=batcher.frames,
            batches=batcher.batches,
            agreed=agreed,
            compared=compared,
            latencies_s=np.array(latencies_s),
            latency_p50_s=percentiles[0] if percentiles else None,
            latency_p99_s=percentiles[1] if percentiles else None,
            weights_age_s=now - weights.time_s if weights else None,
            weights_version=weights.version if weights else 0,
            shipping=courier.shipping,
            problem=courier.problem,
        )

    @property
    def address(self) -> str:
        """Where clients of other machines find it."""
        host, _, port = self.listener.address.rpartition(":")
        if host.strip("[]") not in EVERYWHERE:
            return self.listener.address
        return f"{outside_address(self._post.node.address)}:{port}"

    # --- agents -----------------------------------------------------------------------------

    def _find_agent(self, hello: Hello) -> Agent:
        """Give the agent that a client asks for; a new one is the server's to make as well."""
        known = front.known_agent(self._config, self.agents, hello)
        if known is not None:
            return known
        return self._make_agent(hello.agent, hello.game, hello.spaces)

    def _make_agent(self, name: str, game: str, spaces: Spaces) -> Agent:
        self._perch.leave()  # its courier must not inherit the one core
        directory = self._post.directory / "agents" / name
        loop = asyncio.get_running_loop()

        def courier(replay: Replay, weights: Weights) -> Courier:
            return Courier(
                name=name,
                stream=_stream(directory, replay),
                replay=replay,
                weights=weights,
                reach=lambda rank: LearnerPost.reach(self._fabric, learner_name(name, rank)),
                learners=self._config.cluster.learners,
                gateway=self._post.number,
                on_weights=lambda new: _on_loop(loop, lambda: agent.play_with(new)),
                tell=lambda text: _on_loop(loop, lambda: self.events.add(text, "error")),
            )

        try:
            directory.mkdir(parents=True, exist_ok=True)
            agent = nursery.make_player(
                self._config,
                directory,
                name,
                game,
                spaces,
                number=self._post.number,
                controls=self._controls,
                events=self.events,
                schedule_call=loop.call_soon,
                home=courier,
                on_episode=lambda client, total, guided: self._episodes.add(
                    Played(name, client, total, guided)
                ),
            )
        except (ReplayError, OSError) as error:
            raise Refused(f"agent {name!r} cannot be made: {error}") from error
        self.agents[name] = agent
        agent.start()
        return agent

    def _take_up(self, name: str, game: str, spaces: Spaces) -> None:
        """Make an agent that others know of, if it can be made here; a client will hear why not."""
        with contextlib.suppress(Refused):
            self._make_agent(name, game, spaces)

    def _drop(self, name: str) -> None:
        """Give up an agent whose spaces are not those of the run's agent of that name."""
        self.events.add(f"agent {name} was made elsewhere with other spaces first", "warning")
        agent = self.agents.pop(name)
        for session in self.lobby.sessions:
            if session.hello.agent == name:
                session.close(f"agent {name!r} has other spaces; say Hello again to hear which")
        threading.Thread(target=agent.trainer.stop, args=(0.0,), daemon=True).start()

    def _take_controls(self, controls: Controls) -> None:
        if controls != self._controls:
            self._controls = controls
            for agent in self.agents.values():
                agent.set_controls(controls)

    # --- what it does now and then ----------------------------------------------------------

    def _every(self, seconds: float, action: Callable[[], None]) -> None:
        async def repeat() -> None:
            while True:
                await asyncio.sleep(seconds)
                try:
                    action()
                except OSError as error:  # a disk or the descriptors may be back the next time
                    self.events.add(f"left out for now: {error}", "error")

        self._tasks.append(asyncio.create_task(repeat()))

    def _mind_clocks(self) -> None:
        self.listener.mind_clocks()
        self.lobby.forget_lost()

    def _tend_fleet(self) -> None:
        for text in self._fleet.tend(self.lobby.silences(time.monotonic())):
            self.events.add(text, "warning")

    def _follow_lone_client(self) -> None:
        lone = self.listener.lone
        self._perch.look(lone, lone.core if lone else None)


def _was_restarted() -> bool:
    """Say whether Ray started this actor again; only an actor may ask."""
    return bool(ray.get_runtime_context().was_current_actor_reconstructed)


class GatewayActor:
    """A gateway as Ray runs it: its event loop has a thread of its own, Ray's calls come to it."""

    def __init__(
        self,
        config: Config,
        post: Post,
        token: str,
        space: str,
        agents: dict[str, tuple[str, Spaces]],
    ) -> None:
        os.umask(0o077)
        # One that goes on elsewhere, because we or Ray started it again, is worth more than its
        # emulators.
        if post.launches and not (post.again or _was_restarted()):
            for launch in post.launches:
                launch.check()
        prepare_process(config)
        factory = loop_factory() or asyncio.new_event_loop
        self._config = config
        self._over = False
        self._loop = factory()
        self._lock, directory = _claimed(post.directory)
        here = dataclasses.replace(post, node=_this_node(post.node), directory=directory)
        threading.Thread(target=self._loop.run_forever, name="gateway", daemon=True).start()
        self._gateway = self._call(_made(config, here, token, Fabric(space)))
        self._call(self._gateway.startup(agents))

    def exchange(self, orders: Orders | None) -> GatewayReport:
        """Go by new orders, if there are any, and tell what nobody has heard of yet."""
        return self._call(self._gateway.exchange(orders))

    def settings(self) -> Config:
        """Give the settings it was started with."""
        return self._config

    def flush(self) -> None:
        """Forget every frame so far."""
        self._gateway.flush()

    def close(self) -> None:
        """End in good order; the actor itself is ended by whoever asked."""
        self._over = True
        self._call(self._gateway.shutdown())

    def over(self) -> bool:
        """Say whether it was told to end: then nobody is to take it up again."""
        return self._over

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


async def _made(config: Config, post: Post, token: str, fabric: Fabric) -> Gateway:
    """Make a gateway on its own loop."""
    return Gateway(config, post, token, fabric)


def _this_node(meant: Node) -> Node:
    """Give the node that we are really on: started again, it may be another."""
    here = ray.get_runtime_context().get_node_id()
    if here == meant.id:
        return meant
    return dataclasses.replace(meant, id=here, address=this_address())


def _claimed(directory: Path) -> tuple[IO[str], Path]:
    """Give a directory that nobody else writes to, and the lock that keeps it so.

    A gateway whose node is cut off may live on for a while: its ring stays its own.
    """
    for number in itertools.count():
        mine = directory.with_name(f"{directory.name}.{number}") if number else directory
        mine.mkdir(parents=True, exist_ok=True)
        lock = (mine / "lock").open("a", encoding="utf-8")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
        else:
            return lock, mine
    raise AssertionError("unreachable: there is always another number")


def _stream(directory: Path, replay: Replay) -> str:
    """Give the name of a ring: the same as long as it is the same ring, and no other's."""
    path = directory / _STREAM
    if replay.head:
        with contextlib.suppress(ValueError, KeyError, OSError):
            return str(document.read(path)[0]["stream"])
    name = secrets.token_hex(8)
    document.write(path, {"stream": name})
    return name


def _refuse_exam(connection: Connection, hello: Hello, welcome: Welcome) -> None:
    raise Refused("evaluations are played at the server that steers the cluster, not at a gateway")


def _on_loop(loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
    """Call something on the loop from another thread, unless the loop has ended."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(call)
