"""Every setting of Coinop: its default, its sentence, its unit and its bounds.

The command line, the TOML file, the validation and docs/configuration.md all come from these
dataclasses, so they cannot disagree. Nothing is read or opened when this module is imported.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import tomllib
from collections.abc import Mapping, Sequence
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
) -> Any:
    """Declare one setting: its default, one sentence, and what values are allowed."""
    meta = {"about": about, "unit": unit, "low": low, "high": high, "choices": choices}
    return field(default=default, metadata=meta)


@dataclass(frozen=True, slots=True)
class Server:
    """Where clients connect, and what they may cost."""

    host: str = setting("127.0.0.1", "Address to listen on; any but loopback needs a token.")
    port: int = setting(
        9797, "TCP port to listen on; 0 takes a free one.", unit="port", low=0, high=65535
    )
    token_file: str = setting(
        "",
        "File that holds the secret clients must show; the variable COINOP_TOKEN works too.",
        unit="path",
    )
    max_clients: int = setting(
        256, "Connections served at once; one more is refused.", unit="clients", low=1, high=65536
    )
    max_agents: int = setting(
        8, "Agents that may train side by side in one run.", unit="agents", low=1, high=256
    )
    max_message_bytes: int = setting(
        1 << 20, "Longest message accepted from a client.", unit="bytes", low=1024, high=1 << 28
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


@dataclass(frozen=True, slots=True)
class Replay:
    """The frames the agent learns from."""

    replay_capacity: int = setting(
        1_000_000, "Frames kept; the oldest are overwritten.", unit="frames", low=4096, high=2**30
    )
    min_replay: int = setting(
        2_000, "Frames collected before training starts.", unit="frames", low=2, high=2**30
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
        10.0, "Time between copies of trained weights into play.", unit="s", low=0.1, high=3600
    )


@dataclass(frozen=True, slots=True)
class Network:
    """The shape of the network."""

    hidden_sizes: tuple[int, ...] = setting(
        (256, 256, 128), "Width of each hidden layer.", unit="units", low=1, high=16384
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
    weight_decay: float = setting(
        1e-5, "Weight decay of the AdamW optimizer.", unit="rate", low=0, high=1
    )
    gamma: float = setting(0.99, "Worth of a reward one frame later.", unit="factor", low=0, high=1)
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
    gradient_clip: float = setting(
        10.0, "Largest norm of a step's gradient; 0 clips nothing.", unit="norm", low=0, high=1e9
    )
    gradient_accumulation: int = setting(
        1, "Batches whose gradients are averaged into one step.", unit="batches", low=1, high=1024
    )
    continuous_weight: float = setting(
        1.0, "Weight of the continuous controls in the loss.", unit="factor", low=0, high=1000
    )


@dataclass(frozen=True, slots=True)
class Trainer:
    """Where and how hard the learner runs."""

    training: bool = setting(True, "Train from the start (the key t switches it).")
    training_workers: int = setting(
        1,
        "Training threads; one with several steps per sample is the measured choice.",
        unit="threads",
        low=1,
        high=1,
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
    switch_interval_s: float = setting(
        0.0005,
        "How soon a thread that holds Python's lock gives it up.",
        unit="s",
        low=1e-6,
        high=1,
    )


@dataclass(frozen=True, slots=True)
class Fleet:
    """Emulators that the server starts itself."""

    launch: tuple[str, ...] = setting(
        (),
        "Emulators to start, as emulator:game=count: ale:pong=2, gym:CartPole-v1, mame:pong2600. "
        "May be repeated.",
    )
    niceness: int = setting(
        10,
        "How far launched emulators give way to the server and its training.",
        unit="nice",
        low=0,
        high=19,
    )


@dataclass(frozen=True, slots=True)
class Console:
    """What a person sees."""

    plain: bool = setting(False, "Print status lines instead of the dashboard.")
    refresh_s: float = setting(
        0.25, "Time between redraws of the dashboard.", unit="s", low=0.05, high=60
    )
    status_interval_s: float = setting(
        5.0, "Time between status lines where there is no dashboard.", unit="s", low=0.1, high=3600
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
    fleet: Fleet = field(default_factory=Fleet)
    console: Console = field(default_factory=Console)


SECTIONS: dict[str, type[Any]] = {
    "server": Server,
    "run": Run,
    "replay": Replay,
    "policy": Policy,
    "network": Network,
    "learner": Learner,
    "trainer": Trainer,
    "fleet": Fleet,
    "console": Console,
}

_SILENT_UNITS = ("", "path", "port", "number", "rate", "factor", "norm", "nice")  # no measure
_SUFFIXES = {"k": 1_000, "M": 1_000_000, "G": 1_000_000_000}


def from_values(values: Mapping[str, Mapping[str, Any]]) -> Config:
    """Build a checked Config from {section: {setting: value}}; what is absent keeps its default."""
    for section in values:
        if section not in SECTIONS:
            raise ConfigError(_unknown_section(section))
    built = {}
    for section, kind in SECTIONS.items():
        fields = {f.name: f for f in dataclasses.fields(kind)}
        given = values.get(section, {})
        if not isinstance(given, Mapping):
            raise ConfigError(f"[{section}] must be a table of settings, not {given!r}")
        for name in given:
            if name not in fields:
                raise ConfigError(f"unknown setting {name!r} in [{section}]{_hint(name, fields)}")
        built[section] = kind(**{n: _checked(fields[n], v) for n, v in given.items()})
    config = Config(**built)
    _check_together(config)
    return config


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML settings file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the config file {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"the config file {path} is not valid TOML: {error}") from error


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
        "[fleet]",
        'launch = ["ale:breakout=4"]',
        "```",
    ]
    for section, kind in SECTIONS.items():
        lines += ["", f"## [{section}]", "", str(kind.__doc__), ""]
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
    kind = type(default)
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
        raise ConfigError(f"{f.name} = {value!r} must be {_type_name(kind)}")
    if meta["choices"] and value not in meta["choices"]:
        raise ConfigError(f"{f.name} = {value!r} must be one of {', '.join(meta['choices'])}")
    low, high = meta["low"], meta["high"]
    # Written so that NaN, which compares false with everything, is refused too.
    if low is not None and not low <= value <= high:
        raise ConfigError(f"{f.name} = {_shown(value)} is out of range: {_allowed(f)}")
    return value


def _check_together(config: Config) -> None:
    """Refuse values that are each allowed but make no sense together."""
    if config.replay.min_replay > config.replay.replay_capacity // 2:
        raise ConfigError(
            f"min_replay = {config.replay.min_replay} must be at most half of "
            f"replay_capacity = {config.replay.replay_capacity}"
        )


def _add_argument(group: argparse._ArgumentGroup, f: dataclasses.Field[Any]) -> None:
    option = "--" + f.name.replace("_", "-")
    meta = f.metadata
    unit = "" if meta["unit"] in _SILENT_UNITS else f" {meta['unit']}"
    bounds = "" if meta["low"] is None else f"; {_allowed(f)}"
    about = f"{meta['about']} (default: {_shown(f.default) or 'none'}{unit}{bounds})"
    default: Any = f.default
    kind = type(default)
    if kind is bool:
        group.add_argument(option, action=argparse.BooleanOptionalAction, default=None, help=about)
    elif kind is tuple and not default:
        group.add_argument(option, action="append", default=None, help=about, metavar="WHAT")
    elif kind is tuple:
        group.add_argument(option, type=_count_list, default=None, help=about, metavar="N,N,...")
    else:
        parse: Any = {int: _count, float: _number, str: str}[kind]
        metavar = "{" + ",".join(meta["choices"]) + "}" if meta["choices"] else _metavar(f)
        group.add_argument(option, type=parse, default=None, help=about, metavar=metavar)


def _metavar(f: dataclasses.Field[Any]) -> str:
    default: Any = f.default
    return {int: "N", float: "X", str: "TEXT"}[type(default)]


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


def _count_list(text: str) -> tuple[int, ...]:
    return tuple(_count(part) for part in text.split(",") if part)


def _allowed(f: dataclasses.Field[Any]) -> str:
    meta = f.metadata
    if meta["choices"]:
        return ", ".join(meta["choices"])
    if meta["low"] is None:
        return "true or false" if isinstance(f.default, bool) else "text"
    return f"{_shown(meta['low'])} to {_shown(meta['high'])}"


def _shown(value: Any) -> str:
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


def _unknown_section(name: str) -> str:
    homes = [s for s, kind in SECTIONS.items() if name in kind.__dataclass_fields__]
    if homes:
        return f"{name} belongs under [{homes[0]}]"
    return f"unknown section [{name}]{_hint(name, SECTIONS)}"


def _hint(name: str, known: Mapping[str, Any]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(known)}"
