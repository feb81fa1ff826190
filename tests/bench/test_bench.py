"""The benchmarks run and write the figures that their readers rely on."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import config
from bench import __main__ as command_line
from bench import crowd, foe, heads, homes, host, options, scale, soak
from bench.figures import Round
from server import emulators, native
from server.emulators import LaunchError, Program
from server.learn.learner import Rules
from server.train.workers import Worker

ROOT = Path(__file__).parents[2]
FIGURES = {
    "serve": {
        "lag_p50_ms",
        "gil_share",
        "latency_p50_ms",
        "latency_p99_ms",
        "fps_echo",
        "fps_serve",
        "serve_over_echo",
        "serve_over_echo_one",
        "p50_ms",
        "p99_ms",
    },
    "memory": {
        "anonymous_mb_settled",
        "anonymous_mb_middle",
        "anonymous_mb_end",
        "mapped_mb_end",
        "slowest_client_share",
        "replay_file_mb",
    },
    "hold": {
        "fps_offered",
        "fps_answered",
        "p50_ms",
        "p99_ms",
        "steps_per_s",
        "bare_steps_per_s",
        "steps_over_bare",
        "fps_saturated",
        "fps_saturated_no_training",
        "lag_p99_ms",
        "gil_share",
        "latency_p50_ms",
        "latency_p99_ms",
        "forward_share",
        "weights_age_steps",
    },
}

_PLAYED = ("fps", "p99_ms", "paced_fps", "paced_p99_ms")
_SHIPPED = (
    "shipped_mb_per_s",
    "shipping_cpu_share",
    "shipping_us_per_frame",
    "shipping_ms_per_mb",
    "intake_ms_per_mb",
)
_LEARNED = ("step_ms", "steps_per_s", "transitions_per_s", "waiting_share")
FIGURES_OF_A_CLUSTER = {
    *(f"{figure}_plain" for figure in _PLAYED),
    *(f"{figure}_ray_{n}" for figure in (*_PLAYED, *_SHIPPED) for n in (1, 2)),
    "fps_ray_over_plain",
    "p99_ray_over_plain",
    "weights_in_use_ms",
    "weights_in_use_most_ms",
    "step_to_play_ms",
    *(f"{figure}_learners_2" for figure in _LEARNED),
}

MAY_BE_NOTHING = {"gil_share", "weights_age_steps"}


def check_defined(figures: Iterable[str], name: str = "benchmarks.md") -> None:
    """Each figure has its line on the page; a number at its end is given once for all."""
    page = (ROOT / "docs" / name).read_text()
    for figure in figures:
        plain = re.sub(r"_[0-9]+$", "", figure)
        assert f"`{figure}`" in page or re.search(rf"`{plain}(_1)?`", page), figure


def run(name: str, file: Path, *options: str) -> dict[str, float]:
    """Run a benchmark for one round and give its figures; each is on the screen too."""
    command = [sys.executable, "-m", "bench", name, "--rounds", "1", *options, "--json", str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    figures: dict[str, float] = json.loads(file.read_text())
    assert all(figure in done.stdout for figure in figures)
    assert all(isinstance(value, float | int) for value in figures.values())
    return figures


@pytest.mark.parametrize("name", FIGURES)
def test_a_short_benchmark_gives_all_its_figures(name: str, tmp_path: Path) -> None:
    figures = run(name, tmp_path / "figures.json", "--seconds", "0.5", "--clients", "4")
    check_defined(figures)
    assert set(figures) >= FIGURES[name]
    assert all(value >= 0 for value in figures.values())
    assert all(figures[figure] > 0 for figure in FIGURES[name] - MAY_BE_NOTHING)


def test_all_parts_of_the_hot_path_are_timed(tmp_path: Path) -> None:
    figures = run("hotpath", tmp_path / "figures.json", "--seconds", "0.02", "--batch-size", "32")
    compiled = native.library() is not None
    ways = ["numpy", "turned", "addmm", "torch", *(["native"] if compiled else [])]
    parts = [
        "dice_python",
        "dice_numpy",
        "dice_stock",
        "append",
        "flush",
        *(["lane"] if compiled else []),
    ]
    check_defined(figures)
    assert set(figures) == {
        "decode_us",
        "encode_us",
        *(f"forward_{way}_us_{rows}" for way in ways for rows in (1, 4, 16, 64)),
        *(f"{part}_us_{rows}" for part in parts for rows in (1, 16)),
        "write_apart_us",
        "write_burst_us",
        "probe_us",
        "sample_us",
        "sample_one_step_us",
        "step_us",
        "gather_take_us",
        "gather_select_us",
        "adamw_fused_us",
        "adamw_foreach_us",
        "passes_apart_us",
        "passes_joined_us",
    }
    assert all(value > 0 for value in figures.values())


def test_the_costs_of_options_are_ratios_to_the_plain_learner(tmp_path: Path) -> None:
    load = ("--seconds", "0.3", "--clients", "2", "--batch-size", "16")
    figures = run("options", tmp_path / "figures.json", *load, "--only", "priority")
    assert set(figures) == {
        "plain_steps_per_s",
        "plain_fps",
        "plain_steps_per_s_beside",
        *(f"priority_{what}" for what in ("steps", "fps", "steps_beside")),
    }
    assert all(value > 0 for value in figures.values())
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    assert all(f"| `{name}` |" in page for name in options.VARIANTS)


def test_an_option_is_held_against_its_neighbours() -> None:
    # The machine is half as fast in the second quad, and stalls in the third: both met the same.
    bare = {"noisy": [((80.0,), (100.0,)), ((40.0,), (50.0,)), ((1.0,), (9.0,))]}
    beside = {"noisy": [((900.0, 8.0), (1000.0, 10.0))]}
    assert options._figures(bare, beside) == {
        "plain_steps_per_s": 50.0,
        "plain_fps": 1000.0,
        "plain_steps_per_s_beside": 10.0,
        "noisy_steps": 0.8,
        "noisy_fps": 0.9,
        "noisy_steps_beside": 0.8,
    }


@pytest.mark.timeout(300)
def test_the_homes_are_measured_side_by_side(tmp_path: Path) -> None:
    brief = ("--seconds", "0.3", "--warmup", "0.2", "--clients", "4", "--batch-size", "32")
    figures = run("homes", tmp_path / "figures.json", *brief, "--sampling", "priority")
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    names = ["none", *(f"{home}_priority" for home in homes.HOMES)]
    check_defined({re.sub(rf"^({'|'.join(names)})_", "", figure) for figure in figures})
    for name in names:
        assert f"`{name}`" in page and f"`{name.removesuffix('_priority')}`" in page
        assert figures[f"{name}_fps"] > 0 and figures[f"{name}_fps_saturated"] > 0
        assert figures[f"{name}_lag_p99_ms"] > 0 and figures[f"{name}_latency_p99_ms"] > 0
        # How many steps fit into so short a time is not for a test to say.
        trains = name != "none"
        assert (f"{name}_steps_per_s" in figures) is trains
        assert (f"{name}_forward_share" in figures) is trains
        assert (figures.get(f"{name}_fps_saturated_over_none", 0) > 0) is trains


def test_each_home_stands_beside_its_own_run_without_training(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    order: list[tuple[str, str]] = []

    async def measured(home: homes.Home, sampling: str, _: object) -> tuple[Round, Round]:
        order.append((home.about, sampling))
        each = {"fps": 2000.0, "p99_ms": 3.0}
        return {**each, "fps_saturated_over_none": 0.5}, {**each, "p99_ms": float(len(order))}

    monkeypatch.setattr(homes, "_measure", measured)
    rounds = [asyncio.run(homes.measure(argparse.Namespace(sampling="both")))]
    assert len(order) == 2 * len(homes.HOMES)
    assert rounds[0]["none_p99_ms"] == 5.5  # the median of ten
    order.clear()
    rounds.append(asyncio.run(homes.measure(argparse.Namespace(sampling="uniform"))))
    assert {sampling for _, sampling in order} == {"uniform"}
    assert rounds[1]["none_p99_ms"] == 3.0


def test_the_table_of_homes_is_that_of_the_page() -> None:
    first = {"none_fps": 2000.0, "thread_1x4_fps": 1990.0, "thread_1x4_p99_ms": 4.0}
    rounds = [first, {**first, "thread_1x4_p99_ms": 12.345}, {**first, "thread_1x4_p99_ms": 1.0}]
    head, _, none, thread = homes.markdown(rounds).splitlines()
    assert head in (ROOT / "docs" / "benchmarks.md").read_text()
    assert none.startswith("| `none` | 2,000 (2,000 to 2,000) | - | - | - |")
    assert thread.startswith("| `thread_1x4` | 1,990 (1,990 to 1,990) | - | 4.00 (1.00 to 12.3) |")
    assert thread.count("|") == head.count("|")


def test_a_single_lock_lets_one_worker_train_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once, most = [], []

    def train(worker: Worker, between_steps: Callable[[], None]) -> bool:
        at_once.append(1)
        most.append(len(at_once))
        time.sleep(0.01)
        at_once.pop()
        return True

    monkeypatch.setattr(Worker, "train", train)
    for wanted in (False, True):
        most.clear()
        with homes._single_lock(wanted):
            threads = [
                threading.Thread(target=Worker.train, args=(None, lambda: None)) for _ in range(4)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert (max(most) == 1) == wanted


def test_one_crowd_changes_its_pace() -> None:
    async def run() -> None:
        met = []

        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            met.append(writer)
            with contextlib.suppress(ConnectionError):
                while data := await reader.read(65536):
                    writer.write(data)
            writer.close()

        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        load: dict[str, Any] = {"clients": 2, "seconds": 0.5, "warmup_s": 0.2, "bare": True}
        paces = [200.0, 20.0, 0.0, 20.0]
        words = [
            word async for word in crowd.paced(server.sockets[0].getsockname()[1], paces, **load)
        ]
        server.close()
        assert words[::2] == [None] * len(paces)  # a warm-up each
        fast, slow, full, again = (word["fps"] for word in words[1::2] if word is not None)
        assert len(met) == 2  # the same clients all along
        assert max(slow, again) <= 20 + 2 * 2 / 0.5 < fast <= 200 + 2 * 2 / 0.5 < full

    asyncio.run(run())


def test_the_governor_is_measured_under_a_changing_load(tmp_path: Path) -> None:
    figures = run("govern", tmp_path / "figures.json", "--seconds", "0.5", "--warmup", "0.3")
    check_defined(figures)
    for part in ("500", "4000", "500_again", "saturated"):
        assert figures[f"free_{part}_steps_per_s"] > 0
        assert 0 <= figures[f"held_{part}_training_share"] <= 1
        assert 0 <= figures[f"held_{part}_holding_share"] <= 1
        assert figures[f"held_{part}_settled_s"] >= 0
        # The same figures from each way, so that they can be compared.
        for figure in ("delay_p99_ms", "p99_ms"):
            assert all(figures[f"{way}_{part}_{figure}"] > 0 for way in ("none", "free", "held"))
    goal = figures["held_saturated_goal_fps"]
    assert goal == (figures["none_saturated_fps"] + figures["free_saturated_fps"]) / 2
    assert figures["held_saturated_fps_over_goal"] == figures["held_saturated_fps"] / goal


@pytest.mark.timeout(300)
def test_what_grows_with_clients_network_and_replay(tmp_path: Path) -> None:
    brief = ("--seconds", "0.3", "--warmup", "0.2", "--clients", "4")
    least = ("--most-clients", "4", "--most-frames", "100000")
    figures = run("scale", tmp_path / "figures.json", *brief, *least)
    check_defined(re.sub(r"_(clients|network|replay)_\w+$", "", figure) for figure in figures)
    names = ["clients_1", "clients_4", "replay_100000"]
    names += [f"network_{name}" for name in scale.NETWORKS]
    for name in names:
        assert figures[f"p99_ms_{name}"] > 0 and figures[f"fps_saturated_{name}"] > 0
        assert figures[f"latency_p99_ms_{name}"] > 0 and figures[f"lag_p99_ms_{name}"] > 0
    for since, figure in (("sent", "p99_ms"), ("due", "p99_due_ms")):
        four, one = figures[f"{figure}_clients_4"], figures[f"{figure}_clients_1"]
        assert figures[f"p99_{since}_over_linear"] == pytest.approx(four / one / 4)
    assert figures["append_largest_over_smallest"] == 1  # there is only one
    if native.library() is not None:
        assert figures["lane_us_replay_100000"] > 0 and figures["lane_largest_over_smallest"] == 1


@pytest.mark.parametrize(
    ("sent", "tries", "counted"),
    [((1990.0,), 1, 1990.0), ((1440.0, 1999.0), 2, 1999.0), ((1500.0, 1200.0), 2, 1500.0)],
)
def test_a_load_that_was_not_offered_is_offered_again(
    monkeypatch: pytest.MonkeyPatch, sent: tuple[float, ...], tries: int, counted: float
) -> None:
    done: list[float] = []

    async def played(app: object, **load: float) -> tuple[dict[str, float], float]:
        done.append(sent[len(done)])
        return {"fps_sent": done[-1]}, 0.0

    monkeypatch.setattr(scale, "beside", played)
    monkeypatch.setattr(host, "contention", lambda app, seconds: {})
    options = argparse.Namespace(fps=2000.0, seconds=1.0)
    paced, _, _ = asyncio.run(scale._paced(None, {}, options))  # type: ignore[arg-type]
    assert len(done) == tries and paced["fps_sent"] == counted


def test_a_replay_that_the_disk_cannot_hold_is_refused_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench", "scale", "--most-frames", str(10**15)])
    with pytest.raises(SystemExit, match="set TMPDIR, or --most-frames to less"):
        command_line.main()


def test_what_it_costs_to_be_watched(tmp_path: Path) -> None:
    figures = run("telemetry", tmp_path / "figures.json", "--seconds", "1", "--clients", "2")
    check_defined(figures)
    for name in ("fps", "steps_per_s"):
        on, off = figures[f"{name}_watched"], figures[f"{name}_unwatched"]
        assert figures[f"{name}_watched_over_unwatched"] == pytest.approx(on / off)


@pytest.mark.skipif(os.geteuid() != 0, reason="py-spy may look at its parent as root only")
def test_the_probe_is_held_against_a_look_from_outside(tmp_path: Path) -> None:
    figures = run("lock", tmp_path / "figures.json", "--seconds", "1", "--clients", "2")
    check_defined(figures)
    assert len(figures) == 8
    assert all(0 <= share <= 1 for share in figures.values())
    assert figures["spy_share_thread_saturated"] > 0 < figures["probe_share_thread_saturated"]


def test_heads_are_compared_by_what_their_trainings_earn(tmp_path: Path) -> None:
    brief = ("--minutes", "0.3", "--games", "gym:Pendulum-v1", "--episodes", "1")
    figures = run("heads", tmp_path / "figures.json", *brief, "--heads", "factored")
    assert set(figures) == {"pendulum-v1_factored", "pendulum-v1_factored_greedy"}
    assert all(-2000 < value < 0 for value in figures.values())  # all that the game gives


def test_every_head_is_what_it_is_called() -> None:
    shapes = {}
    for head, words in heads._WORDS.items():
        parser = argparse.ArgumentParser()
        config.add_arguments(parser)
        network = config.from_arguments(parser.parse_args(words), {}).network
        shapes[head] = (network.bins, network.dueling)
    assert shapes == {"factored": (15, False), "branching": (15, True), "regressed": (0, False)}


def test_cartpole_is_timed_by_the_checkpoints_of_its_training(tmp_path: Path) -> None:
    brief = ("--minutes", "0.25", "--every", "5", "--episodes", "2", "--with=--heartbeat-s 0.5")
    figures = run("cartpole", tmp_path / "figures.json", *brief)
    check_defined(figures)
    reached = figures["best_mean"] >= 475
    assert 0 < figures["best_mean"] <= 500 and (figures["minutes_to_475"] < 1) == reached


def test_a_killed_training_is_drawn_beside_one_that_was_not(tmp_path: Path) -> None:
    picture = tmp_path / "comeback.svg"
    brief = ("--minutes", "0.6", "--game", "pong", "--episodes", "1", "--svg", str(picture))
    figures = run("comeback", tmp_path / "figures.json", *brief)
    check_defined(figures)
    assert set(figures) == {
        *("killed_training", "killed_greedy", "untouched_training", "untouched_greedy"),
        *("before_kill", "lowest_after_kill"),
    }
    assert figures["lowest_after_kill"] <= figures["killed_training"]
    assert picture.read_text().count("<polyline") == 4


def test_a_short_soak_loses_and_leaks_nothing(tmp_path: Path) -> None:
    figures = run("soak", tmp_path / "figures.json", "--minutes", "0.25", "--fault-s", "2")
    check_defined(figures)
    assert figures["frames"] > 0 and figures["frames_lost"] == 0
    assert sum(figures[f"{fault}_faults"] for fault in soak.FAULTS) > 0


def test_a_server_that_comes_back_is_timed(tmp_path: Path) -> None:
    figures = run("resume", tmp_path / "figures.json", "--frames", "50000")
    check_defined(figures)
    for prefix in ("", "priority_"):
        times = [figures[f"{prefix}{name}_s"] for name in ("listening", "answered", "trained")]
        assert 0 < times[0] < times[1] < times[2]


def test_what_bad_clients_cost_is_measured(tmp_path: Path) -> None:
    brief = ("--seconds", "0.5", "--clients", "4", "--fps", "200")
    figures = run("siege", tmp_path / "figures.json", *brief)
    assert all(figures[f"{kind}_{what}"] > 0 for kind in foe.KINDS for what in ("rate", "p99"))


def test_stalls_are_measured_in_fresh_processes(tmp_path: Path) -> None:
    figures = run("stalls", tmp_path / "figures.json")
    check_defined(figures)
    assert figures["gc_objects"] > 50_000  # torch is among them
    assert figures["gc_full_ms"] > figures["gc_frozen_ms"] > 0
    assert figures["adamw_class_ms"] > figures["adamw_function_ms"] > 0
    assert figures["adamw_class_mb"] > 1
    assert figures["redraw_ms"] > 0


def test_the_dashboard_is_measured_turn_by_turn(tmp_path: Path) -> None:
    figures = run("screen", tmp_path / "figures.json", "--seconds", "4", "--clients", "2")
    check_defined(figures)
    assert figures["fps_screen"] > 0 and figures["fps_no_screen"] > 0
    assert figures["screen_thread_percent"] > 0 and figures["screen_snapshot_percent"] > 0


@pytest.mark.timeout(400)
def test_what_the_client_costs_mame(tmp_path: Path) -> None:
    try:
        emulators.check("mame", "pong2600")
    except LaunchError as missing:
        pytest.skip(str(missing))
    figures = run("mame", tmp_path / "figures.json", "--seconds", "0.5")
    check_defined(figures)
    for count in ("one", "two"):
        free, lockstep = figures[f"socketless_fps_{count}"], figures[f"lockstep_fps_{count}"]
        assert free > 0 and lockstep > 0
        assert figures[f"mame_{count}"] == pytest.approx(lockstep / free)
    assert figures["trained_steps_per_s"] > 0
    assert figures["trained_fps_two"] > 0 and figures["trained_over_untrained"] > 0
    assert 0 <= figures["waiting_core_share"] <= 1
    parts = [figures[f"lua_{part}_us"] for part in ("features", "encode", "decode")]
    assert all(part > 0 for part in parts)
    assert figures["lua_us"] > max(parts)


@pytest.mark.alone
@pytest.mark.timeout(300)
def test_each_part_of_a_cluster_is_measured(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    brief = ("--seconds", "1", "--clients", "4", "--fps", "400", "--values", "8")
    brief += ("--gateways", "1,2", "--learners", "2")
    figures = run("cluster", tmp_path / "figures.json", *brief)
    check_defined(figures, "scaling.md")
    assert set(figures) == FIGURES_OF_A_CLUSTER
    assert all(value > 0 for value in figures.values())
    # Frames/s of two gateways are those of both together, at the pace that was asked for.
    for gateways in (1, 2):
        assert figures[f"paced_fps_ray_{gateways}"] == pytest.approx(400, rel=0.2)
    share = figures["shipped_mb_per_s_ray_1"] * figures["shipping_ms_per_mb_ray_1"] / 1e3
    assert figures["shipping_cpu_share_ray_1"] == pytest.approx(share)
    transitions = figures["steps_per_s_learners_2"] * 2 * Rules().batch_size
    assert figures["transitions_per_s_learners_2"] == pytest.approx(transitions)


def test_a_missing_emulator_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nowhere = Program("no-such-mame", "MAME", "mame lua-socket")
    monkeypatch.setitem(emulators.PROGRAMS, "mame", nowhere)
    monkeypatch.setattr(sys, "argv", ["bench", "mame"])
    assert command_line.main() == 2
    assert "mame: MAME is not installed; on Debian: apt-get" in capsys.readouterr().err


@pytest.mark.parametrize(
    "wrong", [["serve", "--rounds", "0"], ["hotpath", "--clients", "3"], ["no_such_bench"]]
)
def test_wrong_options_are_refused(monkeypatch: pytest.MonkeyPatch, wrong: list[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["bench", *wrong])
    with pytest.raises(SystemExit, match="2"):
        command_line.main()
