"""Puts live settings in force: set, stepped, ramped, undone, journaled, restored at a restart."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from server.controls import Command, Controls, Verb
from server.dials import CLIENT, NATURAL, Dial, DialError, Value, find
from server.journal import Change, Chosen, Journal, Kind, Ramp, new_change
from server.stats import DialView

VERBS = (Verb.SET, Verb.DOWN, Verb.UP, Verb.SWITCH, Verb.UNDO)

_MOST_TIMES = 32  # changes that can be marked in graphs


class Steering:
    """Owns what people have chosen; what follows from it is published as one Controls."""

    def __init__(
        self,
        *,
        dials: Mapping[str, Dial],
        natural: Callable[[str], Value | None],
        frames: Callable[[], int],
        publish: Callable[[Controls], None],
        push: Callable[[str, Value], None],
        on_change: Callable[[Change, str], None],
        on_problem: Callable[[str], None],
    ) -> None:
        self._dials = dials
        self._natural = natural  # value of a live setting that nobody has chosen
        self._frames = frames  # of the whole run
        self._publish = publish
        self._push = push  # a setting to the scripts of all games
        self._on_change = on_change
        self._on_problem = on_problem
        self._journal: Journal | None = None
        self._chosen: dict[str, Chosen] = {}
        self._undoable: list[Change] = []
        self.changed_s: deque[float] = deque(maxlen=_MOST_TIMES)  # of the newest changes
        self.controls = self._resolved()

    # --- the run's memory -------------------------------------------------------------------

    def open(self, journal: Journal) -> None:
        """Go on where the run was: every choice of the journal is in force again."""
        self._journal = journal
        if journal.damaged:
            lines = ", ".join(map(str, journal.damaged))
            self._on_problem(f"the journal is damaged: left out is what stood in line {lines}")
        for change in journal.changes:
            if change.kind is Kind.DEED or not self._known(change):
                continue
            self._remember(change)
            self._chosen[change.name] = change.new
        for name, chosen in self._chosen.items():
            try:
                self._apply_client(name, chosen)
            except DialError as error:
                self._on_problem(str(error))
        self._refresh()

    def close(self) -> None:
        """Let go of the journal."""
        if self._journal is not None:
            self._journal.close()

    def restored(self) -> str:
        """Say what a person has chosen, in words; empty where all is natural."""
        return ", ".join(
            f"{name} {self._shown(find(self._dials, name), chosen)}"
            for name, chosen in self._chosen.items()
            if chosen is not None and chosen != self._natural(name)
        )

    # --- what people ask for ----------------------------------------------------------------

    def obey(self, command: Command, who: str) -> str:
        """Do what was asked, and say what changed; a DialError says why it cannot be."""
        if command.verb is Verb.UNDO:
            return self._undo(who)
        dial = find(self._dials, command.name)
        chosen: Chosen
        if command.verb is Verb.SET:
            chosen = self._asked(dial, command)
        elif command.verb is Verb.SWITCH:
            if dial.kind is not bool:
                raise DialError(f"{dial.name} is no switch: set it to {dial.allowed()}")
            chosen = not self.value(dial.name)
        else:
            if not dial.step and not dial.factor:
                raise DialError(f"{dial.name} has no steps: set it to {dial.allowed()}")
            value = self.value(dial.name)
            chosen = dial.stepped(value or 0, -1 if command.verb is Verb.DOWN else 1)
            if chosen == value and self._chosen.get(dial.name) is None:
                return f"{dial.name} stays {dial.shown(value)}"
        return self._choose(dial, chosen, who, Kind.SET)

    def note(self, name: str, old: Chosen, new: Chosen, who: str, text: str) -> None:
        """Journal something that was done once and cannot be undone."""
        self._write(new_change(self._frames(), name, old, new, who, Kind.DEED), text)

    def tend(self) -> None:
        """Move what is on its way over frames."""
        if any(isinstance(chosen, Ramp) for chosen in self._chosen.values()):
            self._refresh()

    # --- what is in force -------------------------------------------------------------------

    def value(self, name: str) -> Value | None:
        """Give the value in force."""
        chosen = self._settled(name)
        return self._natural(name) if chosen is None else chosen

    def views(self) -> tuple[DialView, ...]:
        """Give what people see of every live setting."""
        named = [find(self._dials, name) for name in self._chosen if name not in self._dials]
        return tuple(self._view(dial) for dial in (*self._dials.values(), *named))

    def _view(self, dial: Dial) -> DialView:
        chosen = self._chosen.get(dial.name)
        natural = self._natural(dial.name)
        return DialView(
            name=dial.name,
            value=dial.shown(self.value(dial.name))
            if natural is not None or chosen is not None
            else "unset",
            chosen="" if chosen is None or chosen == natural else self._shown(dial, chosen),
            natural=dial.shown(natural) if natural is not None else "unset",
            source=dial.natural,
            unit=dial.unit,
            allowed=dial.allowed(),
            about=dial.about,
        )

    def _asked(self, dial: Dial, command: Command) -> Chosen:
        if command.value.strip().lower() == NATURAL:
            if command.over:
                raise DialError(f"{dial.name} goes back to natural at once, not over frames")
            return self._natural(dial.name) if dial.kind is bool else None
        value = dial.parse(command.value)
        if not command.over:
            return value
        if dial.kind is bool or dial.kind is str:
            raise DialError(f"{dial.name} has nothing between its values: set it without --over")
        start = float(self.value(dial.name) or 0.0)
        return Ramp(start, float(value), self._frames(), command.over)

    def _undo(self, who: str) -> str:
        if not self._undoable:
            raise DialError("there is no change to undo")
        last = self._undoable[-1]
        return self._choose(find(self._dials, last.name), last.old, who, Kind.UNDO)

    def _choose(self, dial: Dial, new: Chosen, who: str, kind: Kind) -> str:
        old = self._chosen.get(dial.name)
        if dial.kind is bool and old is None:
            old = self._natural(dial.name)  # a switch is on or off, whoever turned it
        if new == old and kind is Kind.SET:
            return f"{dial.name} stays {self._shown(dial, new)}"
        change = new_change(self._frames(), dial.name, old, new, who, kind)
        self._apply_client(dial.name, new)  # may refuse: before anything is noted
        self._remember(change)
        self._chosen[dial.name] = new
        text = f"{dial.name} {self._shown(dial, old)} → {self._shown(dial, new)}"
        text = text.replace("_", " ") + (" (undone)" if kind is Kind.UNDO else "")
        self._write(change, text)
        self._refresh()
        return text

    def _remember(self, change: Change) -> None:
        """Keep what undo needs: an undo takes the newest change away, all else adds one."""
        if change.kind is not Kind.UNDO:
            self._undoable.append(change)
        elif self._undoable:
            self._undoable.pop()

    def _write(self, change: Change, text: str) -> None:
        try:
            if self._journal is not None:
                self._journal.write(change)
        except (OSError, ValueError) as error:  # a full disk must not take the controls away
            self._on_problem(f"the journal cannot be written, {change.name} is not kept: {error}")
        self.changed_s.append(change.time_s)
        self._on_change(change, text)

    def _refresh(self) -> None:
        controls = self._resolved()
        if controls != self.controls:
            self.controls = controls
            self._publish(controls)

    def _resolved(self) -> Controls:
        chosen: dict[str, Any] = {name: self._settled(name) for name in self._dials}
        for name, dial in self._dials.items():
            if dial.kind is bool and chosen[name] is None:
                chosen[name] = bool(self._natural(name))
        return Controls(**chosen)

    def _settled(self, name: str) -> Value | None:
        """Give what was chosen; a ramp stands where the frames are now."""
        chosen = self._chosen.get(name)
        if not isinstance(chosen, Ramp):
            return chosen
        at = chosen.at(self._frames())
        return round(at) if self._dials[name].kind is int else at

    def _shown(self, dial: Dial, chosen: Chosen) -> str:
        if isinstance(chosen, Ramp):
            until = chosen.from_frame + chosen.frames
            return f"{dial.shown(dial.kind(chosen.end))} at frame {until:,}"
        return dial.shown(chosen)

    def _apply_client(self, name: str, chosen: Chosen) -> None:
        if not name.startswith(CLIENT):
            return
        value = self._natural(name) if chosen is None else chosen
        if value is not None and not isinstance(value, Ramp):
            self._push(name.removeprefix(CLIENT), value)

    def _known(self, change: Change) -> bool:
        """Say whether a change of the journal can be in force here, and tell why not."""
        try:
            dial = find(self._dials, change.name)
            for chosen in (change.old, change.new):
                value = chosen.end if isinstance(chosen, Ramp) else chosen
                if value is not None:
                    dial.check(value)
        except (DialError, ValueError, TypeError) as error:
            self._on_problem(f"a change in the journal is left out: {error}")
            return False
        return True
