"""A Tempest cabinet without the ROM: its memory, its inputs, and a stand-in for its program."""

from __future__ import annotations

from typing import Any

from lua import Lua

FLIPPER, PULSAR, TANKER, SPIKER, FUSEBALL = range(5)
PLAY, PAUSE, HIGH_SCORE, LEVEL_SELECT, NEXT_TUBE, ZOOM = 0x04, 0x0A, 0x12, 0x16, 0x18, 0x20
GAME, ATTRACT = 0xC0, 0x00
LEVELS = (1, 3, 5, 7, 9, 11, 13, 15, 17, 20, 22, 24, 26, 28, 31, 33, 36, 40, 44, 47, 49, 52, 56)
LEVELS += (60, 63, 65, 73, 81)
FIRE, ZAP = (":BUTTONSP1", "P1 Button 1"), (":BUTTONSP1", "P1 Button 2")
START, COIN = (":IN2", "1 Player Start"), (":IN0", "Coin 1")


class Cabinet:
    """A memory image that tests put things into, and the machine that a game sees of it."""

    def __init__(self) -> None:
        self.ram = bytearray(0x400)
        self.inputs: dict[tuple[str, str], int] = {}
        self.saved = 0
        self.loaded = 0

    # --- what is where ----------------------------------------------------------------------

    def playing(self, *, lane: int = 0, place: int = 0, open_tube: bool = False) -> None:
        """Put a living player on the rim, in the middle of a game."""
        self.ram[0x00], self.ram[0x05] = PLAY, GAME
        self.ram[0x48] = 3
        self.ram[0x51] = lane * 16 + place
        self.ram[0x200], self.ram[0x201], self.ram[0x202] = lane, (lane + 1) % 16, 0x10
        self.ram[0x111] = 0xFF if open_tube else 0
        self.ram[0x148] = 0xE0  # no pulse

    def enemy(
        self, slot: int, kind: int, lane: int, depth: int, *, state: int = 0, angle: int = 0
    ) -> None:
        self.ram[0x283 + slot], self.ram[0x28A + slot] = kind, state
        self.ram[0x2B9 + slot], self.ram[0x2DF + slot] = lane, depth
        self.ram[0x2CC + slot] = angle

    def own_shot(self, slot: int, lane: int, depth: int) -> None:
        self.ram[0x2AD + slot], self.ram[0x2D3 + slot] = lane, depth

    def hostile_shot(self, slot: int, lane: int, depth: int) -> None:
        self.ram[0x2B5 + slot], self.ram[0x2DB + slot] = lane, depth

    def spike(self, lane: int, upper_end: int) -> None:
        self.ram[0x3AC + lane] = upper_end

    def pulse(self, on: bool) -> None:
        self.ram[0x148] = 0x08 if on else 0xE0

    def score(self, points: int) -> None:
        self.ram[0x40:0x43] = bytes.fromhex(f"{points % 1_000_000:06d}")[::-1]

    def tick(self) -> None:
        self.ram[0x03] = (self.ram[0x03] + 1) % 256

    # --- what a game sees -------------------------------------------------------------------

    def machine(self, lua: Lua, game: Any) -> Any:
        """Give the machine as boot.lua completes it, with the game's own names for its inputs."""
        inputs = lua.plain(game[b"inputs"][b"mame"])
        table = self.adapter_machine(lua)
        table[b"press"] = lambda name, value: self.set(*inputs[name], value)

        def release() -> None:
            for port, field in inputs.values():
                self.clear(port, field)

        table[b"release"] = release
        return table

    def adapter_machine(self, lua: Lua) -> Any:
        """Give the machine as an adapter makes it."""
        table = lua.runtime.table()
        for name in ("read", "read_range", "write", "set", "clear", "save", "load"):
            table[name.encode()] = getattr(self, name)
        return table

    def read(self, address: int) -> int:
        return self.ram[int(address)]

    def read_range(self, first: int, last: int) -> bytes:
        return bytes(self.ram[int(first) : int(last) + 1])

    def write(self, address: int, value: float) -> None:
        assert value == int(value)
        self.ram[int(address)] = int(value)

    def set(self, port: bytes, field: bytes, value: int) -> None:
        self.inputs[port.decode(), field.decode()] = int(value)

    def clear(self, port: bytes, field: bytes) -> None:
        self.inputs.pop((port.decode(), field.decode()), None)

    def save(self) -> None:
        self.saved += 1

    def load(self) -> None:
        self.loaded += 1

    def held(self, button: tuple[str, str]) -> bool:
        return bool(self.inputs.get(button))


class Program(Cabinet):
    """A cabinet that runs: attract mode, coin, start, level selection, lives that end, game over.

    It does to the memory what the real program does to it; nothing ever attacks. A life ends after
    ``life_ticks`` ticks of play.
    """

    BOOT_FRAMES = 100
    FRAMES_PER_TICK = 2
    DEATH_TICKS = 10
    PAUSE_TICKS = 20

    def __init__(self, life_ticks: int = 50, lives: int = 2) -> None:
        super().__init__()
        self._life_ticks = life_ticks
        self._lives = lives
        self._frames = 0
        self._left = 0  # ticks until the state ends
        self._before: set[tuple[str, str]] = set()  # buttons held at the last tick
        self._kept: tuple[bytes, int] | None = None
        self.ticks: list[int] = []  # the state at each tick
        self.coins = 0

    def save(self) -> None:
        super().save()
        self._kept = (bytes(self.ram), self._left)

    def load(self) -> None:
        super().load()
        assert self._kept is not None
        self.ram[:], self._left = self._kept

    def frame(self) -> None:
        """Run one frame of the emulator."""
        self._frames += 1
        if self._frames < self.BOOT_FRAMES:
            self.ram[:] = bytes([self._frames % 256]) * len(self.ram)  # a memory test
        elif self._frames == self.BOOT_FRAMES:
            self.ram[:] = bytes(len(self.ram))
            self.ram[0x00] = PAUSE
        elif self._frames % self.FRAMES_PER_TICK == 0:
            self._tick()

    def _tick(self) -> None:
        self.ticks.append(self.ram[0x00])
        pressed = {button for button in (FIRE, START, COIN) if self.held(button)}
        fresh, self._before = pressed - self._before, pressed
        if COIN in fresh:
            self.coins += 1
            self.ram[0x06] += 1
        if self.ram[0x05] == ATTRACT:
            if START in fresh and self.ram[0x06]:
                self._new_game()
        elif self.ram[0x00] == LEVEL_SELECT:
            self._select_level(FIRE in fresh)
        elif self.ram[0x00] == PAUSE:
            self._left -= 1
            if self._left <= 0:
                self.ram[0x00], self._left = PLAY, self._life_ticks
        elif self.ram[0x00] == PLAY:
            self._play()
        elif self.ram[0x00] == HIGH_SCORE:
            self.ram[0x00], self.ram[0x05] = PAUSE, ATTRACT
        self.tick()

    def _new_game(self) -> None:
        self.ram[0x06] -= 1
        self.ram[0x05], self.ram[0x00], self.ram[0x04] = GAME, LEVEL_SELECT, 0x10
        self.ram[0x48], self.ram[0x9F], self.ram[0x127] = self._lives, 0xFF, 4
        self.ram[0x200] = self.ram[0x51] = self.ram[0x50] = 0
        self.score(0)

    def _select_level(self, chosen: bool) -> None:
        turn, self.ram[0x50] = self.ram[0x50], 0
        total = self.ram[0x51] + turn * 8 % 256
        self.ram[0x51] = total % 256
        step = total // 256 - (1 if turn >= 128 else 0)
        self.ram[0x200] = min(max(self.ram[0x200] + step, 0), self.ram[0x127])
        if chosen:
            self.ram[0x9F] = self.ram[0x46] = LEVELS[self.ram[0x200]] - 1
            self._new_life()

    def _new_life(self) -> None:
        level, lives = self.ram[0x9F], self.ram[0x48]
        self.playing(lane=14)
        self.ram[0x48], self.ram[0x9F] = lives, level
        self.ram[0x00], self._left = PAUSE, self.PAUSE_TICKS

    def _play(self) -> None:
        self._left -= 1
        if self.ram[0x201] >= 0x80:
            if self._left <= -self.DEATH_TICKS:
                self._end_life()
            return
        turn, self.ram[0x50] = self.ram[0x50], 0
        turn = turn - 256 if turn >= 128 else turn
        self.ram[0x51] = (self.ram[0x51] - max(-31, min(31, turn))) % 256
        self.ram[0x200] = self.ram[0x51] >> 4
        self.ram[0x201] = (self.ram[0x200] + 1) % 16
        if self._left <= 0:
            self.ram[0x201] = 0x81

    def _end_life(self) -> None:
        self.ram[0x48] -= 1
        if self.ram[0x48]:
            self._new_life()
        else:
            self.ram[0x00] = HIGH_SCORE
