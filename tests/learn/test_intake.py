"""The intake: frames of many rings in one, each once, each linked as where it came from."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from server.learn.intake import Intake, pack
from server.learn.replay import Array, Frames, Layout, Replay
from server.net.wire import START, TERMINAL

LAYOUT = Layout(capacity=8192, observation="float32", values=2, heads=1, controls=1)


class Gateway:
    """A ring that some clients fill; each frame shows its gateway, client and number."""

    def __init__(self, number: int, clients: int, seed: int) -> None:
        self.replay = Replay.in_memory(LAYOUT)
        self.number = number
        self.dice = random.Random(seed)
        self.last = [-1] * clients
        self.counts = [0] * clients
        self.cursor = 0

    def play(self, turns: int) -> None:
        for _ in range(turns):
            playing = [c for c in range(len(self.last)) if self.dice.random() < 0.8]
            if not playing:
                continue
            flags = []
            for client in playing:
                ends = self.counts[client] % 7 == 6
                flags.append(TERMINAL if ends else START if self.last[client] < 0 else 0)
            for client in playing:  # a human at the stick: what was done is known one frame later
                if self.last[client] >= 0 and self.dice.random() < 0.3:
                    done = 1000 + self.counts[client]
                    self.replay.correct(self.last[client], [done], np.ones(1, np.float32), 3)
            rows = [[self.number * 100 + client, self.counts[client]] for client in playing]
            first = self.replay.append(
                Frames(
                    np.array(rows, np.float32).reshape(-1, 2),
                    [[self.counts[client] % 5] for client in playing],
                    np.zeros((len(playing), 1), np.float32),
                    [float(self.counts[client]) for client in playing],
                    flags,
                    [0] * len(playing),
                    self.counts[0],
                    [self.last[client] for client in playing],
                )
            )
            for row, client in enumerate(playing):
                self.last[client] = -1 if flags[row] == TERMINAL else first + row
                self.counts[client] += 1

    def ship(self, intake: Intake, *, lost_ack: bool = False) -> None:
        stop = min(self.replay.head, self.cursor + self.dice.randrange(1, 300))
        shipment = pack(self.replay, self.cursor, stop)
        assert shipment is not None
        expected = intake.take(f"stream-{self.number}", shipment)
        if not lost_ack:
            self.cursor = expected


def transitions(replay: Replay) -> dict[tuple[float, float], tuple[Any, ...]]:
    """Every linked frame by what it shows: its action, its source, and what follows it."""
    head = replay.head
    index = np.arange(replay.oldest, head)
    index = index[replay.linked(index)]
    got = replay.gather(index, n_step=1, gamma=0.5)
    rows = zip(
        got.observation.tolist(),
        got.choice.tolist(),
        got.continuous.tolist(),
        got.source.tolist(),
        got.reward.tolist(),
        got.discount.tolist(),
        got.next_observation.tolist(),
        strict=True,
    )
    found = {tuple(row[0]): tuple(map(str, row[1:])) for row in rows}
    assert len(found) == len(index)  # none is there twice
    return found


@pytest.mark.parametrize("seed", range(4))
def test_every_frame_arrives_once_with_its_action_and_its_links(seed: int) -> None:
    dice = random.Random(seed)
    gateways = [Gateway(number, 3, seed * 10 + number) for number in range(3)]
    ring = Replay.in_memory(LAYOUT)
    intake = Intake(ring)
    for _ in range(120):
        gateway = dice.choice(gateways)
        gateway.play(dice.randrange(8))
        if gateway.cursor < gateway.replay.head:
            gateway.ship(intake, lost_ack=dice.random() < 0.3)
            ring.check_valid()
    for gateway in gateways:
        while gateway.cursor < gateway.replay.head:
            gateway.ship(intake)
    assert intake.repeated > 0
    assert intake.missing == 0
    assert ring.head == intake.frames == sum(gateway.replay.head for gateway in gateways)
    expected: dict[Any, Any] = {}
    for gateway in gateways:
        expected |= transitions(gateway.replay)
    assert transitions(ring) == expected
    assert len(expected) > 500


def test_rings_that_go_round_stay_sound_and_what_was_skipped_is_counted() -> None:
    gateways = [Gateway(number, 40, number) for number in range(2)]
    ring = Replay.in_memory(LAYOUT)
    intake = Intake(ring)
    for _ in range(60):
        for gateway in gateways:
            gateway.play(16)
            while gateway.cursor < gateway.replay.head:
                gateway.ship(intake)
    assert ring.head > 3 * LAYOUT.capacity
    ring.check_valid()
    late = gateways[0]
    late.play(400)  # more than its ring holds, unshipped
    missed = late.replay.oldest - late.cursor
    assert missed > 0
    assert pack(late.replay, late.cursor, late.cursor + 10) is None
    late.cursor = late.replay.oldest
    late.ship(intake)
    assert intake.missing == missed
    ring.check_valid()


def filled(replay: Replay, count: int) -> None:
    """Append frames of one client, each showing its own index."""
    for start in range(0, count, 1000):
        first = replay.head
        rows = np.arange(first, first + min(1000, count - start))
        size = len(rows)
        shown = np.repeat(rows[:, None], 2, axis=1).astype(np.float32)
        chosen, nothing = (rows[:, None] % 1000).astype(np.int16), np.zeros((size, 1), np.float32)
        zeros = [0] * size
        replay.append(
            Frames(shown, chosen, nothing, [0.0] * size, zeros, zeros, 1, (rows - 1).tolist())
        )


def test_a_shipment_stays_whole_while_the_ring_goes_on() -> None:
    replay = Replay.in_memory(LAYOUT)
    filled(replay, 2 * LAYOUT.capacity)
    first = replay.oldest
    shipment = pack(replay, first, first + 500)
    assert shipment is not None
    filled(replay, LAYOUT.capacity)  # before anybody has looked at what is to be sent
    index = np.arange(first, first + 500)
    assert shipment.frames.observation[:, 0].tolist() == index.tolist()
    assert shipment.frames.choice[:, 0].tolist() == (index % 1000).tolist()


class Overtaken(Replay):
    """A ring whose writer comes by while settled actions are read."""

    def column(self, name: str) -> Array:
        if name == "choice":
            filled(self, 10)
        return super().column(name)


def test_an_action_that_the_writer_overtook_is_not_sent_as_settled() -> None:
    replay = Overtaken.in_memory(LAYOUT)
    filled(replay, 2 * LAYOUT.capacity)
    first = replay.oldest + 10
    shipment = pack(replay, first, first + 20)
    assert shipment is not None
    assert shipment.settled.which.tolist() == [] == shipment.settled.source.tolist()
    first = replay.oldest + 20
    shipment = pack(replay, first, first + 20)
    assert shipment is not None
    assert shipment.settled.which.tolist() == [first - 1]
    assert shipment.settled.choice.tolist() == [[(first - 1) % 1000]]


def test_a_ring_that_was_set_back_gives_its_numbers_to_new_frames() -> None:
    ring = Replay.in_memory(LAYOUT)
    intake = Intake(ring)
    before, after = Replay.in_memory(LAYOUT), Replay.in_memory(LAYOUT)
    filled(before, 300)
    for first, stop in ((0, 100), (100, 200), (200, 300)):
        shipment = pack(before, first, stop)
        assert shipment is not None
        intake.take("ring", shipment)
    assert intake.resume("unknown", 5) is None
    assert intake.resume("ring", 300) == 300
    filled(after, 400)  # the same up to 150, where a power failure has set it back
    assert intake.resume("ring", 150) == 150
    shipment = pack(after, 150, 400)
    assert shipment is not None
    assert intake.take("ring", shipment) == 400
    assert ring.head == 300 + 250
    # The first of them follows the frame that both have, not one whose number came again.
    links = ring.column("prev")[300:303].tolist()
    assert links == [149, 300, 301]
    assert (intake.missing, intake.repeated) == (0, 0)
