"""Builds every part, starts it, and stops it in reverse."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gc
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

# Loaded now: numpy and safetensors would load them in the middle of a game, which then waits.
import numpy.ctypeslib
import numpy.ma
import numpy.random  # noqa: F401
import torch

from config import Config
from server import album as album_module
from server import courtesy as courtesy_module
from server import descriptors, dials, front, native, nursery, urgency, versions
from server import fleet as fleet_module
from server import gate as gate_module
from server import governor as governor_module
from server import helm as helm_module
from server import journal as journal_module
from server import probe as probe_module
from server.agent import SCHEDULED, Agent, LearningAgent
from server.album import Album
from server.cluster import LOCAL, ClusterError
from server.console.terminal import Terminal
from server.controls import Command, Controls
from server.courtesy import Courtesy
from server.curves import Curves
from server.dials import Value
from server.emulators import PROGRAMS, LaunchError
from server.examiner import Examiner
from server.exporter import Exporter
from server.fleet import Fleet, Launch
from server.gate import Gate
from server.governor import Governor
from server.helm import Helm, HelmError
from server.journal import Change, Journal
from server.learn.checkpoint import CheckpointError
from server.learn.replay import ReplayError
from server.lobby import Refused
from server.net.listener import Connection, Listener
from server.net.tape import Tape, TapedConnection, TapeError
from server.net.wire import Hello
from server.perch import Perch
from server.probe import Probe
from server.run import Run, RunError
from server.spaces import Spaces
from server.stats import EventLog, Governed, Score, Snapshot
from server.steering import Steering

if TYPE_CHECKING:  # Ray is there only if a cluster is asked for
    from server.cluster.fabric import Fabric

_STOP_S = 30.0  # for a trainer to finish its sample
_FIRST_SAVE_S = 30.0  # after the start; the pause doubles until it is save_interval_s
_PICTURES_S = 1.0  # between two writes of the clients' pictures
_TAPE_S = 1.0  # between hand-overs of a tape to the disk
_STALE_BEATS = 3  # heartbeats without new weights are no alarm yet
_CLOCKS_S = 1.0  # between looks at silent clients
_HISTORY_S = 1.0  # between points of the graphs
_FLEET_S = 0.1  # between looks at the emulators
_PERCH_S = 0.1  # between looks at whether a lone client shares its core with us
_CLUSTER_S = 0.5  # between exchanges with the gateways of a cluster
_EXAMS_S = 0.5  # between looks at evaluations
_OWNER_ONLY = 0o077  # whatever we or our emulators write, others may not even look at
_FORCED = 130  # exit code after a second Ctrl-C
# Ray reads it when it is imported: without other machines, it listens on 127.0.0.1 only.
_OTHER_MACHINES = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"


class DeviceError(ValueError):
    """A device that this machine does not have."""


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # the last: the terminal was closed

# What goes wrong before the first client: told in one line. An OSError names its own file.
STARTUP_ERRORS = (
    RunError,
    ReplayError,
    CheckpointError,
    LaunchError,
    DeviceError,
    ClusterError,
    TapeError,
    OSError,
)


class App:
    """The whole server."""

    def __init__(self, config: Config, *, token: str = "", fabric: Fabric | None = None) -> None:
        self._config = config
        self._token = token
        self._fabric = fabric
        self._started_s = time.monotonic()
        self._saved_s: float | None = None
        self._stop = asyncio.Event()
        self._sync_now = asyncio.Event()
        self._beat_s = config.policy.heartbeat_s
        self._failures: list[str] = []
        self._pictures_failed = False
        self._tasks: list[asyncio.Task[None]] = []
        self._saving = asyncio.Lock()
        launches = _launches(config)
        self._fleet = Fleet(
            launches if fabric is None else [],  # of a cluster, the gateways start them
            seed=config.run.seed,
            stagger_s=config.emulators.stagger_s,
            stall_s=config.emulators.stall_s,
        )
        self.events = EventLog()
        self._terminal = Terminal(
            snapshot=self.snapshot,
            on_command=self.command,
            on_problem=lambda text: self.events.add(text, "warning"),
            plain_lines=config.console.plain,
            refresh_s=config.console.refresh_s,
            status_interval_s=config.console.status_interval_s,
        )
        self.agents: dict[str, LearningAgent] = {}
        self._examiner = Examiner(
            agents=self.agents,
            interval_s=config.evaluation.eval_interval_s,
            episodes=config.evaluation.eval_episodes,
            sticky=config.evaluation.eval_sticky,
            stall_s=config.emulators.stall_s,
            device=nursery.playing_device(config),
            find_launch=self._launch_for,
            on_score=self._scored,
            events=self.events,
        )
        self._naturals = nursery.naturals(config)
        self.steering = Steering(
            dials=dials.table(nursery.bounds()),
            natural=self._natural,
            frames=lambda: sum(agent.frames for agent in self.agents.values()),
            publish=self._set_controls,
            push=self._push,
            on_change=self._changed,
            on_problem=lambda text: self.events.add(text, "warning"),
        )
        self.helm = Helm(
            agents=self.agents,
            steering=self.steering,
            events=self.events,
            save=self.save,
            examine=self._examiner.ask,
            stop=self.request_stop,
        )
        self._exporter = Exporter(self.snapshot)
        self._gate = Gate(snapshot=self.snapshot, obey=self.helm.obey, errors=helm_module.ERRORS)
        trainer = config.trainer
        self.probe: Probe | None = None
        self._perch = Perch()
        self._courtesy: Courtesy | None = None
        self._share_held = 1.0  # of its time that the governor leaves to training
        self._share = 1.0  # that training has
        self.governor: Governor | None = None
        if trainer.hold_fps or trainer.hold_p99_ms:
            self.governor = Governor(fps=trainer.hold_fps, p99_ms=trainer.hold_p99_ms)
        self.lobby = front.lobby(config, self._find_agent, self.events, self._examiner.admit)
        self.conductor = None
        if fabric is not None:
            from server.cluster.conductor import Conductor

            self.conductor = Conductor(
                fabric,
                config,
                token,
                launches,
                agents=self.agents,
                events=self.events,
                make_agent=self._adopt,
                controls=lambda: self.steering.controls,
            )
        self._unfit: set[str] = set()  # agents of gateways that cannot be made here
        self._tape = self._begin_tape()
        self.listener = Listener(
            desk=self.lobby,
            limits=front.limits(config),
            token=token,
            connect=partial(TapedConnection, tape=self._tape) if self._tape else Connection,
        )

    @property
    def config(self) -> Config:
        """The settings that it was started with."""
        return self._config

    # --- the server's life, in reading order ------------------------------------------------

    async def run(self) -> int:
        """Serve until someone says stop; give the process's exit code."""
        self.events.listen(self._terminal.show_event)
        with self._signals():
            try:
                with self._all_or_nothing():
                    await self.startup()
                async with self._terminal:
                    await self._stop.wait()
                    await self.shutdown()
            finally:
                self._examiner.stop()
                self._fleet.stop()
        for failure in self._failures:
            _complain(failure)
        if not self._failures and sys.stdout.isatty():
            print(f"saved in {_short(self._run.path)}; start it again to go on")
        return 1 if self._failures else 0

    @contextlib.contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Leave nothing on a cluster of a start that fails: nobody would steer it."""
        try:
            yield
        except BaseException:
            if self.conductor is not None:
                self.conductor.abandon()
            raise

    async def startup(self) -> None:
        """Listen, open the run, take up its agents, start the emulators."""
        front.check_open_host(self._config.server.host, self._token)
        _check_device(nursery.playing_device(self._config))
        asyncio.get_running_loop().set_exception_handler(self._loop_error)
        # The port first: if it is taken, nothing is written anywhere.
        inside = await self._listen()
        self._open_run(await asyncio.to_thread(self._emulator_versions))
        self._take_up_agents()
        if self.conductor is not None:
            await self.conductor.start()
        await self._open_doors()
        self._start_emulators(inside)
        # What exists now stays: a full collection over torch's 170,000 objects would stop every
        # thread for over a tenth of a second (docs/architecture.md).
        gc.collect()
        gc.freeze()
        self._take_up_duties()

    def _open_run(self, emulators: dict[str, str]) -> None:
        """Find or make what is kept on disk, and note that it goes on."""
        config, loop = self._config, asyncio.get_running_loop()
        self._run = Run.open(Path(config.run.runs_dir), config.run.run, fresh=config.run.fresh)
        if self._run.kept_as is not None:
            self.events.add(f"starting over; the old run is kept as {_short(self._run.kept_as)}")
        if self.conductor is not None:
            self.conductor.open(self._run.path, self._run.kept_as)
        described = versions.described(config, emulators)
        self._run.note_start(described)
        self._curves = Curves(
            self._run.path,
            settings=described["settings"],
            places=lambda: [agent.place() for agent in self.agents.values()],
            on_problem=lambda text: _from_thread(loop, self.events.add, text, "warning"),
        )
        self._curves.start()
        self.steering.open(Journal.open(self._run.path / journal_module.NAME))

    def _take_up_agents(self) -> None:
        """Make the run's agents, with the live settings that were left, and start them."""
        for name, (game, spaces) in self._run.agents(self._warn).items():
            self.agents[name] = self._make_agent(name, game, spaces)
        self.steering.tend()  # the run's frames are known now
        if chosen := self.steering.restored():
            self.events.add(f"live settings as they were left: {chosen}")
        for agent in self.agents.values():
            agent.start()
            self._curves.started(agent.place(), self._config.run.seed)

    async def _open_doors(self) -> None:
        """Let people and Prometheus in, and say where emulators come in."""
        config = self._config
        await self._gate.open(self._run.path / gate_module.NAME)
        if config.console.metrics_port:
            address = await self._exporter.start(config.console.metrics_port)
            self.events.add(f"figures for Prometheus at {address}")
        self.events.add(f"listening on {self._address()}, run {config.run.run}")
        if native.library() is None:
            self.events.add(f"nothing compiled by {native.wanted()}: Python answers, half as fast")
        if not config.emulators.launch and not config.fleet:
            commands = " or ".join(self._connect_hints())
            self.events.add(f"connect an emulator with: {commands}")

    def _start_emulators(self, inside: str) -> None:
        """Tell those that start emulators where they connect to."""
        played = sum(agent.frames for agent in self.agents.values())
        homes = self._run.path / "emulators"
        self._fleet.seat(inside, self._token, homes, played)
        self._examiner.seat(fleet_module.reachable(inside), self._token, homes)

    def _emulator_versions(self) -> dict[str, str]:
        """Ask the emulators that we start for their versions; those of gateways are elsewhere."""
        launches = [] if self.conductor is not None else _launches(self._config)
        kinds = sorted({launch.emulator for launch in launches} & set(PROGRAMS))
        return {kind: PROGRAMS[kind].version() for kind in kinds}

    def _take_up_duties(self) -> None:
        """Begin with everything that is done again and again."""
        config = self._config
        self._every(_CLOCKS_S, self._mind_clocks)
        if self._tape is not None:
            self.events.add(f"recording all messages to {_short(Path(config.server.record))}")
            self._every(_TAPE_S, self._flush_tape)
        self._every(_HISTORY_S, self._note_history)
        if config.console.preview_every:
            self._album = Album(self._run.path / album_module.DIRECTORY)
            self._every(_PICTURES_S, self._write_pictures)
        self._every(_FLEET_S, self._tend_fleet)
        if self.conductor is not None:
            self._every(_CLUSTER_S, self.conductor.tend)
        else:
            self._every(_PERCH_S, self._follow_lone_client)
        self._every(_EXAMS_S, self._examiner.tend)
        self._every(config.run.curve_interval_s, self._draw_curves)
        if config.console.telemetry or self.governor:
            interval_s = governor_module.PROBE_S if self.governor else probe_module.INTERVAL_S
            post = asyncio.get_running_loop().call_soon_threadsafe
            self.probe = Probe(post, interval_s=interval_s)
            self.probe.start()
        if self.governor:
            self._every(governor_module.LOOK_S, self._govern)
        if config.trainer.trainer == "process":
            self._courtesy = Courtesy()
            self._every(courtesy_module.LOOK_S, self._be_courteous)
        self._tasks.append(asyncio.create_task(self._guarded(self._keep_saving())))
        self._tasks.append(asyncio.create_task(self._guarded(self._heartbeat())))

    def _begin_tape(self) -> Tape | None:
        """Begin to record, if it was asked for."""
        if not self._config.server.record:
            return None
        path = Path(self._config.server.record)
        return Tape.create(path, lambda text: self.events.add(text, "error"))

    async def _listen(self) -> str:
        """Open the front door; give the address for emulators of our own."""
        if self.conductor is None:
            return await front.listen(self.listener, self._config, self._config.server.port)
        # Clients go to the gateways; evaluations are played here.
        await self.listener.start("127.0.0.1", 0)
        return self.listener.address

    async def shutdown(self) -> None:
        """Stop accepting, say Bye, let the trainers finish, save, let go of the run."""
        self._perch.leave()
        self.listener.stop_accepting()
        self._examiner.stop()
        async with self._saving:  # a save under way must not meet the last one
            for task in self._tasks:
                task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.probe is not None:
            await asyncio.to_thread(self.probe.stop)
        await self.listener.close("the server is shutting down")
        if self.conductor is not None:
            await self.conductor.close_gateways()
        if self._tape is not None:
            self._tape.close()
        await asyncio.to_thread(self._fleet.stop)
        await self._examiner.finish()
        for name, agent in list(self.agents.items()):
            if not await asyncio.to_thread(agent.trainer.stop, _STOP_S):
                self._failures.append(f"the trainer of agent {name} hangs; it is not saved")
                del self.agents[name]
        if not await self.save():
            self._failures.append("the last save failed; the checkpoint before it is kept")
        if self.conductor is not None:
            self.conductor.close()
        await self._draw_curves()
        await asyncio.to_thread(self._curves.close)
        await self._gate.close()
        self._exporter.close()
        self.steering.close()
        self._run.close()

    def request_stop(self, reason: str) -> None:
        """Begin the orderly end of the server."""
        if not self._stop.is_set():
            self._stop.set()
            self.events.add(f"stopping: {reason}")

    # --- what happens while it runs ---------------------------------------------------------

    async def save(self) -> bool:
        """Write every agent's checkpoint; an error is shown, and training goes on."""
        async with self._saving:
            # All at once: none waits for the learner of another.
            good = all(await asyncio.gather(*map(self._save_agent, self.agents.values())))
            if good:
                self._saved_s = time.monotonic()
                if self.agents:
                    self.events.add("saved")
            return good

    async def _save_agent(self, agent: LearningAgent) -> bool:
        try:
            await agent.save()
        except CheckpointError as error:
            self.events.add(str(error), "error")
            return False
        return True

    async def _keep_saving(self) -> None:
        """Save on schedule, and sooner at first: a young run has the most to lose."""
        wait_s = _FIRST_SAVE_S
        while True:
            await asyncio.sleep(min(wait_s, self._config.run.save_interval_s))
            wait_s *= 2
            await self.save()

    def command(self, command: Command) -> None:
        """Do what a person asked for."""
        task = asyncio.create_task(self._guarded(self.helm.obey_key(command)))
        self._tasks.append(task)
        task.add_done_callback(self._tasks.remove)

    def snapshot(self, *, events: int = 50) -> Snapshot:
        """Give everything people see, at this moment."""
        now = time.monotonic()
        clients = self.lobby.views(now)
        awaited = self._fleet.awaited({view.name for view in clients})
        if self.conductor is not None:
            clients, awaited = self.conductor.clients(), self.conductor.awaited
        return Snapshot(
            time_s=time.time(),
            run=self._config.run.run,
            address=self._address(),
            uptime_s=now - self._started_s,
            controls=self.steering.controls,
            clients=clients,
            agents=tuple(agent.view() for agent in self.agents.values()),
            events=self.events.newest(events),
            last_save_s=None if self._saved_s is None else now - self._saved_s,
            connect_hints=self._connect_hints(),
            stopping=self._stop.is_set(),
            saving=self._saving.locked(),
            awaited=awaited,
            dials=self.steering.views(),
            changed_s=tuple(self.steering.changed_s),
            contention=self.probe.view() if self.probe else None,
            governed=self._governed(),
            cluster=self.conductor.view() if self.conductor else None,
        )

    def _address(self) -> str:
        """Give where clients connect: one address, or those of all gateways."""
        return ",".join(self.conductor.addresses) if self.conductor else self.listener.address

    def _connect_hints(self) -> tuple[str, ...]:
        """Give commands that connect an emulator to this server."""
        host, port = self._config.server.host, self.listener.port
        options = "" if (host, port) == ("127.0.0.1", 9797) else f" --server {host}:{port}"
        if self.conductor is not None:
            options = f" --server {self._address()}"
        elif host in fleet_module.EVERYWHERE:
            options = f" --server THIS_MACHINE:{port}"
        options += " --token-file FILE" if self._token else ""
        options += " --tls-ca FILE" if self._config.server.tls_cert else ""
        python = _short(Path(sys.executable))
        return tuple(
            f"{python} -m client_py {game}{options}" for game in ("--ale pong", "--env CartPole-v1")
        )

    def _natural(self, name: str) -> Value | None:
        """Give a live setting as it is by itself; schedules are those of the busiest agent."""
        if name not in SCHEDULED:
            return self._naturals.get(name)
        busiest = max(self.agents.values(), key=lambda agent: agent.batcher.frames, default=None)
        scheduled = busiest.naturals() if busiest else {}
        return scheduled.get(name, self._naturals.get(name))

    def _warn(self, text: str) -> None:
        self.events.add(text, "warning")

    def _changed(self, change: Change, text: str) -> None:
        """Tell of a change, and mark it on the curves."""
        self.events.add(text)
        plain = journal_module.to_plain(change)
        self._curves.marker(change.name, plain["old"], plain["new"], change.who)

    def _push(self, name: str, value: Value) -> None:
        """Push a setting to the scripts of all games."""
        try:
            self.lobby.set_client_settings({name: value})
        except ValueError as error:
            raise dials.DialError(str(error)) from error
        if self.conductor is not None:
            self.conductor.push({name: value})

    def _set_controls(self, controls: Controls) -> None:
        """Put live settings in force everywhere."""
        for agent in self.agents.values():
            agent.set_controls(controls)
        beat_s = controls.heartbeat_s or self._config.policy.heartbeat_s
        if beat_s != self._beat_s:
            self._beat_s = beat_s
            self._sync_now.set()  # the wait under way is the old one

    async def _heartbeat(self) -> None:
        """Copy trained weights into play, and once as soon as training has begun."""
        told = ""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._sync_now.wait(), self._beat_s)
            self._sync_now.clear()
            problem = ""
            try:
                await self.helm.sync()
            except HelmError as error:
                problem = str(error)
            if problem and problem != told:  # once, not with every heartbeat
                self.events.add(problem, "error")
            told = problem

    async def _mind_clocks(self) -> None:
        self.listener.mind_clocks()
        self.lobby.forget_lost()
        self.steering.tend()
        oldest_s = max(self._config.policy.weights_max_age_s, _STALE_BEATS * self._beat_s)
        for agent in self.agents.values():
            for told in (agent.watch_weights(oldest_s), agent.watch_learner()):
                if told:
                    self.events.add(told, "warning")
        if any(agent.awaits_first_weights() for agent in self.agents.values()):
            self._sync_now.set()

    async def _flush_tape(self) -> None:
        assert self._tape is not None
        self._tape.flush()

    async def _note_history(self) -> None:
        for agent in self.agents.values():
            agent.note_history()

    async def _govern(self) -> None:
        assert self.governor is not None and self.probe is not None
        self._share_held = self.governor.tend(self.agents.values(), self.probe.lag_s)
        self._give_way()

    async def _be_courteous(self) -> None:
        assert self._courtesy is not None
        self._courtesy.look(shares_core=self._perch.core is not None)
        self._give_way()

    def _give_way(self) -> None:
        """Let training use what both the governor and courtesy leave it."""
        courteous = self._courtesy.share if self._courtesy is not None else 1.0
        self._share = min(self._share_held, courteous)
        for agent in self.agents.values():
            agent.give_way(self._share)

    def _governed(self) -> Governed | None:
        """Give what training gives way to, if anything."""
        if self.governor is not None:
            return dataclasses.replace(self.governor.view(), training_share=self._share)
        trains = any(agent.is_training for agent in self.agents.values())
        return self._courtesy.view() if self._courtesy is not None and trains else None

    async def _tend_fleet(self) -> None:
        for text in self._fleet.tend(self.lobby.silences(time.monotonic())):
            self.events.add(text, "warning")

    async def _follow_lone_client(self) -> None:
        lone = self.listener.lone
        self._perch.look(lone, lone.core if lone else None)

    async def _draw_curves(self) -> None:
        for agent in self.agents.values():
            self._curves.figures(agent.view())

    def _launch_for(self, agent: str) -> Launch | None:
        """Give how an emulator of ours that plays for this agent was started."""
        if self.conductor is not None:
            return self.conductor.launch_of(agent)
        clients = {s.hello.client for s in self.lobby.sessions if s.hello.agent == agent}
        return self._fleet.launch_of(clients)

    def _scored(self, agent: str, score: Score, scheduled: bool, best: bool) -> None:
        self._curves.evaluation(agent, score, scheduled=scheduled, best=best)

    async def _write_pictures(self) -> None:
        """Write what clients showed since the last time; the disk is waited for in a thread."""
        changes = self._album.changes(self.lobby.sessions)
        if not changes:
            return
        problem = await asyncio.to_thread(album_module.write, changes)
        if problem and not self._pictures_failed:
            self._pictures_failed = True  # told once: it will be the same in a second
            self.events.add(problem, "warning")

    def _trainer_died(self, name: str, error: BaseException) -> None:
        text = f"the trainer of agent {name} died: {type(error).__name__}: {error}"
        self._failures.append(text)
        self.events.add(text, "error")
        self.request_stop("a dead trainer must not look alive")

    def _loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.events.add(f"{context.get('message')}: {type(error).__name__}: {error}", "error")

    # --- agents -----------------------------------------------------------------------------

    def _find_agent(self, hello: Hello) -> Agent:
        """Give the agent that a client asks for, made if it is the first to ask."""
        if self.conductor is not None:
            raise Refused(f"games are played at the gateways: {self._address()}")
        agent = front.known_agent(self._config, self.agents, hello)
        return agent or self._new_agent(hello.agent, hello.game, hello.spaces)

    def _adopt(self, name: str, game: str, spaces: Spaces) -> None:
        """Make the agent of which a gateway told; one that cannot be made is told once."""
        if name in self._unfit:
            return
        try:
            self._new_agent(name, game, spaces)
        except Refused as refusal:
            self._unfit.add(name)
            self.events.add(str(refusal), "error")

    def _new_agent(self, name: str, game: str, spaces: Spaces) -> LearningAgent:
        try:
            agent = self._make_agent(name, game, spaces)
            self._run.write_agent(name, game, spaces)
        except (ReplayError, CheckpointError, OSError) as error:
            raise Refused(f"agent {name!r} cannot be made: {error}") from error
        self.agents[name] = agent
        agent.start()
        self._curves.started(agent.place(), self._config.run.seed)
        size = agent.memory.layout.size_bytes() / 1e6
        self.events.add(f"new agent {name}: {spaces.describe()}; its replay takes {size:,.0f} MB")
        return agent

    def _make_agent(self, name: str, game: str, spaces: Spaces) -> LearningAgent:
        self._perch.leave()  # its trainer must not inherit the one core
        loop = asyncio.get_running_loop()
        directory, home = self._run.agent_directory(name), None

        def on_fall(text: str) -> None:
            _from_thread(loop, self.events.add, text, "warning")

        if self.conductor is not None:
            home = self.conductor.home(
                name,
                directory,
                controls=self.steering.controls,
                on_death=lambda error: self._trainer_died(name, error),
                on_fall=on_fall,
            )
        agent, saved_s = nursery.make_agent(
            self._config,
            directory,
            name,
            game,
            spaces,
            controls=self.steering.controls,
            events=self.events,
            schedule_call=loop.call_soon,
            on_death=lambda who, error: _from_thread(loop, self._trainer_died, who, error),
            on_fall=on_fall,
            in_actor=home,
        )
        if saved_s is not None:
            self._saved_s = time.monotonic() - max(0.0, time.time() - saved_s)
        self._examiner.take_up(agent)
        return agent

    # --- signals ----------------------------------------------------------------------------

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """End in good order at the first signal, at once at the second."""
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._on_signal, number.name)
        try:
            yield
        finally:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)

    def _on_signal(self, name: str) -> None:
        if not self._stop.is_set():
            self.request_stop(f"{name} (once more to force)")
            return
        self._terminal.restore()
        self._examiner.stop()
        self._fleet.stop()
        if self._fabric is not None:
            self._fabric.leave()  # or a part of it would stay
        _complain("forced to stop; what was not saved is lost")
        os._exit(_FORCED)

    # --- tasks ------------------------------------------------------------------------------

    def _every(self, seconds: float, action: Callable[[], Awaitable[Any]]) -> None:
        async def repeat() -> None:
            told = ""
            while True:
                await asyncio.sleep(seconds)
                try:
                    await action()
                except OSError as error:  # a disk or the descriptors may be back the next time
                    if str(error) != told:
                        told = str(error)
                        self.events.add(f"left out for now: {error}", "error")
                else:
                    told = ""

        self._tasks.append(asyncio.create_task(self._guarded(repeat())))

    async def _guarded(self, work: Coroutine[Any, Any, Any]) -> None:
        """Run a task; a task that dies stops the server with a message, never in silence."""
        try:
            await work
        except Exception as error:  # the rim of a task
            self._failures.append(f"a task of the server died: {type(error).__name__}: {error}")
            self.request_stop(self._failures[-1])


def serve(config: Config, *, token: str) -> int:
    """Run the server until it ends; give the process's exit code."""
    os.umask(_OWNER_ONLY)
    prepare_process(config)
    with contextlib.ExitStack() as stack:
        try:
            fabric = _join(config, stack)
            runner = stack.enter_context(asyncio.Runner(loop_factory=loop_factory()))
            return runner.run(_run(config, token, fabric))
        except STARTUP_ERRORS as error:
            _complain(str(error))
            return 2


def _join(config: Config, stack: contextlib.ExitStack) -> Fabric | None:
    """Join the cluster that the settings name, if any; before our signals, which Ray would take."""
    if not config.cluster.cluster:
        return None
    if config.cluster.cluster == LOCAL:
        os.environ[_OTHER_MACHINES] = "0"
    try:
        from server.cluster.fabric import Fabric
    except ModuleNotFoundError as error:
        raise ClusterError(
            f"cluster = {config.cluster.cluster!r} needs Ray ({error.name} is not installed): "
            "pip install -r requirements-cluster.txt"
        ) from error
    fabric = Fabric.join(config.cluster.cluster)
    stack.callback(fabric.leave)
    return fabric


def prepare_process(config: Config) -> None:
    """Set what holds for the whole process, which serves clients here or as a gateway.

    One torch thread, quick hand-over of Python's lock, and as many connections as may come. The
    calling thread is the event loop's: of all that want a core it is the one in a hurry.
    """
    descriptors.allow(2 * config.server.max_clients)  # half of them may not have said Hello yet
    urgency.claim()
    native.library()  # compiled now, if ever: later somebody would wait for it
    torch.set_num_threads(1)
    sys.setswitchinterval(config.trainer.switch_interval_s)


async def _run(config: Config, token: str, fabric: Fabric | None) -> int:
    return await App(config, token=token, fabric=fabric).run()


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Give uvloop's factory where it is installed, asyncio's own elsewhere."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def _launches(config: Config) -> list[Launch]:
    """Give what is to be launched, checked before anything starts."""
    usual = config.emulators
    wanted = [fleet_module.parse(text) for text in usual.launch]
    wanted += [Launch(**dataclasses.asdict(entry)) for entry in config.fleet]
    for launch in wanted:
        if launch.each and not config.cluster.cluster:
            raise LaunchError(
                f"{launch.emulator}:{launch.game}={launch.count}@each is for the nodes of a "
                "cluster: name one with --cluster, or leave @each out"
            )
    settled = [
        launch.settled(show=usual.show, throttle=usual.throttle, niceness=usual.niceness)
        for launch in wanted
    ]
    # On other machines it is the gateways that look for what an emulator needs.
    here = config.cluster.cluster in ("", LOCAL)
    return [launch.check() if here else launch.check_kind() for launch in settled]


def _check_device(device: str) -> None:
    """Refuse a device that torch cannot use here."""
    present = {
        "cpu": True,
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
    }
    if not present[device]:
        found = ", ".join(name for name, there in present.items() if there)
        raise DeviceError(f"device = {device!r} is not there; this machine has: {found}")


def _short(path: Path) -> str:
    """Give a path as a person here would type it."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def _complain(text: str) -> None:
    """Tell whoever started us, if they still listen."""
    with contextlib.suppress(OSError, ValueError):
        print(f"coinop: {text}", file=sys.stderr, flush=True)


def _from_thread(
    loop: asyncio.AbstractEventLoop, callback: Callable[..., None], *arguments: Any
) -> None:
    """Call something on the loop from another thread, unless the loop has ended."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(callback, *arguments)
