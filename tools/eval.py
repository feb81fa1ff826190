"""Evaluates an agent of a run: greedy episodes with fixed seeds, by the weights it has saved.

Nothing is learned from them and nothing is stored but the result. The run may be training
meanwhile. The same command plays the same episodes again.

  python main.py eval --run pong
  python main.py eval --run pong --best --episodes 100 --sticky 0.25
  python main.py eval --run mine --agent catch --game fceux:catch --json catch.json
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import secrets
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import config
from server import emulators
from server.emulators import Exam, LaunchError, Seat
from server.fleet import Emulator, Launch
from server.net.listener import Connection, Limits, Listener
from server.net.wire import Hello, Welcome
from server.run import RunError
from tools.progress import Progress

if TYPE_CHECKING:  # what needs torch takes seconds to load: not for --help
    from server.evaluation import Evaluation
    from server.stats import Score
    from tools.subject import Subject

DIRECTORY = "evaluations"  # in a run
_LOOK_S = 0.1  # between looks at the emulator
_STALL_S = 120.0  # without a frame: it hangs
_END_S = 3.0  # for it to end by itself
_STOPPED = 130  # exit code after Ctrl-C
_TIMEOUT_S = 60.0
_MESSAGE_BYTES = 1 << 24


class EvalError(Exception):
    """An evaluation that found nothing; the message says why."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this command."""
    add = parser.add_argument
    usual = config.Run()
    add("--run", metavar="NAME", default=usual.run, help="of the agent (default: %(default)s)")
    add(
        "--runs-dir",
        metavar="DIR",
        type=Path,
        default=Path(usual.runs_dir),
        help="directory that holds all runs (default: %(default)s)",
    )
    add("--agent", metavar="NAME", help="which agent, if the run has several")
    add(
        "--game",
        metavar="[EMULATOR:]GAME",
        default="",
        help="what it plays, such as pong or mame:pong2600 (default: what it was trained on)",
    )
    add("--episodes", metavar="N", type=_positive, default=20, help="default: %(default)s")
    which = parser.add_mutually_exclusive_group()
    for name, about in (
        ("latest", "the newest checkpoint (the default)"),
        ("best", "the weights that did best in the evaluations during training"),
    ):
        which.add_argument(f"--{name}", dest="which", action="store_const", const=name, help=about)
    parser.set_defaults(which="latest")
    add(
        "--sticky",
        metavar="P",
        type=_share,
        default=0.0,
        help="share of an Atari game's frames in which the last action is repeated, whatever the "
        "agent chose; 0.25 is usual (default: %(default)s)",
    )
    add("--seed", metavar="N", type=int, help="of the first episode (default: always the same)")
    add(
        "--observation",
        choices=("features", "ram", "image"),
        default="",
        help="how an Atari game is seen (default: as the agent sees it)",
    )
    add(
        "--frame-skip",
        metavar="N",
        type=_positive,
        default=0,
        help="frames that an action is held (default: the client's own)",
    )
    add(
        "--json",
        metavar="FILE",
        type=Path,
        help=f"where the result is written (default: a new file in the run's {DIRECTORY}/)",
    )


def run(options: argparse.Namespace) -> int:
    """Evaluate an agent and print what was found; give the exit code."""
    with Progress("loading torch"):
        from server.app import loop_factory
        from server.evaluation import SEED
        from server.learn.checkpoint import CheckpointError
        from tools import subject as subjects

    try:
        subject = subjects.find(
            options.runs_dir,
            options.run,
            agent=options.agent,
            game=options.game,
            which=options.which,
        )
        launch = subject.launch(options.game)
        seen = options.observation or subject.observation(launch)
        exam = Exam(subject.agent, options.episodes, options.sticky, seen, options.frame_skip)
        seed = SEED if options.seed is None else options.seed
        emulators.command(launch.emulator, launch.game, Seat("check", "", seed, Path(), exam=exam))
        _announce(subject, launch, exam, seed)
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            evaluation = runner.run(_evaluate(subject, launch, exam, seed))
        _tell(evaluation.score(), exam)
        path = options.json or _free_file(subject)
        _write(path, _plain(options.run, subject, launch, exam, seed, evaluation))
    except (subjects.SubjectError, RunError, CheckpointError, LaunchError) as error:
        print(f"coinop: {error}", file=sys.stderr)
        return 2
    except (EvalError, OSError) as error:
        print(f"coinop: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("coinop: stopped; nothing is written", file=sys.stderr)
        return _STOPPED
    return 0


# --- the episodes ---------------------------------------------------------------------------------


class _Desk:
    """Lets the one client in that we started, and plays for it."""

    def __init__(self, subject: Subject, evaluation: Evaluation) -> None:
        self._subject = subject
        self._evaluation = evaluation
        self.problem = ""

    def greet(self, connection: Connection, hello: Hello) -> None:
        spaces = self._subject.spaces
        if hello.spaces != spaces:
            self.problem = (
                f"agent {self._subject.agent!r} expects {spaces.describe()}, the game shows "
                f"{hello.spaces.describe()}; choose with --game, --observation"
            )
            connection.reject(self.problem)
        else:
            settings = self._subject.client_settings
            welcome = Welcome(secrets.token_hex(8), _TIMEOUT_S / 3, _MESSAGE_BYTES, settings)
            self._evaluation.attend(connection, hello, welcome)

    def refused(self, connection: Connection, hello: Hello, reason: str) -> None:
        """Nobody but our own client is to play: whoever else tried is not our concern."""

    def fault(self, connection: Connection, error: Exception) -> None:
        self.problem = f"{type(error).__name__}: {error}"


async def _evaluate(subject: Subject, launch: Launch, exam: Exam, seed: int) -> Evaluation:
    """Serve one emulator, on a port of its own, until it has played all episodes."""
    over = asyncio.Event()
    progress = Progress(f"starting {launch.emulator}:{launch.game}")
    evaluation = _evaluation(subject, exam, over, progress)
    token = secrets.token_hex(16)
    desk = _Desk(subject, evaluation)
    listener = Listener(
        desk=desk,
        limits=Limits(
            message_bytes=_MESSAGE_BYTES, silent=4, hello_s=_TIMEOUT_S, silence_s=_TIMEOUT_S
        ),
        token=token,
    )
    await listener.start("127.0.0.1", 0)
    with tempfile.TemporaryDirectory(prefix="coinop-") as home, progress:
        seat = Seat("eval", listener.address, seed, Path(home), token, exam=exam)
        emulator = Emulator(launch, seat)
        try:
            problem = emulator.start(time.monotonic())
            while not over.is_set() and emulator.running:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(over.wait(), _LOOK_S)
                progress.say(_how_far(evaluation, exam))
                if time.monotonic() - evaluation.seen_s > _STALL_S:
                    problem = f"no frame for {_STALL_S:g} s"
                    break
            if not evaluation.complete:
                words = desk.problem or problem or emulator.last_words()
                raise EvalError(
                    f"{launch.emulator}:{launch.game} played {len(evaluation.results)} of "
                    f"{exam.episodes} episodes: {words}"
                )
        finally:
            await listener.close("the evaluation is over")
            await asyncio.to_thread(emulator.end, _END_S)
    return evaluation


def _evaluation(
    subject: Subject, exam: Exam, over: asyncio.Event, progress: Progress
) -> Evaluation:
    from server.evaluation import Evaluation

    def told(evaluation: Evaluation) -> None:
        last = evaluation.results[-1]
        number = f"{len(evaluation.results):>{len(str(exam.episodes))}} of {exam.episodes}"
        progress.tell(f"episode {number}: return {last.total:g}, {last.frames:,} frames")

    return Evaluation(
        spaces=subject.spaces,
        shape=subject.shape,
        device="cpu",
        weights=subject.weights(),
        frames=subject.frames,
        episodes=exam.episodes,
        on_episode=told,
        on_end=lambda evaluation, reason: over.set(),
    )


def _how_far(evaluation: Evaluation, exam: Exam) -> str:
    """Say how far the episode under way is."""
    earned, frames = evaluation.so_far
    number = min(exam.episodes, len(evaluation.results) + 1)
    return f"episode {number} of {exam.episodes}: return {earned:g} after {frames:,} frames"


# --- what people read -----------------------------------------------------------------------------


def _announce(subject: Subject, launch: Launch, exam: Exam, seed: int) -> None:
    sticky = f"sticky actions {exam.sticky:g}" if exam.sticky else "no sticky actions"
    print(
        f"agent {subject.agent} of run {subject.run.name}, {subject.which} checkpoint: "
        f"{subject.frames:,} frames, {subject.steps:,} steps\n"
        f"{launch.emulator}:{launch.game}, {exam.episodes} greedy episodes, seeds from {seed}, "
        f"{sticky}",
        flush=True,
    )


def _tell(score: Score, exam: Exam) -> None:
    print(
        f"mean                 {score.mean:.5g}\n"
        f"median               {score.median:.5g}\n"
        f"interquartile range  {score.low_quartile:.5g} to {score.high_quartile:.5g}\n"
        f"min, max             {score.lowest:.5g}, {score.highest:.5g}"
    )
    if score.distinct < score.episodes:
        advice = "" if exam.sticky else "; --sticky 0.25 makes Atari games differ"
        print(
            f"only {score.distinct} of the {score.episodes} episodes differ: the game leaves "
            f"little to chance, and a greedy agent nothing{advice}"
        )


def _plain(
    run_name: str,
    subject: Subject,
    launch: Launch,
    exam: Exam,
    seed: int,
    evaluation: Evaluation,
) -> dict[str, Any]:
    """Give everything that was found, and how, as JSON has it."""
    from server import versions

    return {
        "time_s": round(time.time(), 3),
        "run": run_name,
        "agent": subject.agent,
        "game": f"{launch.emulator}:{launch.game}",
        "checkpoint": subject.which,
        "seed": seed,
        "sticky": exam.sticky,
        "observation": exam.observation or None,
        "frame_skip": exam.frame_skip or None,  # None: the client's own
        "client_settings": subject.client_settings,
        "score": evaluation.score().to_plain(),
        "returns": [result.total for result in evaluation.results],
        "lengths": [result.frames for result in evaluation.results],
        "versions": versions.installed(),
    }


def _free_file(subject: Subject) -> Path:
    """Name a file of the run that is not there yet."""
    stem = f"{subject.agent}-{subject.which}-{time.strftime('%Y%m%d-%H%M%S')}"
    directory, number = subject.run / DIRECTORY, 1
    path = directory / f"{stem}.json"
    while path.exists():
        number += 1
        path = directory / f"{stem}-{number}.json"
    return path


def _write(path: Path, value: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    print(f"written to {path}")


def _positive(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:  # at 1 no action would ever get through
        raise argparse.ArgumentTypeError(f"{text!r} is not a share from 0 to below 1")
    return value
