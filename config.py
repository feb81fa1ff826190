"""Every setting of Coinop: its default, its sentence, its unit and its bounds.

The command line, the TOML file, the validation and docs/configuration.md all come from these
dataclasses, so they cannot disagree. Nothing is read or opened when this module is imported.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import functools
import math
import os
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


class ConfigError(ValueError):
    """A setting that cannot be used; the message names it, its value and the fix."""


def setting(
    default: Any,
    about: str,
    *,
    unit: str = "",
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    kind: type | None = None,
) -> Any:
    """Declare one setting: its default, one sentence, and what values are allowed.

    Its type is that of the default; where that is None, because the value follows from others
    until somebody gives it, ``kind`` says it.
    """
    meta = {"about": about, "unit": unit, "low": low, "high": high, "choices": choices}
    return field(default=default, metadata={**meta, "kind": kind or type(default)})


@dataclass(frozen=True, slots=True)
class Server:
    """Where clients connect, what they may cost, and what they are told."""

    host: str = setting("127.0.0.1", "Address to listen on; any but loopback needs a token.")
    port: int = setting(
        9797, "TCP port to listen on; 0 takes a free one.", unit="port", low=0, high=65535
    )
    token_file: str = setting(
        "",
        "File that holds the secret clients must know; the variable COINOP_TOKEN works too.",
        unit="path",
    )
    tls_cert: str = setting(
        "", "File with a certificate (PEM): clients then connect with TLS.", unit="path"
    )
    tls_key: str = setting("", "File with the certificate's key (PEM).", unit="path")
    record: str = setting(
        "",
        "New file for a tape: all messages of all clients, with times (python main.py replay).",
        unit="path",
    )
    max_clients: int = setting(
        256, "Connections served at once; one more is refused.", unit="clients", low=1, high=65536
    )
    max_per_address: int = setting(
        256,
        "Connections from one address at once; one more is refused.",
        unit="clients",
        low=1,
        high=65536,
    )
    max_agents: int = setting(
        8, "Agents that may train side by side in one run.", unit="agents", low=1, high=256
    )
    max_message_bytes: int = setting(
        1 << 20, "Longest message accepted from a client.", unit="bytes", low=1024, high=1 << 28
    )
    max_unfinished_bytes: int = setting(
        1 << 26,
        "Memory for messages of which only a part has come, of all clients together; over that the "
        "client with the longest part is closed.",
        unit="bytes",
        low=1 << 16,
        high=1 << 40,
    )
    hello_timeout_s: float = setting(
        10.0, "Time a new connection has to say Hello.", unit="s", low=0.1, high=3600
    )
    client_timeout_s: float = setting(
        60.0,
        "Silence after which a client is closed; it is pinged at a third of that.",
        unit="s",
        low=1,
        high=86400,
    )
    resume_window_s: float = setting(
        60.0, "Time a lost client may come back to its session.", unit="s", low=0, high=86400
    )
    client_setting: tuple[str, ...] = setting(
        (),
        "Setting pushed to every game script, as name=value: start_level=9. May be repeated.",
    )


@dataclass(frozen=True, slots=True)
class Run:
    """The run's directory: weights, replay and settings live there."""

    run: str = setting("default", "Name of the run; starting it again resumes it.")
    runs_dir: str = setting("runs", "Directory that holds all runs.", unit="path")
    fresh: bool = setting(False, "Start over; the old run is kept under a dated name.")
    seed: int = setting(
        1, "Seed of weights, exploration and sampling.", unit="number", low=0, high=2**31 - 1
    )
    save_interval_s: float = setting(
        300.0, "Time between checkpoints.", unit="s", low=1, high=86400
    )
    curve_interval_s: float = setting(
        10.0, "Time between points of the learning curves.", unit="s", low=0.1, high=86400
    )


@dataclass(frozen=True, slots=True)
class Replay:
    """The frames the agent learns from."""

    replay_capacity: int | None = setting(
        None,
        "Frames kept, then the oldest go; unless given, a million or as many as 1 GB holds.",
        unit="frames",
        low=4096,
        high=2**30,
        kind=int,
    )
    min_replay: int = setting(
        2_000, "Frames collected before training starts.", unit="frames", low=2, high=2**30
    )
    sampling: str = setting(
        "uniform",
        "Which frames are learned from: all alike, or those that surprised most (prioritised).",
        choices=("uniform", "priority"),
    )
    priority_alpha: float = setting(
        0.6, "How much surprise counts; 0 is uniform again.", unit="power", low=0, high=2
    )
    priority_beta: float = setting(
        0.4,
        "How much of the bias of prioritised sampling is undone at the first step; later all.",
        unit="power",
        low=0,
        high=1,
    )
    priority_beta_steps: int = setting(
        200_000, "Steps until all of it is undone.", unit="steps", low=1, high=10**9
    )
    replay_storage: str = setting(
        "file",
        "Where frames live: a memory-mapped file in the run, or memory that dies with the server.",
        choices=("file", "memory"),
    )


@dataclass(frozen=True, slots=True)
class Policy:
    """How actions are chosen while playing."""

    epsilon_start: float = setting(
        1.0, "Share of random actions at the first frame.", unit="share", low=0, high=1
    )
    epsilon_end: float = setting(
        0.02, "Share of random actions once the schedule has run out.", unit="share", low=0, high=1
    )
    epsilon_frames: int = setting(
        60_000, "Frames over which that share falls.", unit="frames", low=1, high=2**40
    )
    noise_start: float = setting(
        0.4,
        "Noise on continuous controls at the first frame, as a share of half their range.",
        unit="share",
        low=0,
        high=2,
    )
    noise_end: float = setting(
        0.1, "That noise once the schedule has run out.", unit="share", low=0, high=2
    )
    expert_start: float = setting(
        0.5, "Share of expert proposals followed at the first frame.", unit="share", low=0, high=1
    )
    expert_end: float = setting(
        0.0, "That share once the schedule has run out.", unit="share", low=0, high=1
    )
    expert_frames: int = setting(
        1_000_000, "Frames over which the expert gives way.", unit="frames", low=1, high=2**40
    )
    heartbeat_s: float = setting(
        1.0, "Time between copies of trained weights into play.", unit="s", low=0.1, high=3600
    )
    weights_max_age_s: float = setting(
        120.0,
        "Age of the weights in play, or three heartbeats if that is more, from which an alarm is "
        "shown.",
        unit="s",
        low=1,
        high=86400,
    )


@dataclass(frozen=True, slots=True)
class Network:
    """The shape of the network."""

    hidden_sizes: tuple[int, ...] = setting(
        (128, 128), "Width of each hidden layer.", unit="units", low=1, high=16384
    )
    layer_norm: bool = setting(False, "Normalise each hidden layer: steadier, and slower to play.")
    noisy: bool = setting(
        False,
        "Explore by noise on the weights that the network learns to trust or to ignore; with it "
        "epsilon may be 0. It is drawn anew with each heartbeat, and is the same for all clients "
        "in between.",
    )
    dueling: bool = setting(
        False, "Judge the state and the advantage of each choice in streams of their own."
    )
    distribution: str = setting(
        "none",
        "What a choice's worth is: its mean, its quantiles, or a histogram (C51).",
        choices=("none", "quantile", "categorical"),
    )
    atoms: int = setting(32, "Quantiles, or bars of the histogram.", unit="atoms", low=2, high=512)
    value_low: float = setting(
        -10.0, "Worth of the histogram's first bar.", unit="return", low=-1e9, high=1e9
    )
    value_high: float = setting(
        10.0, "Worth of the histogram's last bar.", unit="return", low=-1e9, high=1e9
    )
    bins: int = setting(
        15,
        "Choices into which each continuous control is cut (factored); 0 trains it as a number "
        "(regressed).",
        unit="choices",
        low=0,
        high=256,
    )
    frame_stack: int = setting(
        0,
        "Frames the network sees at once, so that it sees motion; 0 means 4 of images, 1 of "
        "anything else.",
        unit="frames",
        low=0,
        high=64,
    )
    trunk: str = setting(
        "auto",
        "Convolutions that images pass: a small set, that of the Nature paper with three times the "
        "work, or the one that suits the device (small on the CPU).",
        choices=("auto", "small", "nature"),
    )
    device: str = setting("cpu", "Where the network trains.", choices=("cpu", "cuda", "mps"))


@dataclass(frozen=True, slots=True)
class Learner:
    """How the network learns."""

    batch_size: int = setting(
        256, "Transitions in one gradient step.", unit="transitions", low=1, high=65536
    )
    learning_rate: float = setting(
        5e-4, "Step size of the AdamW optimizer.", unit="rate", low=1e-8, high=1
    )
    learning_rate_end: float = setting(
        0.0, "Where the step size ends if it falls.", unit="rate", low=0, high=1
    )
    learning_rate_fall: int = setting(
        0,
        "Steps over which it falls as a cosine; 0 keeps it constant.",
        unit="steps",
        low=0,
        high=10**9,
    )
    warmup_steps: int = setting(
        0, "Steps over which it first rises from nothing.", unit="steps", low=0, high=10**9
    )
    weight_decay: float = setting(
        1e-5, "Weight decay of the AdamW optimizer.", unit="rate", low=0, high=1
    )
    gamma: float = setting(
        0.997, "Worth of a reward one frame later.", unit="factor", low=0, high=1
    )
    n_step: int = setting(
        3, "Frames of real reward before the estimate takes over.", unit="frames", low=1, high=64
    )
    target_update: str = setting(
        "soft",
        "How the target network follows: a little each step, or wholly now and then.",
        choices=("soft", "hard"),
    )
    target_tau: float = setting(
        0.005, "Share of the way a soft update goes.", unit="share", low=1e-6, high=1
    )
    target_period: int = setting(
        1000, "Steps between hard updates.", unit="steps", low=1, high=10**9
    )
    target_max_age_s: float = setting(
        0.0,
        "Age at which a target network that waits for a hard update gets it anyway; 0 sets none. "
        "Soft updates never wait.",
        unit="s",
        low=0,
        high=86400,
    )
    munchausen: float = setting(
        0.0,
        "Share of the Munchausen term, a reward for being sure; 0.9 is usual, 0 leaves it out.",
        unit="share",
        low=0,
        high=1,
    )
    gradient_clip: float = setting(
        10.0, "Largest norm of a step's gradient; 0 clips nothing.", unit="norm", low=0, high=1e9
    )
    gradient_accumulation: int = setting(
        1, "Batches whose gradients are averaged into one step.", unit="batches", low=1, high=1024
    )
    max_bad_steps: int = setting(
        100,
        "Steps in a row that are not finite, after which the learner goes back to its last good "
        "checkpoint.",
        unit="steps",
        low=1,
        high=10**9,
    )
    continuous_weight: float = setting(
        1.0, "Weight of the continuous controls in the loss.", unit="factor", low=0, high=1000
    )
    cloning_weight: float = setting(
        0.0,
        "Weight, at the first step, of imitating the expert where an expert or a person played.",
        unit="factor",
        low=0,
        high=1000,
    )
    cloning_steps: int = setting(
        100_000, "Steps over which imitation gives way.", unit="steps", low=1, high=10**9
    )


@dataclass(frozen=True, slots=True)
class Trainer:
    """Where and how hard the learner runs."""

    training: bool = setting(True, "Train from the start (the key t switches it).")
    trainer: str = setting(
        "thread",
        "Where the learner runs: in a thread of the server, in several, or in its own process, "
        "which rests while the event loop waits for a core.",
        choices=("thread", "workers", "process"),
    )
    training_workers: int = setting(
        1,
        "Training threads of trainer = workers; one with several steps per sample is the measured "
        "choice.",
        unit="threads",
        low=1,
        high=64,
    )
    training_steps_per_sample: int = setting(
        4, "Gradient steps taken from one gathered sample.", unit="steps", low=1, high=256
    )
    max_replay_ratio: float = setting(
        0.0,
        "Most transitions trained per frame collected; 0 sets no limit.",
        unit="transitions/frame",
        low=0,
        high=1e6,
    )
    hold_fps: float = setting(
        0.0,
        "Frames/s that training gives way to, as long as clients wait for the server; 0 for none.",
        unit="frames/s",
        low=0,
        high=1e9,
    )
    hold_p99_ms: float = setting(
        0.0,
        "Delay of a frame in the server, 99th percentile, that training gives way to; 0 for none.",
        unit="ms",
        low=0,
        high=1e6,
    )
    switch_interval_s: float = setting(
        0.0005,
        "How soon a thread that holds Python's lock gives it up.",
        unit="s",
        low=1e-6,
        high=1,
    )


@dataclass(frozen=True, slots=True)
class Evaluation:
    """How agents are evaluated while they train: greedy episodes that nobody learns from."""

    eval_interval_s: float = setting(
        300.0,
        "Time between evaluations of an agent, by an emulator of its own; 0 for none. Long ones "
        "are further apart, so that they take at most a tenth of the time.",
        unit="s",
        low=0,
        high=86400 * 7,
    )
    eval_episodes: int = setting(
        4, "Episodes of one evaluation.", unit="episodes", low=1, high=10_000
    )
    eval_sticky: float = setting(
        0.0,
        "Share of an Atari game's frames in which an evaluation repeats the last action instead "
        "of the one asked for; 0.25 is usual.",
        unit="share",
        low=0,
        high=0.99,
    )


@dataclass(frozen=True, slots=True)
class Emulators:
    """Emulators that the server starts itself, and how it keeps them."""

    launch: tuple[str, ...] = setting(
        (),
        "Emulators to start, as emulator:game=count: ale:pong=2, gym:CartPole-v1, mame:pong2600, "
        "fceux:catch; mame:pong2600=8@each starts so many on each node of a cluster "
        "that has a gateway. "
        "May be repeated.",
    )
    show: bool = setting(False, "Show them in windows, at the speed of the real machine.")
    throttle: bool | None = setting(
        None,
        "Hold them to the speed of the real machine; unless given, only those in windows are.",
        kind=bool,
    )
    stagger_s: float = setting(
        0.2, "Time between two starts; 0 starts all at once.", unit="s", low=0, high=60
    )
    stall_s: float = setting(
        60.0,
        "Time without a frame after which one is taken to hang and started again; 0 for never.",
        unit="s",
        low=0,
        high=86400,
    )
    niceness: int = setting(
        10,
        "How far launched emulators give way to the server and its training.",
        unit="nice",
        low=0,
        high=19,
    )


@dataclass(frozen=True, slots=True)
class FleetEntry:
    """Emulators of one kind that play one game; what is left out is as under [emulators]."""

    emulator: str = setting("", "Kind of emulator, such as mame; must be given.")
    game: str = setting("", "Game it plays, such as pong2600; must be given.")
    count: int = setting(1, "How many of them.", unit="emulators", low=1, high=1024)
    show: bool | None = setting(None, "Show them in windows.", kind=bool)
    throttle: bool | None = setting(None, "Hold them to the speed of the real machine.", kind=bool)
    niceness: int | None = setting(
        None, "How far they give way.", unit="nice", low=0, high=19, kind=int
    )
    each: bool = setting(False, "So many on each node of the cluster that has a gateway.")


@dataclass(frozen=True, slots=True)
class Cluster:
    """Many machines: gateways and learners as actors of Ray (docs/cluster.md)."""

    cluster: str = setting(
        "",
        "Ray cluster to run on: local starts one on this machine, auto finds the one that runs on "
        "it, HOST:PORT is any other; empty for none.",
    )
    gateways: int = setting(
        1,
        "Gateways that answer clients, spread over the nodes; number n listens on port + n.",
        unit="gateways",
        low=1,
        high=1024,
    )
    learners: int = setting(
        1,
        "Learners of each agent, each with a share of the frames; they average their gradients and "
        "so have the same weights: for networks whose steps are slow (docs/cluster.md).",
        unit="learners",
        low=1,
        high=64,
    )


@dataclass(frozen=True, slots=True)
class Console:
    """What a person sees."""

    plain: bool = setting(False, "Print status lines instead of the dashboard.")
    preview_every: int = setting(
        0,
        "Frames between small pictures of each client's screen, for `python main.py snapshot`; "
        "0 asks for none.",
        unit="frames",
        low=0,
        high=2**31 - 1,
    )
    metrics_port: int = setting(
        0,
        "Port of this machine at which Prometheus reads the figures, under /metrics; 0 for none.",
        unit="port",
        low=0,
        high=65535,
    )
    telemetry: bool = setting(
        True, "Measure what the event loop waits for; at full speed it costs about 1 %."
    )
    refresh_s: float = setting(
        0.25, "Time between redraws of the dashboard.", unit="s", low=0.05, high=60
    )
    status_interval_s: float = setting(
        10.0, "Time between status lines where there is no dashboard.", unit="s", low=0.1, high=3600
    )


@dataclass(frozen=True, slots=True)
class Config:
    """All settings, by section."""

    server: Server = field(default_factory=Server)
    run: Run = field(default_factory=Run)
    replay: Replay = field(default_factory=Replay)
    policy: Policy = field(default_factory=Policy)
    network: Network = field(default_factory=Network)
    learner: Learner = field(default_factory=Learner)
    trainer: Trainer = field(default_factory=Trainer)
    evaluation: Evaluation = field(default_factory=Evaluation)
    emulators: Emulators = field(default_factory=Emulators)
    cluster: Cluster = field(default_factory=Cluster)
    console: Console = field(default_factory=Console)
    fleet: tuple[FleetEntry, ...] = ()


SECTIONS: dict[str, type[Any]] = {
    "server": Server,
    "run": Run,
    "replay": Replay,
    "policy": Policy,
    "network": Network,
    "learner": Learner,
    "trainer": Trainer,
    "evaluation": Evaluation,
    "emulators": Emulators,
    "cluster": Cluster,
    "console": Console,
}

_SILENT_UNITS = (
    "",
    "path",
    "port",
    "number",
    "rate",
    "factor",
    "norm",
    "nice",
    "power",
    "return",
)  # no measure
_SUFFIXES = {"k": 1_000, "M": 1_000_000, "G": 1_000_000_000}
_CLIENT_SETTING = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]{0,63})=(?P<value>.{1,256})")
_USUAL_CAPACITY = 1_000_000  # frames of a replay, unless somebody says otherwise
_MOST_CLIENT_SETTINGS = 31  # a message holds 32, and preview_every is one
_LAST_PORT = 65535
_PREVIEW_BYTES = 1 << 16  # the longest message with a picture that our clients send


def from_values(values: Mapping[str, Any]) -> Config:
    """Build a checked Config from {section: {setting: value}}; what is absent keeps its default.

    Beside the sections there may be "fleet", a list of {setting: value}.
    """
    for section in values:
        if section not in SECTIONS and section != "fleet":
            raise ConfigError(_unknown_section(section, values[section]))
    built = {
        section: _built(f"[{section}]", kind, values.get(section, {}))
        for section, kind in SECTIONS.items()
    }
    config = Config(**built, fleet=_built_fleet(values.get("fleet", [])))
    _check_together(config)
    return config


def _built(where: str, kind: type[Any], given: Any) -> Any:
    """Build one table's settings."""
    if not isinstance(given, Mapping):
        raise ConfigError(f"{where} must be a table of settings, not {given!r}")
    fields = {f.name: f for f in dataclasses.fields(kind)}
    for name in given:
        if name not in fields:
            raise ConfigError(f"unknown setting {name!r} in {where}{_hint(name, fields)}")
    return kind(**{name: _checked(fields[name], value) for name, value in given.items()})


def _built_fleet(given: Any) -> tuple[FleetEntry, ...]:
    """Build the entries of [[fleet]]; what is wrong is told with the entry's number."""
    if isinstance(given, Mapping):
        raise ConfigError(
            "[fleet] must be [[fleet]], once per entry with its emulator, game and count; "
            "settings of all emulators belong under [emulators]"
        )
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise ConfigError(f"fleet = {given!r} must be a list of tables, each under [[fleet]]")
    entries = []
    for number, values in enumerate(given, start=1):
        where = f"[[fleet]] entry {number}"
        try:
            entry: FleetEntry = _built("the entry", FleetEntry, values)
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from error
        for name, example in (("emulator", "mame"), ("game", "pong2600")):
            if not getattr(entry, name):
                raise ConfigError(f'{where} needs {name}, such as {name} = "{example}"')
        entries.append(entry)
    return tuple(entries)


def bounds(section: str, name: str) -> tuple[float, float] | None:
    """Give the lowest and the highest value of a setting, None where it is no number."""
    fields = {f.name: f for f in dataclasses.fields(SECTIONS[section])}
    low, high = fields[name].metadata["low"], fields[name].metadata["high"]
    return None if low is None else (low, high)


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML settings file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the config file {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"the config file {path} is not valid TOML: {error}") from error


def client_settings(texts: Sequence[str]) -> dict[str, int | float | str]:
    """Read what is pushed to every client, each as name=value; numbers become numbers."""
    settings: dict[str, int | float | str] = {}
    for text in texts:
        match = _CLIENT_SETTING.fullmatch(text)
        if match is None:
            raise ConfigError(
                f"client_setting = {text!r} must be name=value, such as start_level=9; a name is "
                "1 to 64 letters, digits, '.', '_' or '-', a value 1 to 256 characters"
            )
        settings[match["name"]] = _number_or_text(match["value"])
    if len(settings) > _MOST_CLIENT_SETTINGS:
        raise ConfigError(
            f"client_setting: {len(settings)} settings are more than the {_MOST_CLIENT_SETTINGS} "
            "that a message holds"
        )
    return settings


def read_token(path: str) -> str:
    """Read the secret that clients know from a file, or from COINOP_TOKEN where none is named."""
    if not path:
        return os.environ.get("COINOP_TOKEN", "")
    try:
        token = Path(path).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ConfigError(f"cannot read token_file = {path}: {error.strerror}") from error
    if not token:
        raise ConfigError(f"token_file = {path} is empty; put the secret on its first line")
    return token


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add one option per setting to a parser, grouped by section."""
    for section, kind in SECTIONS.items():
        group = parser.add_argument_group(section, kind.__doc__)
        for f in dataclasses.fields(kind):
            _add_argument(group, f)


def from_arguments(arguments: argparse.Namespace, base: Mapping[str, Any]) -> Config:
    """Lay the options a person gave over the values of a file, and check the whole."""
    values = dict(base)
    for section, kind in SECTIONS.items():
        names = [f.name for f in dataclasses.fields(kind)]
        given = {name: getattr(arguments, name, None) for name in names}
        given = {name: value for name, value in given.items() if value is not None}
        if given and isinstance(values.get(section, {}), Mapping):
            values[section] = {**values.get(section, {}), **given}
    if getattr(arguments, "launch", None) is not None:
        values.pop("fleet", None)  # like every option, --launch wins over the file
    return from_values(values)


def markdown() -> str:
    """Render the reference of all settings: docs/configuration.md."""
    lines = [
        "# Configuration",
        "",
        "Generated from `config.py` by `make docs`; do not edit by hand. Each setting is an option",
        "on the command line (`--batch-size 128`) and a key in a TOML file (`--config FILE`); the",
        "command line wins over the file, the file over the default. On the command line, counts",
        "may end in k, M or G. A file looks like this:",
        "",
        "```toml",
        "[run]",
        'run = "breakout"',
        "",
        "[learner]",
        "batch_size = 512",
        "learning_rate = 0.0003",
        "",
        "[[fleet]]",
        'emulator = "ale"',
        'game = "breakout"',
        "count = 4",
        "```",
        "",
        "`[[fleet]]` may be repeated, for other games, emulators or options. `--launch` on the",
        "command line takes the place of everything that the file would launch.",
    ]
    tables = {f"[{section}]": kind for section, kind in SECTIONS.items()}
    for where, kind in {**tables, "[[fleet]]": FleetEntry}.items():
        lines += ["", f"## {where}", "", str(kind.__doc__), ""]
        lines += ["| setting | default | unit | allowed | meaning |", "|---|---|---|---|---|"]
        for f in dataclasses.fields(kind):
            meta = f.metadata
            lines.append(
                f"| `{f.name}` | `{_shown(f.default) or '-'}` | {meta['unit'] or '-'} "
                f"| {_allowed(f)} | {meta['about']} |"
            )
    return "\n".join(lines) + "\n"


def _checked(f: dataclasses.Field[Any], value: Any) -> Any:
    """Give the value in its setting's type, or say what is wrong with it."""
    default: Any = f.default
    kind = f.metadata["kind"]
    if value is None and default is None:
        return None
    if kind is tuple:
        element = type(default[0]) if default else str
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise ConfigError(f"{f.name} = {value!r} must be a list")
        return tuple(_checked_one(f, element, v) for v in value)
    return _checked_one(f, kind, value)


def _checked_one(f: dataclasses.Field[Any], kind: type, value: Any) -> Any:
    meta = f.metadata
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if type(value) is not kind:
        bounds = "" if meta["low"] is None else f", {_allowed(f)}"
        raise ConfigError(f"{f.name} = {value!r} must be {_type_name(kind)}{bounds}")
    if meta["choices"] and value not in meta["choices"]:
        raise ConfigError(f"{f.name} = {value!r} must be one of {', '.join(meta['choices'])}")
    low, high = meta["low"], meta["high"]
    # Written so that NaN, which compares false with everything, is refused too.
    if low is not None and not low <= value <= high:
        raise ConfigError(f"{f.name} = {_shown(value)} is out of range: {_allowed(f)}")
    return value


def _check_together(config: Config) -> None:
    """Refuse values that are each allowed but make no sense together."""
    if bool(config.server.tls_cert) != bool(config.server.tls_key):
        raise ConfigError(
            f"tls_cert = {config.server.tls_cert!r} and tls_key = {config.server.tls_key!r} go "
            "together: give both or none"
        )
    _check_cluster(config)
    capacity = config.replay.replay_capacity or _USUAL_CAPACITY
    if config.replay.min_replay > capacity // 2:
        raise ConfigError(
            f"min_replay = {config.replay.min_replay} must be at most half of "
            f"replay_capacity = {capacity}"
        )
    trainer = config.trainer
    if trainer.training_workers > 1 and trainer.trainer != "workers":
        raise ConfigError(
            f"training_workers = {trainer.training_workers} needs trainer = workers, "
            f"not {trainer.trainer}"
        )
    if trainer.trainer == "process" and config.replay.replay_storage != "file":
        raise ConfigError(
            f"trainer = process needs replay_storage = file, which another process can map, "
            f"not {config.replay.replay_storage}"
        )
    network = config.network
    if network.bins == 1:
        raise ConfigError("bins = 1 leaves no choice; use 0 for none, or 2 or more")
    if network.value_low >= network.value_high:
        raise ConfigError(
            f"value_low = {network.value_low:g} must be below value_high = {network.value_high:g}"
        )
    if network.distribution == "categorical" and config.learner.munchausen:
        raise ConfigError(
            "munchausen does not go with distribution = categorical; use quantile or none"
        )
    if "preview_every" in client_settings(config.server.client_setting):
        raise ConfigError("client_setting: preview_every is a setting of its own (--preview-every)")
    if config.console.preview_every and config.server.max_message_bytes < _PREVIEW_BYTES:
        raise ConfigError(
            f"preview_every = {config.console.preview_every} needs max_message_bytes of "
            f"{_PREVIEW_BYTES} or more, not {config.server.max_message_bytes}"
        )


def _check_cluster(config: Config) -> None:
    """Refuse what a cluster does not have, and what only a cluster has."""
    cluster, trainer = config.cluster, config.trainer
    if not cluster.cluster:
        for name in ("gateways", "learners"):
            if (count := getattr(cluster, name)) > 1:
                raise ConfigError(f"{name} = {count} needs a cluster: --cluster local")
        return
    alone: dict[str, tuple[Any, Any]] = {
        "trainer": (trainer.trainer, "thread"),
        "hold_fps": (trainer.hold_fps, 0.0),
        "hold_p99_ms": (trainer.hold_p99_ms, 0.0),
        "record": (config.server.record, ""),
        "preview_every": (config.console.preview_every, 0),
    }
    for name, (value, usual) in alone.items():
        if value != usual:
            raise ConfigError(
                f"{name} = {value} is for one machine; leave it out, or leave out "
                f"cluster = {cluster.cluster}"
            )
    last = config.server.port + cluster.gateways - 1
    if config.server.port and last > _LAST_PORT:
        raise ConfigError(
            f"gateways = {cluster.gateways} from port = {config.server.port} on would end at port "
            f"{last}; the last one is {_LAST_PORT}"
        )


def _add_argument(group: argparse._ArgumentGroup, f: dataclasses.Field[Any]) -> None:
    option = "--" + f.name.replace("_", "-")
    meta = f.metadata
    told = "" if meta["unit"] in _SILENT_UNITS else f" {meta['unit']}"
    unit = told if f.default is not None else ""
    bounds = "" if meta["low"] is None else f"; {_allowed(f)}{'' if unit else told}"
    about = f"{meta['about']} (default: {_shown(f.default) or 'none'}{unit}{bounds})"
    about = about.replace("%", "%%")  # argparse fills in what follows a single one
    default: Any = f.default
    kind = meta["kind"]
    if kind is bool:
        group.add_argument(option, action=argparse.BooleanOptionalAction, default=None, help=about)
    elif kind is tuple and not default:
        group.add_argument(option, action="append", default=None, help=about, metavar="WHAT")
    elif kind is tuple:
        group.add_argument(option, type=_count_list, default=None, help=about, metavar="N,N,...")
    else:
        parse: Any = {int: _count, float: _number, str: str}[kind]
        metavar = "{" + ",".join(meta["choices"]) + "}" if meta["choices"] else _metavar(f)
        read = functools.partial(_read, f, parse)
        group.add_argument(option, type=read, default=None, help=about, metavar=metavar)


def _read(f: dataclasses.Field[Any], parse: Callable[[str], Any], text: str) -> Any:
    """Read a word of the command line, or say what it may be."""
    try:
        return parse(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{error}; it may be {_allowed(f)}") from None


def _metavar(f: dataclasses.Field[Any]) -> str:
    return {int: "N", float: "X", str: "TEXT"}[f.metadata["kind"]]


def _count(text: str) -> int:
    """Read a whole number such as 250000, 250_000, 250k or 1.5M."""
    scale = _SUFFIXES.get(text[-1:], 1)
    digits = text[:-1] if scale > 1 else text
    try:
        value = float(digits) * scale if scale > 1 else int(digits)
        if value != int(value):
            raise ValueError
        return int(value)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None


def _number_or_text(text: str) -> int | float | str:
    """Read a number if it is one that every client can hold, else keep the text."""
    try:
        number = float(text)
    except ValueError:
        return text
    if not math.isfinite(number):
        return text
    return int(number) if number == int(number) and abs(number) < 2**53 else number


def _count_list(text: str) -> tuple[int, ...]:
    return tuple(_count(part) for part in text.split(",") if part)


def _allowed(f: dataclasses.Field[Any]) -> str:
    meta = f.metadata
    if meta["choices"]:
        return ", ".join(meta["choices"])
    if meta["low"] is None:
        return "true or false" if meta["kind"] is bool else "text"
    return f"{_shown(meta['low'])} to {_shown(meta['high'])}"


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(_shown(v) for v in value)
    if isinstance(value, float) and abs(value) < 1e15 and value == int(value):
        return str(int(value))
    return str(value)


def _type_name(kind: type) -> str:
    names = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
    return names[kind]


def _unknown_section(name: str, value: Any) -> str:
    homes = [s for s, kind in SECTIONS.items() if name in kind.__dataclass_fields__]
    if homes:
        return f"{name} belongs under [{homes[0]}]"
    if not isinstance(value, Mapping):
        return f"unknown setting {name!r} = {value!r}; settings stand under a section: [server]"
    return f"unknown section [{name}]{_hint(name, SECTIONS)}"


def _hint(name: str, known: Mapping[str, Any]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(known)}"
