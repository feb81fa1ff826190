"""One agent: its memory, its learner, the policy that plays, and the clients that feed it."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from server import trend
from server.batcher import Batcher
from server.controls import Controls
from server.curves import Place
from server.history import History
from server.lane import Lane
from server.learn import checkpoint as checkpoints
from server.learn.checkpoint import Checkpoint, CheckpointError
from server.learn.learner import Report
from server.learn.network import Shape, Weights
from server.learn.policy import Mix, Policy
from server.learn.replay import Layout, Replay
from server.learn.schedule import Linear
from server.session import Session
from server.spaces import Spaces
from server.stats import RETURN_HISTORY, RETURN_WINDOW, AgentView, Histogram, Rate, Score, Share
from server.train.trainer import Home, LearnerError, Trainer, TrainerState
from server.trend import Trend

SCHEDULED = ("epsilon", "expert_ratio", "learning_rate")  # live settings that naturals() gives
_RATE_WINDOW_S = 5.0
_STREAK = 10  # bad steps
_PATIENCE_S = 1.0  # with a learner that is asked for weights: others' are due, too
_STATE_S = 30.0  # for a learner to give its state
_MIX_FRAMES = 64  # between looks at the schedules


@dataclass(frozen=True, slots=True)
class Schedules:
    """How an agent's exploration changes with its frames."""

    epsilon: Linear
    noise: Linear
    expert_ratio: Linear


class Memory(Protocol):
    """The frames that a learner learns from, as far as people see them."""

    @property
    def layout(self) -> Layout:
        """Its columns."""

    @property
    def size(self) -> int:
        """Number of frames that can be learned from."""

    def flush(self) -> None:
        """Forget every frame so far."""


class Agent:
    """Owns the parts of one agent on the event loop's side, wherever its learner is."""

    def __init__(
        self,
        *,
        name: str,
        game: str,
        spaces: Spaces,
        shape: Shape,
        directory: Path,
        replay: Replay,
        trainer: Home,
        policy: Policy,
        schedules: Schedules,
        controls: Controls,
        min_replay: int,
        schedule_call: Callable[[Callable[[], None]], object],
        tell: Callable[[str], None] = lambda text: None,
        memory: Memory | None = None,
        on_episode: Callable[[str, float, bool], None] = lambda client, total, guided: None,
    ) -> None:
        self.name = name
        self.game = game
        self.spaces = spaces
        self.trainer = trainer
        self.replay = replay
        self.memory: Memory = memory or replay  # another one where the learner is elsewhere
        self.shape = shape
        self.directory = directory
        self._policy = policy
        self._schedules = schedules
        self.controls = controls
        self._min_replay = min_replay
        self._tell = tell
        self._hear_episode = on_episode
        self._mix_until = 0
        self._frames_before = 0  # collected in replays that are not this one
        self.batcher = Batcher(
            policy=policy,
            replay=replay,
            frame_stack=shape.frame_stack,
            lane=Lane.of(spaces, policy, replay, shape.frame_stack),
            schedule=schedule_call,
            on_appended=self._on_appended,
            on_episode=self._on_episode,
        )
        self._returns: deque[float] = deque(maxlen=RETURN_HISTORY)
        self._trends = tuple(Trend(frames) for frames in trend.WINDOWS)
        self._episodes = 0
        self._best: float | None = None
        self._guided_returns: deque[float] = deque(maxlen=RETURN_WINDOW)
        self._guided_episodes = 0
        self._rates: dict[str, Rate] = {}
        self._agreement = Share(_RATE_WINDOW_S)
        self.evaluation: Score | None = None  # what the examiner found, newest
        self.evaluation_best: Score | None = None
        self.evaluations = 0  # finished since the start
        self.evaluating: int | None = None  # episodes so far of one under way, or to come
        self.evaluating_of = 0  # episodes it is to have, if that is known
        self._fetching: asyncio.Task[bool | None] | None = None  # weights that are not here yet
        self._weights_stale = False
        self._restored = 0  # times that its learner went back, as far as it was told
        self._history = History()
        self._latency = Histogram()
        self._training_share = 1.0
        self._spent_rates: dict[str, Rate] = {}

    @property
    def frames(self) -> int:
        """Number of frames this agent has ever collected."""
        return self._frames_before + self.replay.head

    @property
    def weights(self) -> Weights | None:
        """The weights that play; None before the start."""
        return self._policy.weights

    @property
    def compared(self) -> tuple[int, int]:
        """How often the network agreed with the expert, and how often they were compared."""
        return self._policy.agreed, self._policy.compared

    def place(self) -> Place:
        """Say where the agent is on its learning curve."""
        return Place(self.name, self.frames, self.trainer.report.steps)

    def _on_appended(self, head: int) -> None:
        """Follow the frames: the schedules now and then, the trainer at once."""
        if head >= self._mix_until:
            self._refresh_mix()
        self.trainer.frames_arrived(head)

    def _keep_still(self) -> None:
        """Noisy layers explore by their noise: they have none while nothing is explored."""
        controls = self.controls
        self._policy.keep_still(controls.greedy or controls.expert or not controls.exploring)

    def _refresh_mix(self) -> None:
        self._mix_until = self.replay.head + _MIX_FRAMES
        self.batcher.mix = self.mix()

    def mix(self) -> Mix:
        """Give what goes into the actions now: what the schedules say, unless a person does."""
        controls, natural = self.controls, self._natural_mix()
        if controls.greedy:
            return Mix()
        if controls.expert:
            return Mix(expert_ratio=1.0)
        epsilon, expert_ratio = controls.epsilon, controls.expert_ratio
        return Mix(
            (natural.epsilon if epsilon is None else epsilon) * controls.exploring,
            natural.noise * controls.exploring,
            natural.expert_ratio if expert_ratio is None else expert_ratio,
        )

    def _natural_mix(self) -> Mix:
        frames = self.frames
        return Mix(
            self._schedules.epsilon.at(frames),
            self._schedules.noise.at(frames),
            self._schedules.expert_ratio.at(frames),
        )

    def naturals(self) -> dict[str, float]:
        """Give the live settings that have a schedule, as it has them now."""
        mix = self._natural_mix()
        return {
            "epsilon": mix.epsilon,
            "expert_ratio": mix.expert_ratio,
            "learning_rate": self.trainer.report.natural_learning_rate,
        }

    def set_players(self, count: int) -> None:
        """Know how many clients are connected."""
        self.batcher.players = count
        self.trainer.set_clients(count > 0)

    def set_controls(self, controls: Controls) -> None:
        """Put new live settings in force."""
        self.controls = controls
        self._refresh_mix()
        self._keep_still()
        self.trainer.set_controls(controls)

    def give_way(self, share: float) -> None:
        """Let training use only that share of its time; with 0 it rests until told otherwise."""
        if share != self._training_share:
            self._training_share = share
            self.trainer.set_share(share)

    async def refresh_policy(self) -> bool | None:
        """Copy the trained weights into play; False if they were not fit for it.

        None if the learner has not given them yet: they are played with as soon as it has.
        """
        fetching = self._fetching = self._fetching or asyncio.create_task(self._fetch())
        await asyncio.wait({fetching}, timeout=_PATIENCE_S)
        return fetching.result() if fetching.done() else None

    async def _fetch(self) -> bool | None:
        """Wait for the trained weights and play with them; None if there is no learner to give any.

        Of a learner that is gone people hear from its trainer.
        """
        try:
            return self.play_with(await asyncio.wrap_future(self.trainer.weights()))
        except LearnerError:
            return None
        finally:
            self._fetching = None

    def play_with(self, weights: Weights) -> bool:
        """Play with these weights from now on; False if they are not fit for it."""
        return self._policy.load(weights)

    def count_frames(self, total: int) -> None:
        """Know how many frames the agent has collected, wherever they are."""
        self._frames_before = total - self.replay.head

    def absorb(
        self, *, frames: int, batches: int, agreed: int, compared: int, latencies_s: list[float]
    ) -> None:
        """Count what was played for this agent elsewhere as if it had been here."""
        self.batcher.frames += frames
        self.batcher.batches += batches
        self._policy.agreed += agreed
        self._policy.compared += compared
        for latency_s in latencies_s:
            self.batcher.latency_s.add(latency_s)

    async def refresh_target(self) -> None:
        """Make the target network equal to the one that trains, between two samples."""
        await asyncio.wrap_future(self.trainer.refresh_target())

    def watch_weights(self, limit_s: float) -> str:
        """Raise an alarm when the weights in play are too old, and end it; give what to tell."""
        weights = self._policy.weights
        age_s = time.monotonic() - weights.time_s if weights else 0.0
        if (age_s > limit_s) is self._weights_stale:
            return ""
        self._weights_stale = not self._weights_stale
        if not self._weights_stale:
            return f"agent {self.name} plays with new weights again"
        return (
            f"agent {self.name} plays with weights that are {age_s:.0f} s old: its learner gives "
            f"no new ones that are fit to play (it is {self.trainer.state.value})"
        )

    def watch_learner(self) -> str:
        """Notice a learner that went back to its last good state; give what to tell."""
        report, before = self.trainer.report, self._restored
        self._restored = report.restored
        if report.restored <= before:  # a learner's process that was started anew counts anew
            return ""
        return (
            f"the learner of agent {self.name} met too many steps in a row that were not finite "
            f"({report.skipped:,} in all) and went back to its last good checkpoint"
        )

    def awaits_first_weights(self) -> bool:
        """Say whether training has begun but play still uses the untrained weights."""
        weights = self._policy.weights
        return weights is not None and weights.step == 0 < self.trainer.report.steps

    def start(self) -> None:
        """Load the first weights into play and start the trainer."""
        self._refresh_mix()
        self._keep_still()
        self._policy.load(self.trainer.weights().result())  # at once: it does not run yet
        report = self.trainer.report
        self._rates = {
            "frames": Rate(_RATE_WINDOW_S, self.frames),
            "steps": Rate(_RATE_WINDOW_S, report.steps),
            "samples": Rate(_RATE_WINDOW_S, report.samples),
            "transitions": Rate(_RATE_WINDOW_S, report.transitions),
        }
        self._spent_rates = {
            name: Rate(_RATE_WINDOW_S, seconds) for name, seconds in report.spent.by_part().items()
        }
        self.trainer.set_clients(False)
        self.trainer.start()

    @property
    def is_training(self) -> bool:
        """Whether its trainer is at work right now."""
        return self.trainer.state is TrainerState.TRAINING

    def view(self) -> AgentView:
        """Give everything people see of this agent."""
        report, mix, controls = self.trainer.report, self.mix(), self.controls
        forced = controls.greedy or controls.expert
        weights = self._policy.weights
        frames = self.frames
        rate = {
            "frames": self._rates["frames"].update(frames),
            "steps": self._rates["steps"].update(report.steps),
            "samples": self._rates["samples"].update(report.samples),
            "transitions": self._rates["transitions"].update(report.transitions),
        }
        latency = self.batcher.latency_s.percentiles(50, 99)
        returns = tuple(self._returns)
        batches = self.batcher.batches
        return AgentView(
            name=self.name,
            spaces=self.spaces.describe(),
            state=self.trainer.state.value,
            frames=frames,
            frames_per_s=rate["frames"],
            steps=report.steps,
            steps_per_s=rate["steps"],
            samples=report.samples,
            samples_per_s=rate["samples"],
            skipped_steps=report.skipped,
            loss=report.loss,
            gradient_norm=report.gradient_norm,
            q_min=report.q_min,
            q_mean=report.q_mean,
            q_max=report.q_max,
            learning_rate=report.learning_rate,
            epsilon=mix.epsilon,
            epsilon_natural=controls.epsilon is None and not forced and controls.exploring,
            expert_ratio=mix.expert_ratio,
            expert_natural=controls.expert_ratio is None and not forced,
            replay_size=self.memory.size,
            replay_capacity=self.memory.layout.capacity,
            min_replay=self._min_replay,
            replay_ratio=rate["transitions"] / rate["frames"] if rate["frames"] else 0.0,
            batch_mean=self.batcher.frames / batches if batches else None,
            latency_p50_ms=latency[0] * 1e3 if latency else None,
            latency_p99_ms=latency[1] * 1e3 if latency else None,
            weights_age_s=time.monotonic() - weights.time_s if weights else None,
            weights_version=weights.version if weights else 0,
            episodes=self._episodes,
            return_last=returns[-1] if returns else None,
            return_mean=self._mean_return(),
            return_best=self._best,
            returns=returns,
            return_windows=tuple(kept.view(frames) for kept in self._trends),
            guided_episodes=self._guided_episodes,
            guided_return_mean=_mean(self._guided_returns),
            agreement=self._agreement.update(self._policy.agreed, self._policy.compared),
            evaluation=self.evaluation,
            evaluation_best=self.evaluation_best,
            evaluations=self.evaluations,
            evaluating=self.evaluating,
            evaluating_of=self.evaluating_of,
            history=self._history.series(),
            latency_counts=self._latency.counts,
            latency_sum_s=self._latency.sum_s,
            weights_age_steps=max(0, report.steps - weights.step) if weights else 0,
            weights_stale=self._weights_stale,
            time_shares=self._time_shares(report),
        )

    def note_history(self) -> None:
        """Keep the figures of this second for the graphs, and count its replies by latency."""
        self._latency.follow(self.batcher.latency_s)
        self._history.add(self.view())

    def _time_shares(self, report: Report) -> dict[str, float]:
        """Give how the learner's time was shared out of late."""
        spent = report.spent.by_part()
        rates = {name: rate.update(spent[name]) for name, rate in self._spent_rates.items()}
        total = sum(rates.values())
        return {name: rate / total if total else 0.0 for name, rate in rates.items()}

    def _on_episode(self, session: Session, episode_return: float) -> None:
        self.note_episode(session.hello.client, episode_return, guided=bool(session.guided))

    def note_episode(self, client: str, episode_return: float, *, guided: bool) -> None:
        """Count a finished episode, in which others than the agent may have played."""
        self._hear_episode(client, episode_return, guided)
        if self.controls.verbose:
            self._tell(f"{client} ended an episode: return {episode_return:g}")
        if guided:  # how well somebody else played says nothing of the agent
            self._guided_episodes += 1
            self._guided_returns.append(episode_return)
            return
        self._episodes += 1
        self._returns.append(episode_return)
        for kept in self._trends:
            kept.add(self.frames, episode_return)
        mean = self._mean_return()
        if mean is not None and len(self._returns) >= RETURN_WINDOW:
            self._best = mean if self._best is None else max(self._best, mean)

    def _mean_return(self) -> float | None:
        return _mean(list(self._returns)[-RETURN_WINDOW:])


class LearningAgent(Agent):
    """An agent whose learner is ours to keep: it can be saved, and go on from a checkpoint."""

    trainer: Trainer

    def __init__(self, *, trainer: Trainer, **parts: Any) -> None:
        super().__init__(trainer=trainer, **parts)

    async def save(self) -> None:
        """Write a checkpoint; the disk is waited for in a thread of its own."""
        try:
            async with asyncio.timeout(_STATE_S):
                state = await asyncio.wrap_future(self.trainer.learner_state())
        except TimeoutError:
            raise CheckpointError(
                f"agent {self.name} is not saved: its learner has not answered for {_STATE_S:g} s; "
                "the checkpoint before stays"
            ) from None
        except LearnerError as error:
            raise CheckpointError(
                f"agent {self.name} is not saved: {error}; the checkpoint before stays"
            ) from error
        bad = self.trainer.report.bad
        # A bad step now and then is left out and does no harm: many in a row mean ruined weights.
        if bad >= _STREAK or not all(part.isfinite().all() for part in state["tensors"].values()):
            raise CheckpointError(
                f"agent {self.name} is not saved while its steps are not finite ({bad} in a row); "
                "the checkpoint before stays"
            )
        checkpoint = Checkpoint(
            state["tensors"],
            {
                "agent": self.name,
                "game": self.game,
                "spaces": self.spaces.to_plain(),
                "shape": self.shape.to_plain(),
                "learner": state["counters"],
                "frames": self.frames,
                "episodes": self._episodes,
                "returns": list(self._returns),
                "return_best": self._best,
                "return_trends": {str(t.frames): t.to_plain() for t in self._trends},
                "guided_episodes": self._guided_episodes,
                "guided_returns": list(self._guided_returns),
            },
        )
        await asyncio.to_thread(checkpoints.save, self.directory, checkpoint)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Go on from a checkpoint; before the trainer starts."""
        plain = checkpoint.plain
        self.trainer.restore({"tensors": checkpoint.tensors, "counters": plain["learner"]})
        self._frames_before = max(0, plain["frames"] - self.replay.head)
        self._episodes = plain["episodes"]
        self._returns.extend(plain["returns"])
        self._best = plain["return_best"]
        # A checkpoint of before they were there has none of these.
        for kept in self._trends:
            kept.restore(plain.get("return_trends", {}).get(str(kept.frames), ()))
        self._guided_episodes = plain.get("guided_episodes", 0)
        self._guided_returns.extend(plain.get("guided_returns", ()))


def _mean(values: Collection[float]) -> float | None:
    return sum(values) / len(values) if values else None
