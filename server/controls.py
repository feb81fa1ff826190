"""What people change while the server runs: commands, and the one value that they lead to."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Verb(Enum):
    """The kinds of things a person can ask for."""

    STOP = "stop"
    SAVE = "save"
    SET = "set"  # a live setting to a value, at once or over some frames
    DOWN = "down"  # a live setting by one step
    UP = "up"
    SWITCH = "switch"  # a live setting that is on or off
    UNDO = "undo"  # the newest change of a live setting
    SYNC = "sync"  # trained weights into play
    TARGET = "target"  # the target network equal to the one that trains
    FLUSH = "flush"  # the replay
    EVAL = "eval"  # every agent, now


@dataclass(frozen=True, slots=True)
class Command:
    """One thing a person asks for, by a key or through the control socket."""

    verb: Verb
    name: str = ""  # of a live setting
    value: str = ""  # to set, as typed; "natural" gives it back to its schedule
    over: int = 0  # frames over which it goes there; 0: at once


@dataclass(frozen=True, slots=True)
class Controls:
    """All live settings at one moment; None means natural, what the schedule or the start says."""

    training: bool = True
    greedy: bool = False
    expert: bool = False  # every proposal of the expert is followed, nothing is explored
    exploring: bool = True
    verbose: bool = False
    epsilon: float | None = None
    expert_ratio: float | None = None
    learning_rate: float | None = None
    steps_per_sample: int | None = None
    max_replay_ratio: float | None = None
    n_step: int | None = None
    heartbeat_s: float | None = None
