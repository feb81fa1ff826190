"""Runs the lanes of one server on the nodes of a cluster: starts them, hears them, tells them.

The actors outlive whoever started them. A server that finds those of its run takes them up as they
are; one that ends in good order ends them too.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import re
import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ray.exceptions import RayError

from config import Config
from server import document
from server.agent import Agent
from server.cluster import ClusterError
from server.cluster.fabric import Actor, Fabric, Node, homes_for_learning, reason
from server.cluster.gateway import GatewayActor, Post
from server.cluster.hand import GroupHand, LearnerHand, as_arrays, learner_name
from server.cluster.learner import FollowerActor, LearnerActor
from server.cluster.report import GatewayReport, Orders, Tally
from server.controls import Controls
from server.fleet import Launch
from server.learn import checkpoint as checkpoints
from server.learn.recipe import Recipe
from server.learn.replay import Layout, Replay
from server.spaces import Spaces
from server.stats import (
    ClientView,
    ClusterView,
    EventLog,
    GatewayView,
    LearnerView,
    NodeView,
    Rate,
)
from server.train.actor import Hand, Plan, TrainingActor
from server.train.courier import Shipping
from server.train.trainer import State

_START_S = 120.0  # for a gateway to be there: torch is loaded on its node
_ANSWER_S = 10.0
_RATE_WINDOW_S = 5.0
_LASTING = ("server", "replay", "policy", "network", "learner", "trainer", "emulators", "cluster")
_IDENTITY = "cluster.json"  # in the run: which rings on other machines belong to it


@dataclass(slots=True)
class _Gateway:
    """One gateway as it is known here."""

    post: Post
    actor: Actor
    report: GatewayReport | None = None  # the newest
    problem: str = ""  # why it does not answer
    looking: asyncio.Task[None] | None = None
    frames: Rate = field(default_factory=lambda: Rate(_RATE_WINDOW_S))
    shipped: Rate = field(default_factory=lambda: Rate(_RATE_WINDOW_S))

    @property
    def name(self) -> str:
        return f"gateway-{self.post.number}"


class Conductor:
    """The server's hand on the cluster."""

    def __init__(
        self,
        fabric: Fabric,
        config: Config,
        token: str,
        launches: list[Launch],
        *,
        agents: Mapping[str, Agent],
        events: EventLog,
        make_agent: Callable[[str, str, Spaces], object],
        controls: Callable[[], Controls],
    ) -> None:
        self._fabric = fabric
        self._config = config
        self._token = token
        self._launches = launches
        self._agents = agents
        self._events = events
        self._make_agent = make_agent
        self._controls = controls
        self._settings: dict[str, Any] = {}  # pushed to the scripts of all games
        self._gateways: list[_Gateway] = []
        self._nodes: list[Node] = []
        self._learners: dict[str, tuple[list[Node], Hand]] = {}  # by agent
        self._before: dict[str, int] = {}  # frames by agent that no living gateway has counted
        self._directory = Path()
        self._started: list[Actor] = []  # by us; those that were found are not among them

    # --- its life, in reading order ---------------------------------------------------------

    def open(self, run: Path, kept_as: Path | None) -> None:
        """Know the run, and which actors are its own; end those of the one that it starts over."""
        if kept_as is not None and (ended := _known_identity(kept_as)):
            self._fabric.enter(run.name, ended)
            self._fabric.clear()
        identity = _identity(run)
        self._fabric.enter(run.name, identity)
        self._nodes = self._fabric.nodes()
        self._check_cards()
        self._directory = run / "gateways" / identity

    async def start(self) -> None:
        """Start the gateways, or take up those that are there; wait until each answers."""
        self._before = {name: agent.frames for name, agent in self._agents.items()}
        self._gateways = [_Gateway(post, self._placed(post)) for post in self._posts()]
        for gateway in self._gateways:
            await self._settle(gateway)
        await self._look_all()

    def abandon(self) -> None:
        """End what we have started, as not all of it could be; what was found goes on."""
        for actor in self._started:
            actor.dismiss()
        self._started = []

    async def _settle(self, gateway: _Gateway) -> None:
        """Wait for a gateway's first answer; one that was at work already knows what it counts."""
        number, node = gateway.post.number, gateway.post.node
        try:
            asked = asyncio.wrap_future(gateway.actor.ask("settings"))
            settings: Config = await asyncio.wait_for(asked, _START_S)
            report = await self._ask(gateway, None)
        except Exception as error:  # whatever it was, there is no gateway
            cause = reason(error)
            raise ClusterError(
                f"gateway {number} cannot be started on {node.address}: {cause}"
            ) from error
        _check_same(settings, self._config, number)
        if report.before:
            self._before.update(report.before)
            self._events.add(f"{gateway.name} was at work already, at {report.address}")
        # As if nothing had been heard yet: what nobody has heard of comes with the next report.
        gateway.report = dataclasses.replace(report, tallies={}, episodes_number=0, events_number=0)

    async def tend(self) -> None:
        """Exchange news with every gateway and learner; who does not answer holds up nobody."""
        for gateway in self._gateways:
            if gateway.looking is None or gateway.looking.done():
                gateway.looking = asyncio.create_task(self._look(gateway))
        for agent in list(self._agents.values()):
            if isinstance(agent.trainer, TrainingActor):
                agent.trainer.tend()

    async def close_gateways(self) -> None:
        """Have every gateway say Bye and ship what is left, and end it."""
        await self._look_all()
        closing = [asyncio.wrap_future(g.actor.ask("close")) for g in self._gateways]
        if closing:
            await asyncio.wait(closing, timeout=_ANSWER_S)
        await self._look_all()
        for gateway in self._gateways:
            gateway.actor.dismiss()
        self._gateways = []

    def close(self) -> None:
        """End the learners."""
        for _, hand in self._learners.values():
            hand.dismiss()
        self._learners = {}

    # --- for the app ------------------------------------------------------------------------

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where clients connect."""
        return tuple(g.report.address for g in self._gateways if g.report)

    @property
    def awaited(self) -> int:
        """Number of emulators that are not connected yet, or again."""
        return sum(g.report.awaited for g in self._gateways if g.report)

    def clients(self) -> tuple[ClientView, ...]:
        """Give what people see of the clients of all gateways."""
        return tuple(
            c for g in self._gateways if g.report and not g.problem for c in g.report.clients
        )

    def push(self, settings: Mapping[str, Any]) -> None:
        """Push settings to the scripts of all games, at whichever gateway."""
        self._settings.update(settings)

    def launch_of(self, agent: str) -> Launch | None:
        """Give how an emulator of ours that plays for this agent was started."""
        names = [client.name for client in self.clients() if client.agent == agent]
        for launch in self._launches:
            stem = re.sub(r"[^A-Za-z0-9._-]", "-", f"-{launch.emulator}-{launch.game}-")
            if any(stem in name for name in names):
                return launch
        return None

    def view(self) -> ClusterView:
        """Give what people see of nodes and gateways."""
        gateways = tuple(self._gateway_view(gateway) for gateway in self._gateways)
        learners = Counter(node.id for homes, _ in self._learners.values() for node in homes)
        nodes = []
        for node in self._nodes:
            mine = [
                view
                for view, g in zip(gateways, self._gateways, strict=True)
                if g.report and g.report.node == node.id
            ]
            nodes.append(
                NodeView(
                    address=node.address,
                    cpus=node.cpus,
                    gpus=node.gpus,
                    gateways=len(mine),
                    clients=sum(view.clients for view in mine),
                    frames_per_s=sum(view.frames_per_s for view in mine),
                    learners=learners[node.id],
                )
            )
        return ClusterView(tuple(nodes), gateways, tuple(self._learner_views()))

    def shipping(self) -> list[Shipping]:
        """Give how shipping goes, at each gateway and for each agent."""
        reports = [g.report for g in self._gateways if g.report]
        return [tally.shipping for report in reports for tally in report.tallies.values()]

    async def version_in_play(self, agent: str) -> int:
        """Ask every gateway which weights an agent plays with there; give the oldest."""
        reports = [await self._ask(gateway, None) for gateway in self._gateways]
        return min(report.tallies[agent].weights_version for report in reports)

    def home(
        self,
        name: str,
        directory: Path,
        *,
        controls: Controls,
        on_death: Callable[[BaseException], None],
        on_fall: Callable[[str], None],
    ) -> Callable[[Recipe, Layout, Replay], TrainingActor]:
        """Give what makes the home of an agent's learner, in an actor of this cluster."""

        def make(recipe: Recipe, layout: Layout, replay: Replay) -> TrainingActor:
            config = self._config
            plan = Plan(
                name=name,
                recipe=recipe,
                layout=layout,
                min_replay=config.replay.min_replay,
                max_replay_ratio=config.trainer.max_replay_ratio,
                heartbeat_s=config.policy.heartbeat_s,
                learners=config.cluster.learners,
            )
            return TrainingActor(
                plan=plan,
                replay=replay,
                controls=controls,
                find=self._find_learner,
                hire=self._hire_learner,
                newest_state=lambda: _newest_state(directory),
                flush=lambda: self._flush(name),
                on_death=on_death,
                on_fall=on_fall,
            )

        return make

    # --- learners ---------------------------------------------------------------------------

    def _find_learner(self, plan: Plan) -> Hand | None:
        """Give the learners of an agent if all of them live; of some, or of more, nothing is made.

        Those would be of another start, which had other numbers or did not come to its end.
        """
        names = [learner_name(plan.name, rank) for rank in range(plan.learners + 1)]
        found = [self._at_work(name) for name in names]
        actors = [actor for actor in found if actor is not None]
        if len(actors) != plan.learners or found[-1] is not None:
            for actor in actors:
                LearnerHand(actor).dismiss()
            return None
        self._events.add(f"the learner of agent {plan.name} was at work already")
        return self._keep(plan.name, homes_for_learning(self._nodes, plan.learners), actors)

    def _hire_learner(self, plan: Plan, state: State) -> Hand:
        self._nodes = self._fabric.nodes()
        homes = homes_for_learning(self._nodes, plan.learners)
        arrays = as_arrays(state)
        how: dict[str, Any] = {
            "lasting": False,  # it is started again from a checkpoint, which Ray does not know
            "gpus": 1.0 if plan.recipe.device == "cuda" else 0.0,
        }
        name = learner_name(plan.name)
        actors = [self._start_actor(LearnerActor, name, homes[0], plan, arrays, **how)]
        try:
            for rank in range(1, plan.learners):
                name = learner_name(plan.name, rank)
                mine = (plan, arrays, rank, actors[0].handle)
                actors.append(self._start_actor(FollowerActor, name, homes[rank], *mine, **how))
        except BaseException:  # all or none: those that are there keep the names of the next
            for actor in actors:
                LearnerHand(actor).dismiss()
            raise
        return self._keep(plan.name, homes, actors)

    def _keep(self, name: str, homes: list[Node], actors: list[Actor]) -> Hand:
        hands = [LearnerHand(actor) for actor in actors]
        hand = hands[0] if len(hands) == 1 else GroupHand(hands)
        self._learners[name] = (homes, hand)
        return hand

    def _at_work(self, name: str) -> Actor | None:
        """Find an actor; one that was told to end by a server that was killed then goes now."""
        actor = self._fabric.find(name)
        if actor is None:
            return None
        with contextlib.suppress(Exception):  # who does not answer is heard of later
            if actor.ask("over").result(_ANSWER_S):
                actor.dismiss()
                return None
        return actor

    def _start_actor(self, kind: type, name: str, node: Node, *arguments: Any, **how: Any) -> Actor:
        actor = self._fabric.start(kind, name, node, *arguments, **how)
        self._started.append(actor)
        return actor

    def _check_cards(self) -> None:
        """Refuse a device that is not for a cluster, or that learners would wait for for ever."""
        device = self._config.network.device
        if device not in ("cpu", "cuda"):
            raise ClusterError(f"device = {device} is not for a cluster; use --device cpu or cuda")
        asked, cards = self._config.cluster.learners, sum(node.gpus for node in self._nodes)
        if device == "cuda" and asked > cards:
            fewer = f"--learners {int(cards)} or " if cards >= 1 else ""
            raise ClusterError(
                f"device = cuda with learners = {asked} needs as many GPUs, and the cluster has "
                f"{cards:g}; use {fewer}--device cpu"
            )

    def _flush(self, agent: str) -> None:
        for gateway in self._gateways:
            gateway.actor.ask("flush")
        if agent in self._learners:
            self._learners[agent][1].ask("flush")

    # --- gateways ---------------------------------------------------------------------------

    def _posts(self) -> list[Post]:
        """Share gateways out among the nodes, and emulators among the gateways."""
        count = self._config.cluster.gateways
        nodes = [self._nodes[number % len(self._nodes)] for number in range(count)]
        return [
            Post(
                number=number,
                node=nodes[number],
                directory=self._directory / str(number),
                launches=tuple(
                    dataclasses.replace(launch, count=share)
                    for launch in self._launches
                    if (share := _share(launch, nodes, number))
                ),
            )
            for number in range(count)
        ]

    def _placed(self, post: Post) -> Actor:
        """Give the gateway's actor, started if there is none."""
        found = self._at_work(f"gateway-{post.number}")
        if found is not None:
            return found
        agents = {name: (agent.game, agent.spaces) for name, agent in self._agents.items()}
        return self._start_actor(
            GatewayActor,
            f"gateway-{post.number}",
            post.node,
            *(self._config, post, self._token, self._fabric.space, agents),
            lasting=True,
        )

    async def _look_all(self) -> None:
        await asyncio.gather(*(self._look(gateway) for gateway in self._gateways))

    async def _look(self, gateway: _Gateway) -> None:
        """Exchange news with one gateway; tell when it goes and when it comes back."""
        try:
            report = await self._ask(gateway, self._orders(gateway))
        except Exception as error:  # a dead one is Ray's to start again; whatever else is told
            if not gateway.problem:
                gateway.problem = reason(error)
                self._events.add(f"{gateway.name} does not answer: {gateway.problem}", "warning")
            with contextlib.suppress(ClusterError, RayError):  # the next look tries it again
                await asyncio.to_thread(self._replace_if_gone, gateway)
            return
        if gateway.problem:
            gateway.problem = ""
            self._events.add(f"{gateway.name} is back, at {report.address}")
        self._hear(gateway, report)

    async def _ask(self, gateway: _Gateway, orders: Orders | None) -> GatewayReport:
        asked = asyncio.wrap_future(gateway.actor.ask("exchange", orders))
        report: GatewayReport = await asyncio.wait_for(asked, _ANSWER_S)
        return report

    def _replace_if_gone(self, gateway: _Gateway) -> None:
        """Start a gateway anew that Ray has given up."""
        self._nodes = self._fabric.nodes()
        if self._fabric.find(gateway.name) is None and self._nodes:
            node = self._nodes[gateway.post.number % len(self._nodes)]
            gateway.post = dataclasses.replace(gateway.post, node=node, again=True)
            gateway.actor = self._placed(gateway.post)

    def _orders(self, gateway: _Gateway) -> Orders:
        report = gateway.report
        return Orders(
            controls=self._controls(),
            settings=dict(self._settings),
            agents={name: (agent.game, agent.spaces) for name, agent in self._agents.items()},
            frames={name: agent.frames for name, agent in self._agents.items()},
            before=dict(self._before),
            life=report.life if report else "",
            episodes_seen=report.episodes_number if report else 0,
            events_seen=report.events_number if report else 0,
        )

    def _hear(self, gateway: _Gateway, report: GatewayReport) -> None:
        """Take in what a gateway has done since the last time."""
        last, gateway.report = gateway.report, report
        known = last.tallies if last else {}
        if last and last.life != report.life:  # another one in its place, which counts anew
            for name, tally in known.items():
                self._before[name] = self._before.get(name, 0) + tally.frames
            known = {}
        for event in report.events:
            self._events.add(f"{gateway.name}: {event.text}", event.level)
        for name, tally in report.tallies.items():
            if name not in self._agents:
                self._make_agent(name, tally.game, tally.spaces)
            if name in self._agents and self._agents[name].spaces == tally.spaces:
                _absorb(self._agents[name], tally, known.get(name))
        for played in report.episodes:
            if played.agent in self._agents:
                self._agents[played.agent].note_episode(
                    played.client, played.total, guided=played.guided
                )
        for name, agent in self._agents.items():
            tallies = self._tallies(name)
            before = self._before.setdefault(name, 0)
            agent.count_frames(before + sum(tally.frames for tally in tallies))
            agent.set_players(sum(tally.players for tally in tallies))

    def _tallies(self, agent: str) -> list[Tally]:
        """Give what the gateways have done for an agent, as far as it is known."""
        found = (g.report.tallies.get(agent) for g in self._gateways if g.report)
        return [tally for tally in found if tally]

    def _learner_views(self) -> Iterator[LearnerView]:
        """Give the learners of each agent that has several, as far as they are known."""
        for name, (homes, _) in self._learners.items():
            trainer = self._agents[name].trainer if name in self._agents else None
            progress = trainer.progress if isinstance(trainer, TrainingActor) else None
            parts = progress.parts if progress else ()
            for rank, (node, part) in enumerate(zip(homes, parts, strict=False)):
                whole = progress.frames if progress else 0
                share = part.frames / whole if whole else 0.0
                yield LearnerView(name, rank, node.address, part.frames, share)

    def _gateway_view(self, gateway: _Gateway) -> GatewayView:
        report, node = gateway.report, gateway.post.node
        tallies = list(report.tallies.values()) if report else []
        where = {node.id: node.address for node in self._nodes}
        p50 = [tally.latency_p50_s for tally in tallies if tally.latency_p50_s is not None]
        p99 = [tally.latency_p99_s for tally in tallies if tally.latency_p99_s is not None]
        ages = [tally.weights_age_s for tally in tallies if tally.weights_age_s is not None]
        lost = next((tally.problem for tally in tallies if tally.problem), "")
        frames = sum(tally.frames for tally in tallies)
        shipping = [tally.shipping for tally in tallies]
        return GatewayView(
            number=gateway.post.number,
            node=where.get(report.node, node.address) if report else node.address,
            state=gateway.problem or (f"no learner: {lost}" if lost else "up"),
            address=report.address if report else "",
            clients=len(report.clients) if report and not gateway.problem else 0,
            frames=frames,
            frames_per_s=gateway.frames.update(frames),
            latency_p50_ms=1e3 * max(p50) if p50 else None,
            latency_p99_ms=1e3 * max(p99) if p99 else None,
            weights_age_s=max(ages) if ages else None,
            backlog=sum(one.backlog for one in shipping),
            shipped_bytes_per_s=gateway.shipped.update(sum(one.size_bytes for one in shipping)),
            shipped=sum(one.frames for one in shipping),
            lost=sum(one.lost for one in shipping),
        )


def _absorb(agent: Agent, tally: Tally, last: Tally | None) -> None:
    """Count what a gateway has done for an agent since the last time."""
    agent.absorb(
        frames=tally.frames - (last.frames if last else 0),
        batches=tally.batches - (last.batches if last else 0),
        agreed=tally.agreed - (last.agreed if last else 0),
        compared=tally.compared - (last.compared if last else 0),
        latencies_s=tally.latencies_s.tolist(),
    )


def _share(launch: Launch, nodes: list[Node], number: int) -> int:
    """Give how many emulators of a launch a gateway starts.

    Those for each node are its first gateway's; all others are shared out.
    """
    if launch.each:
        return launch.count if nodes.index(nodes[number]) == number else 0
    return launch.count // len(nodes) + (number < launch.count % len(nodes))


def _identity(run: Path) -> str:
    """Give what tells this run from others of its name, made with the run's first cluster."""
    if known := _known_identity(run):
        return known
    identity = secrets.token_hex(4)
    document.write(run / _IDENTITY, {"identity": identity})
    return identity


def _known_identity(run: Path) -> str:
    """Give the same of a run that may never have been on a cluster; "" then."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        return str(document.read(run / _IDENTITY)[0]["identity"])
    return ""


def _newest_state(directory: Path) -> State | None:
    """Give the learner's state of the newest checkpoint, if there is one."""
    checkpoint, _ = checkpoints.load(directory)
    if checkpoint is None:
        return None
    return {"tensors": dict(checkpoint.tensors), "counters": checkpoint.plain["learner"]}


def _check_same(found: Config, asked: Config, number: int) -> None:
    """Refuse to take up a gateway that goes by other settings than ours."""
    there, here = dataclasses.asdict(found), dataclasses.asdict(asked)
    different = [
        f"{name} = {there[section][name]}"
        for section in _LASTING
        for name, value in here[section].items()
        if there[section][name] != value and name != "cluster"
    ]
    if different:
        raise ClusterError(
            f"gateway {number} of this run is at work already, with {', '.join(different)}; start "
            "with the same settings and end it in good order first, or use --fresh"
        )
