"""How soon agents get good: ours and Stable-Baselines3's DQN, on the same game and the same cores.

Each training runs alone, from the start of its process, for the same wall time; ours is the server
as ``make run`` starts it, with two emulators on real sockets. ``--cores 1`` gives each training one
core and trains as many at once as there are cores: everybody has less, and all of it takes less
time. Networks are saved on the way and examined afterwards, so that an exam takes nothing from a
training. What is done is kept in ``--results``, a small file for each training that is over: a run
that was broken off goes on with what is missing, on another day and machine too.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import (
    FIRST_EXCEPTION,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    as_completed,
    wait,
)
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from rich.console import Console
from rich.table import Table

from bench import chart, exam, figures
from bench.chart import Curve, Point
from bench.exam import Exam

ABOUT = "mean greedy return against wall time and frames: ours and Stable-Baselines3's DQN"
OPTIONS = {
    "--game": "pong",
    "--observation": "features",
    "--who": "ours,sb3",
    "--seeds": 3,
    "--minutes": 15.0,
    "--every": 60.0,
    "--episodes": 20,
    "--sticky": 0.0,
    "--cores": 0,
    "--with": "",
    "--results": None,
    "--svg": None,
}
WHO = ("ours", "sb3", "sb3-eager")
GOALS = {"pong": (10.0, 15.0, 18.0), "breakout": (30.0,)}  # returns to which the time is told
_EMULATORS = 2
_NICENESS = 10  # of emulators, as the fleet has it
_SEED_STRIDE = 1_000_003  # the same
_ROOT = Path(__file__).resolve().parent.parent
_LOOK_S = 0.2
_END_S = 60.0  # for a server to save and end
_SAVED = re.compile(r"\d{6}\.safetensors")


class LearnError(RuntimeError):
    """A benchmark that cannot be run; the message says why."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What every training of one benchmark has in common."""

    exam: Exam
    seconds: float
    every_s: float
    cores: int  # that each training has to itself; 0: all that there are
    words: str  # more of our server's command line
    results: Path
    stop: threading.Event = field(default_factory=threading.Event)  # somebody failed: all end

    @property
    def title(self) -> str:
        """Name the game and the view of it."""
        return f"{self.exam.game} from {self.exam.observation}"

    def sleep(self) -> None:
        """Wait a moment; a LearnError says that it is over for all."""
        if self.stop.wait(_LOOK_S):
            raise LearnError("broken off")

    def directory(self, who: str, seed: int) -> Path:
        """Give where one training keeps what it has."""
        return self.results / f"{who}-{seed}"


def run(options: argparse.Namespace) -> int:
    """Train, examine and show; give the exit code."""
    who = options.who.split(",")
    results = options.results or Path("runs") / f"bench-{options.game}-{options.observation}"
    plan = Plan(
        Exam(options.game, options.observation, options.episodes, options.sticky),
        options.minutes * 60,
        options.every,
        options.cores,
        getattr(options, "with"),
        results,
    )
    try:
        _check(plan, who)
        curves = _curves(plan, who, options.seeds)
        _write(results / "curves.json", _plain(plan, curves))
    except LearnError as error:
        print(f"learn: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"learn: stopped; the same command goes on with {results}", file=sys.stderr)
        return 130
    picture = options.svg or results / "curves.svg"
    picture.write_text(chart.svg(f"Learning {plan.title}", dict(curves)), encoding="utf-8")
    _show(plan, curves)
    print(f"curves: {results / 'curves.json'}, picture: {picture}")
    if options.json:
        _write(options.json, _plain(plan, curves))
    return 0


def _check(plan: Plan, who: list[str]) -> None:
    unknown = [name for name in who if name not in WHO]
    if unknown:
        raise LearnError(f"--who {unknown[0]!r} is nobody; choose from {', '.join(WHO)}")
    if who != ["ours"] and importlib.util.find_spec("stable_baselines3") is None:
        raise LearnError(
            "stable-baselines3 is not installed; pip install -r requirements-bench.txt, or use "
            "--who ours"
        )
    there = len(_all_cores())
    if not 0 <= plan.cores <= there:
        raise LearnError(f"--cores {plan.cores} cannot be had: there are {there} here")
    if plan.cores and not hasattr(os, "sched_setaffinity"):
        raise LearnError("--cores needs Linux: this system holds no process on a core")
    plan.results.mkdir(parents=True, exist_ok=True)
    told = {**asdict(plan.exam), "seconds": plan.seconds, "every_s": plan.every_s}
    told |= {"cores": plan.cores, "with": plan.words}
    path = plan.results / "plan.json"
    if path.exists() and {"cores": 0, **json.loads(path.read_text())} != told:
        raise LearnError(
            f"{plan.results} holds another benchmark ({path}); use its options, or another "
            "--results"
        )
    _write(path, told)


# --- all trainings ----------------------------------------------------------------------------


def _curves(plan: Plan, who: Sequence[str], seeds: int) -> dict[str, list[Curve]]:
    """Train and examine everybody, as many at once as there are cores for; give their curves."""
    places: SimpleQueue[list[int]] = SimpleQueue()
    cores = _all_cores()
    each = plan.cores or len(cores)
    at_once = len(cores) // each
    for number in range(at_once):
        places.put(cores[number * each : (number + 1) * each])

    def sit() -> None:
        if plan.cores:
            os.sched_setaffinity(0, places.get())  # of this thread, and so of what it starts

    # By turns: a machine that changes its pace changes it for all.
    jobs = [(name, seed) for seed in range(1, seeds + 1) for name in who]
    with ThreadPoolExecutor(at_once, initializer=sit) as pool:
        work = [pool.submit(_curve, plan, *job) for job in jobs]
        try:
            wait(work, return_when=FIRST_EXCEPTION)
            for future in work:
                if future.done():
                    future.result()  # who failed says why
        except BaseException:
            plan.stop.set()
            pool.shutdown(cancel_futures=True)
            raise
    return {
        name: [future.result() for job, future in zip(jobs, work, strict=True) if job[0] == name]
        for name in who
    }


def _all_cores() -> list[int]:
    """Give the cores that we may use; a system that holds nobody on a core lets us use all."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


# --- one training -----------------------------------------------------------------------------


def _curve(plan: Plan, who: str, seed: int) -> Curve:
    """Give the curve of one training, as far as possible from what is there already."""
    directory = plan.directory(who, seed)
    told = directory.with_suffix(".json")
    if told.exists():
        points = json.loads(told.read_text())["points"]
        return [Point(**{**point, "returns": tuple(point["returns"])}) for point in points]
    done = directory / "trained"
    if not done.exists():
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        _say(f"{who}, seed {seed}: trains on {plan.title} for {plan.seconds / 60:g} minutes")
        (_train_ours if who == "ours" else _train_rival)(plan, directory, who, seed)
        done.touch()
    curve = _examined(plan, who, directory)
    _write(told, {"machine": figures.machine(), "points": [asdict(point) for point in curve]})
    return curve


def _train_ours(plan: Plan, directory: Path, who: str, seed: int) -> None:
    """Run the server as `make run` does, and keep each checkpoint that it writes."""
    run_directory = directory / "run"
    game = plan.exam.game
    command = [sys.executable, str(_ROOT / "main.py"), "--run", "r", "--plain", "--port", "0"]
    command += ["--runs-dir", str(run_directory), "--seed", str(seed)]
    command += ["--save-interval-s", str(plan.every_s), *shlex.split(plan.words)]
    usual = plan.exam.observation == _usual(game)
    if usual:
        command += ["--launch", f"ale:{game}={_EMULATORS}"]
    log = directory / "server.log"
    began_s = time.time()
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(_process(command, log, signal.SIGINT))
        if not usual:
            port = _port(server, log)
            for number in range(_EMULATORS):
                seat = [game, "--observation", plan.exam.observation, "--agent", game]
                # Far apart: a client counts its seed up by one an episode.
                seat += ["--seed", str((1000 * seed + number) * _SEED_STRIDE)]
                seat += ["--server", f"127.0.0.1:{port}"]
                client = ["nice", "-n", str(_NICENESS), sys.executable, "-m", "client_py", "--ale"]
                # The server ends first: a client that lost it has ended by itself.
                log_of_it = directory / f"client-{number}.log"
                command = [*client, *seat, "--once"]
                stack.enter_context(_process(command, log_of_it, session=True))
        _keep_checkpoints(plan, server, run_directory, directory, began_s)
    for path in run_directory.rglob("checkpoint.safetensors"):
        _keep(path, directory, plan.seconds)  # written when it was told to end
    shutil.rmtree(run_directory)


def _keep_checkpoints(
    plan: Plan, server: subprocess.Popen[bytes], run: Path, directory: Path, began_s: float
) -> None:
    """Copy each new checkpoint until the time is over."""
    kept_s = 0.0
    told_s = began_s
    while time.time() - began_s < plan.seconds:
        plan.sleep()
        if server.poll() is not None:
            log = (directory / "server.log").read_text()
            raise LearnError(f"the server ended by itself:\n{log[-2000:]}")
        for path in run.rglob("checkpoint.safetensors"):
            written_s = path.stat().st_mtime
            if written_s > kept_s:
                _keep(path, directory, written_s - began_s)
                kept_s = written_s
        if time.time() - told_s >= 60:
            told_s = time.time()
            lines = (directory / "server.log").read_text().splitlines()
            _say(f"  {directory.name}: {lines[-1] if lines else ''}")


def _keep(path: Path, directory: Path, wall_s: float) -> None:
    to = directory / f"{round(wall_s):06}.safetensors"
    shutil.copyfile(path, to.with_suffix(".new"))
    to.with_suffix(".new").replace(to)


def _train_rival(plan: Plan, directory: Path, who: str, seed: int) -> None:
    """Let Stable-Baselines3 train for the same wall time, counted from its process's start."""
    began_s = time.time()
    command = [sys.executable, "-m", "bench.rival", "--settings", who, "--seed", str(seed)]
    command += ["--game", plan.exam.game, "--observation", plan.exam.observation]
    command += ["--seconds", str(plan.seconds), "--every", str(plan.every_s)]
    command += ["--began", str(began_s), "--to", str(directory)]
    log = directory / "rival.log"
    with _process(command, log) as rival:
        written = 0
        while rival.poll() is None:
            plan.sleep()
            files = _saved(directory)
            if len(files) > written:
                written = len(files)
                frames = exam.told(files[-1])["frames"]
                _say(f"  {directory.name}: {int(files[-1].stem)} s, {frames:,} frames")
    if rival.returncode:
        raise LearnError(f"the rival failed:\n{log.read_text()[-2000:]}")


@contextlib.contextmanager
def _process(
    command: list[str], log: Path, end: int = signal.SIGTERM, *, session: bool = False
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command from our root; end it with a signal if it has not ended by itself.

    With a session of its own, as the fleet's emulators have, its niceness does not count against
    the server: Linux shares cores out by session first.
    """
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=_ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=session,
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(end)
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _port(server: subprocess.Popen[bytes], log: Path) -> int:
    while server.poll() is None:
        found = re.search(r"listening on [\d.]+:(\d+)", log.read_text())
        if found:
            return int(found[1])
        time.sleep(_LOOK_S)
    raise LearnError(f"the server did not start:\n{log.read_text()}")


def _usual(game: str) -> str:
    from client_py.ale import default_observation

    return default_observation(game)


# --- the exams --------------------------------------------------------------------------------


def _saved(directory: Path) -> list[Path]:
    return sorted(path for path in directory.iterdir() if _SAVED.fullmatch(path.name))


def _examined(plan: Plan, who: str, directory: Path) -> Curve:
    """Examine the saved networks that were not examined yet, on the cores of the training."""
    path = directory / "returns.json"
    found: dict[str, list[float]] = json.loads(path.read_text()) if path.exists() else {}
    saved = _saved(directory)
    missing = [file for file in saved if file.stem not in found]
    # Spawned: what is forked from a process with threads may hang.
    with ProcessPoolExecutor(plan.cores or os.cpu_count(), mp_context=get_context("spawn")) as pool:
        work = {pool.submit(exam.returns, plan.exam, who, file): file for file in missing}
        for future in as_completed(work):
            file = work[future]
            found[file.stem] = future.result()
            mean = statistics.fmean(found[file.stem])
            _say(f"  {directory.name} after {int(file.stem)} s: mean return {mean:.2f}")
            _write(path, found)
            if plan.stop.is_set():
                pool.shutdown(cancel_futures=True)
                raise LearnError("broken off")
    return [_point(who, file, found[file.stem]) for file in saved]


def _point(who: str, file: Path, returns: list[float]) -> Point:
    if who == "ours":
        from server.learn import checkpoint

        plain: Any = checkpoint.read(file).plain
        told = {"frames": plain["frames"], "steps": plain["learner"]["steps"]}
    else:
        told = exam.told(file)
    return Point(float(file.stem), int(told["frames"]), int(told["steps"]), tuple(returns))


# --- what is told -----------------------------------------------------------------------------


def _plain(plan: Plan, curves: dict[str, list[Curve]]) -> dict[str, Any]:
    return {
        "machine": figures.machine(),
        **asdict(plan.exam),
        "minutes": plan.seconds / 60,
        "cores": plan.cores,
        "curves": {
            who: [[{**asdict(point), "mean": point.mean} for point in curve] for curve in all_of]
            for who, all_of in curves.items()
        },
    }


def reached_s(curve: Curve, goal: float) -> float | None:
    """Give when a curve first was at a goal."""
    return next((point.wall_s for point in curve if point.mean >= goal), None)


def _show(plan: Plan, curves: dict[str, list[Curve]]) -> None:
    """Print the median of each agent, minute by minute, and when each reached its goals."""
    seeds = len(next(iter(curves.values())))
    title = f"{plan.title}: mean greedy return, median over {seeds} seeds on {figures.machine()}"
    title += f"; each training had {plan.cores} of its cores" if plan.cores else ""
    table = Table(title=title, title_justify="left")
    table.add_column("minutes", justify="right")
    for who in curves:
        table.add_column(who, justify="right")
        table.add_column("frames", justify="right")
    last = plan.seconds / 60
    for minute in [m for m in (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 30, 40) if m < last] + [last]:
        row = [f"{minute:g}"]
        for all_of in curves.values():
            band = chart.band(all_of, chart.minutes, [minute])
            frames = statistics.median(_frames_at(curve, minute * 60) for curve in all_of)
            row += [f"{m:.1f} ({lo:.1f} to {hi:.1f})" for _, lo, m, hi in band] or ["-"]
            row += [f"{frames:,.0f}"]
        table.add_row(*row)
    Console(width=max(100, 30 * len(curves) + 20)).print(table)
    for who, all_of in curves.items():
        best = statistics.median(max(point.mean for point in curve) for curve in all_of)
        print(f"{who}: best {best:.1f} (median over seeds)")
        for goal in GOALS.get(plan.exam.game, ()):
            times = [reached_s(curve, goal) for curve in all_of]
            words = ", ".join("not reached" if t is None else f"{t / 60:.1f} min" for t in times)
            print(f"{who}: time to {goal:+g}: {words}")


def _frames_at(curve: Sequence[Point], wall_s: float) -> int:
    return max((point.frames for point in curve if point.wall_s <= wall_s), default=0)


def _write(path: Path, value: Any) -> None:
    """Write JSON; whoever reads it finds the old one or the new one."""
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    temporary.replace(path)


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")  # in one go: several trainings may speak at once
    sys.stderr.flush()
