"""The first version of a game file, written from what was found; it plays at once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tools.exploring.effect import Way
from tools.exploring.inventory import Control, Input, grouped
from tools.exploring.number import Number
from tools.exploring.plan import PRESS_FRAMES, Press, lua
from tools.exploring.ram import Byte, Kind
from tools.exploring.report import QUICK, Findings

_FRAME_SKIP = 4
_NEAR = 2  # bytes between the scores of two players
_ONE_DIGIT = 9  # up to here a byte may be decimal digits or not
_LONGEST_FRAMES = 7200  # of an episode that nothing else ends: two minutes

_DECIMAL = """\
--- Two decimal digits in one byte.
local function decimal(byte)
  return math.floor(byte / 16) * 10 + byte % 16
end
"""
_DOUBTS = """\
-- A guess. Is it yours, does it count for you? Is it in decimal digits (does 0x10 follow 0x09)?"""
_APPLY = """\
      for place, control in ipairs(CONTROLS) do
        for choice, input in ipairs(control.inputs) do
          machine.press(input, action.discrete[place] == choice and 1 or 0)
        end
      end"""


@dataclass(frozen=True, slots=True)
class Start:
    """How the game is begun after power-on."""

    presses: tuple[Press, ...]
    ready: int  # the frame from which it can be played


def game_file(name: str, findings: Findings, start: Start, player: int) -> str:
    """Write the Lua file."""
    inputs = useful_inputs(findings, player)
    controls = grouped(inputs)
    buttons = [control for control in controls if not control.analog]
    dials = [control for control in controls if control.analog]
    scores, lives = _chosen_scores(findings), _chosen_lives(findings)
    blocks = [
        _comment(name, findings, player),
        _constants(findings, start, inputs, buttons, lives),
        _DECIMAL if any(score.bcd for score in scores) else "",
        _score(findings, scores),
        _table(name, findings, buttons, dials, lives),
    ]
    return "\n".join(block for block in blocks if block)


def start_file(settings: dict[str, Any]) -> str:
    """Write the TOML file: how the game is started."""
    rows = [f"{name} = {_toml(value)}" for name, value in settings.items()]
    return "\n".join(["# How this game is started under MAME.", "[mame]", *rows, ""])


def best_player(findings: Findings) -> int:
    """Give the player whose inputs move the most; of equals, the first."""
    places = {c for c, byte in enumerate(findings.study.bytes) if byte.kind is Kind.PLACE}
    moved: dict[int, set[int]] = {found.player: set() for found in findings.probed}
    touched: dict[int, int] = dict.fromkeys(moved, 0)
    for found in findings.study.effects:
        player = findings.probed[found.control].player
        touched[player] += 1
        if found.column in places and found.way is not Way.CHANGES and found.delay <= QUICK:
            moved[player].add(found.column)
    return max(sorted(moved), key=lambda p: (len(moved[p]), bool(touched[p])))


def useful_inputs(findings: Findings, player: int) -> list[Input]:
    """Give a player's inputs that do something to the game; all of them where none does."""
    own = [found for found in findings.probed if found.player == player]
    copies = {c for c, byte in enumerate(findings.study.bytes) if byte.kind is Kind.INPUT}
    doing = {
        findings.probed[found.control]
        for found in findings.study.effects
        if found.column not in copies
    }
    return [found for found in own if found in doing] or own


def _chosen_scores(findings: Findings) -> list[Number]:
    """Take the likeliest score, and a sure one beside it: the opponent's, if there is one."""
    sure = [number for number in findings.study.scores if number.sure]
    own = [number for number in sure if not number.idle_changes] or sure or findings.study.scores
    if not own:
        return []
    others = [replace(n, bcd=own[0].bcd) for n in sure if _are_rivals(n, own[0])]
    return [own[0], *others[:1]]


def _are_rivals(one: Number, other: Number) -> bool:
    """Say whether two numbers are near each other and written alike, as two players' scores are."""
    apart = min(abs(a - b) for a in one.columns for b in other.columns)
    return 0 < apart <= _NEAR and (one.bcd == other.bcd or one.high <= _ONE_DIGIT)


def _chosen_lives(findings: Findings) -> Number | None:
    return next((number for number in findings.study.lives if number.sure), None)


# --- the parts of the file ----------------------------------------------------------------------


def _comment(name: str, findings: Findings, player: int) -> str:
    lines = [
        f"--- {name}: a first version, written by exploring {findings.title}.",
        "--",
        "-- It plays at once: the agent sees the whole RAM, and is rewarded with what it gains of",
        "-- what looks like the score. docs/adding-a-game.md makes it better. What was found:",
    ]
    for number in findings.study.scores:
        lines.append(f"--   {_names(findings, number)}  score? {number.describe()}")
    for number in findings.study.lives:
        lines.append(f"--   {_names(findings, number)}  lives? {number.describe()}")
    for byte in findings.study.bytes:
        if byte.kind is Kind.CLOCK:
            lines.append(f"--   0x{byte.address:02X}  clock, {byte.detail}")
        elif byte.kind is Kind.PLACE and byte.copy_of is None:
            about = f"place, {byte.low} to {byte.high}{_movers(findings, byte)}"
            lines.append(f"--   0x{byte.address:02X}  {about}")
    others = sorted({found.player for found in findings.probed} - {player})
    if others:
        lines.append(
            f"-- It plays with the inputs of player {player}; --player {others[0]} tries others."
        )
    return "\n".join(lines) + "\n"


def _movers(findings: Findings, byte: Byte) -> str:
    movers = [f"{found.name}: {way.value}" for found, way in findings.movers_of(byte)]
    return f" ({', '.join(movers)})" if movers else ""


def _names(findings: Findings, number: Number) -> str:
    addresses = [findings.study.bytes[column].address for column in number.columns]
    return " ".join(f"0x{address:02X}" for address in addresses)


def _constants(
    findings: Findings,
    start: Start,
    inputs: Sequence[Input],
    buttons: Sequence[Control],
    lives: Number | None,
) -> str:
    named = {_plain(found): found for found in (*inputs, *(p.button for p in start.presses))}
    width = max(map(len, named))
    rows = [f"  {name:<{width}} = {lua([i.port, i.name])}," for name, i in named.items()]
    lines = ["local INPUTS = {", *rows, "}"]
    if buttons:
        lines.append("-- One choice of each control, or none of them, at every decision.")
        lines += ["local CONTROLS = {", *map(_control, buttons), "}"]
    presses = [[press.frame, _plain(press.button)] for press in start.presses]
    lines.append(f"local START = {lua(presses)} -- what is pressed after power-on, and when")
    lines.append(f"local HELD, READY = {PRESS_FRAMES}, {start.ready} -- frames")
    if lives is not None:
        lines.append(f"local LIVES = {_names(findings, lives)}")
    lines.append(f"local LONGEST = {_LONGEST_FRAMES} -- frames of an episode")
    return "\n".join(lines) + "\n"


def _control(control: Control) -> str:
    inputs = lua([_plain(found) for found in control.inputs])
    choices = len(control.inputs) + 1
    return f'  {{ name = "{control.name}", choices = {choices}, inputs = {inputs} }},'


def _plain(found: Input) -> str:
    """Give an input a name that is good in Lua: 'left', 'button_1'."""
    name = re.sub(r"[^a-z0-9]+", "_", re.sub(r"^P\d+ ", "", found.name).lower()).strip("_")
    return name if name and not name[0].isdigit() else f"input_{name}"


def _score(findings: Findings, scores: Sequence[Number]) -> str:
    lines = ["local function score(machine)"]
    if not scores:
        lines += ["  return 0 -- nothing that looks like a score was found", "end"]
        return "\n".join(lines) + "\n"
    terms = " - ".join(_number(findings, number) for number in scores)
    lines += [f"  return {terms}", "end"]
    return "\n".join([_DOUBTS, *lines]) + "\n"


def _number(findings: Findings, number: Number) -> str:
    """Write how a number is read: '100 * decimal(machine.read(0xCC)) + decimal(...)'."""
    base, terms = 100 if number.bcd else 256, []
    for place, column in enumerate(reversed(number.columns)):
        byte = f"machine.read(0x{findings.study.bytes[column].address:02X})"
        byte = f"decimal({byte})" if number.bcd else byte
        terms.append(f"{base**place} * {byte}" if place else byte)
    text = " + ".join(reversed(terms))
    return f"({text})" if len(terms) > 1 else text


def _table(
    name: str,
    findings: Findings,
    buttons: Sequence[Control],
    dials: Sequence[Control],
    lives: Number | None,
) -> str:
    size = sum(last - first + 1 for first, last in findings.ram)
    ranges = [f"machine.read_range(0x{a:02X}, 0x{b:02X})" for a, b in findings.ram]
    discrete = "    discrete = CONTROLS,\n" if buttons else ""
    continuous = "".join(_dial(control) for control in dials)
    if continuous:
        continuous = f"    continuous = {{\n{continuous}    }},\n"
    apply = [_APPLY] if buttons else []
    for place, control in enumerate(dials, start=1):
        value = f"math.floor(action.continuous[{place}] + 0.5)"
        apply.append(f'      machine.press("{_plain(control.inputs[0])}", {value})')
    over = '      if machine.read(LIVES) == 0 then\n        return "terminal"\n      end\n'
    return _GAME.format(
        name=name,
        skip=_FRAME_SKIP,
        size=size,
        read=" .. ".join(ranges),
        controls=discrete + continuous,
        apply="\n".join(apply),
        over=over if lives is not None else "",
    )


def _dial(control: Control) -> str:
    first = control.inputs[0]
    return f'      {{ name = "{control.name}", low = {first.low}, high = {first.high} }},\n'


def _toml(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    plain = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{plain}"'


_GAME = """\
return {{
  name = "{name}",
  frame_skip = {skip},
  inputs = {{ mame = INPUTS }},
  observation = {{
    dtype = "uint8",
    shape = {{ {size} }},
    read = function(machine)
      return {read}
    end,
  }},
  actions = {{
{controls}    apply = function(machine, action)
{apply}
    end,
    release = function(machine)
      machine.release()
    end,
  }},
  rewards = {{ "score" }},
  reward = function(machine, state)
    local now = score(machine)
    local earned = now - state.score
    state.score = now
    return {{ earned }}
  end,
  episode = {{
    ready = function(machine, frame)
      for _, press in ipairs(START) do
        if frame == press[1] or frame == press[1] + HELD then
          machine.press(press[2], frame == press[1] and 1 or 0)
        end
      end
      return frame >= READY
    end,
    begin = function(machine, state)
      state.score, state.frames = score(machine), 0
    end,
    over = function(machine, state)
{over}      state.frames = state.frames + 1
      return state.frames >= LONGEST and "truncated" or nil
    end,
  }},
  info = function(machine)
    return {{ {{ "score", score(machine) }} }}
  end,
}}
"""
