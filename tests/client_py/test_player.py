"""The lockstep loop over a toy game: flags, rewards, reconnects, stops."""

from __future__ import annotations

import socket
import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from client_py import player as player_module
from client_py.player import DONE, GAVE_UP, REFUSED, GameError, Player, Step
from server.net import wire
from server.net.wire import START, TERMINAL, TRUNCATED, Choice
from tests.client_py.peer import HELLO, SPACES, GoneError, Line, Peer

pytestmark = pytest.mark.timeout(20)


class Toy:
    """Ends after three decisions, the odd episodes by truncation; its reward counts decisions."""

    def __init__(self) -> None:
        self.spaces = SPACES
        self.seeds: list[int] = []
        self.choices: list[Choice] = []
        self.closed = False
        self._count = 0

    def reset(self, seed: int) -> bytes:
        self.seeds.append(seed)
        self._count = 0
        return b"\0\0\0\0"

    def step(self, choice: Choice) -> Step:
        self.choices.append(choice)
        self._count += 1
        last = self._count == 3
        odd = len(self.seeds) % 2 == 1
        info = {"score": self._count // 2}
        observation = bytes([self._count] * 4)
        return Step(observation, [float(self._count)], last and not odd, last, info)

    def close(self) -> None:
        self.closed = True


class Voice:
    """Keeps what the player says."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.warned: list[str] = []


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(player_module, "FIRST_WAIT_S", 0.01)
    monkeypatch.setattr(player_module, "_NAP_S", 0.005)


def make(
    game: Any, port: int, voice: Voice, *, others: tuple[int, ...] = (), **options: Any
) -> Player:
    options = {"timeout_s": 5.0, "seed": 7, "episodes": 2, **options}
    return Player(
        game,
        servers=[("127.0.0.1", number) for number in (port, *others)],
        hello=HELLO,
        say=voice.said.append,
        warn=voice.warned.append,
        **options,
    )


def test_flags_rewards_and_sequence_over_episode_ends() -> None:
    seen: list[Any] = []
    game, voice = Toy(), Voice()

    def script(line: Line) -> None:
        line.greet()
        seen.extend(line.play())

    with Peer(script) as peer:
        assert make(game, peer.port, voice).run() == DONE
    frames, bye = seen[:-1], seen[-1]
    assert isinstance(bye, wire.Bye)
    assert [f.sequence for f in frames] == list(range(8))
    assert [f.flags for f in frames] == [START, 0, 0, TRUNCATED, START, 0, 0, TERMINAL]
    assert [f.rewards for f in frames] == [[0.0], [1.0], [2.0], [3.0]] * 2
    assert [f.observation[0] for f in frames] == [0, 1, 2, 3] * 2
    assert frames[3].info == {"score": 1} and frames[7].info == {"score": 1}
    assert game.seeds == [7, 8] and game.closed
    assert len(game.choices) == 6  # the answers to the last frames are not carried out
    assert [line.split(",")[0] for line in voice.said[1:]] == [
        "episode 1: return 6",
        "episode 2: return 6",
    ]
    assert len(voice.said) == 3 and not voice.warned


def test_info_is_sent_when_it_changed_and_at_the_end() -> None:
    seen: list[Any] = []

    def script(line: Line) -> None:
        line.greet()
        seen.extend(line.play())

    with Peer(script) as peer:
        make(Toy(), peer.port, Voice(), episodes=1).run()
    assert [f.info for f in seen[:-1]] == [None, {"score": 0}, {"score": 1}, {"score": 1}]


def test_an_experts_proposal_rides_in_the_frame() -> None:
    class Advised(Toy):
        def expert(self) -> Choice | None:
            return Choice([2], []) if self._count else None

    seen: list[Any] = []

    def script(line: Line) -> None:
        line.greet()
        seen.extend(line.play())

    with Peer(script) as peer:
        make(Advised(), peer.port, Voice(), episodes=1).run()
    assert [f.expert for f in seen[:-1]] == [None, *[Choice([2], [])] * 3]


class Shown(Toy):
    """A toy with a screen, which shows how many decisions it has made."""

    def picture(self) -> wire.Preview | None:
        return wire.Preview(2, 1, bytes([len(self.choices)] * 6))


def kinds(seen: list[Any]) -> list[str]:
    return [type(message).__name__ for message in seen]


def test_a_picture_goes_before_every_so_many_frames() -> None:
    seen: list[Any] = []

    def script(line: Line) -> None:
        line.greet(preview_every=3)
        seen.extend(line.play())

    with Peer(script) as peer:
        assert make(Shown(), peer.port, Voice()).run() == DONE
    shown = ["Preview", "Frame", "Frame", "Frame"]
    assert kinds(seen) == [*shown, *shown, "Preview", "Frame", "Frame", "Bye"]
    pictures = [message.pixels[0] for message in seen if isinstance(message, wire.Preview)]
    assert pictures == [0, 3, 5]  # as many decisions as there were when the frame was sent
    assert [f.sequence for f in seen if isinstance(f, wire.Frame)] == list(range(8))


@pytest.mark.parametrize(
    "settings", [{}, {"preview_every": 0}, {"preview_every": -1}, {"preview_every": "often"}]
)
def test_without_being_asked_there_are_no_pictures(settings: dict[str, Any]) -> None:
    seen: list[Any] = []

    def script(line: Line) -> None:
        line.greet(**settings)
        seen.extend(line.play())

    with Peer(script) as peer:
        assert make(Shown(), peer.port, Voice()).run() == DONE
    assert "Preview" not in kinds(seen)


def test_an_action_may_ask_for_pictures_and_the_next_welcome_for_none() -> None:
    seen: list[Any] = []

    def asks(line: Line) -> None:
        line.greet("old")
        seen.append(line.receive())
        line.send(wire.encode_action(0, [0], [], 0, {"preview_every": 1}))
        seen.extend(line.receive() for _ in range(2))  # and is gone before it answers

    def does_not(line: Line) -> None:
        line.greet("old", resumed=True, preview_every=0)
        seen.extend(line.play())

    with Peer(asks, does_not) as peer:
        assert make(Shown(), peer.port, Voice(), episodes=1).run() == DONE
    assert kinds(seen) == ["Frame", "Preview", "Frame", "Frame", "Frame", "Frame", "Bye"]


def test_a_game_that_cannot_be_drawn_says_so_once_and_plays_on() -> None:
    class Dark(Toy):
        def picture(self) -> wire.Preview | None:
            raise GameError("there is no light")

    seen: list[Any] = []

    def script(line: Line) -> None:
        line.greet(preview_every=1)
        seen.extend(line.play())

    voice = Voice()
    with Peer(script) as peer:
        assert make(Dark(), peer.port, voice).run() == DONE
    assert kinds(seen) == ["Frame"] * 8 + ["Bye"]
    assert voice.warned == ["no pictures for the server: there is no light"]


def test_resumed_session_gets_the_open_frame_again() -> None:
    seen: list[Any] = []

    def dies(line: Line) -> None:
        line.greet("old")
        seen.extend(line.play(2))
        seen.append(line.receive())  # and is gone before it answers

    def resumes(line: Line) -> None:
        assert line.greet("old", resumed=True) == replace(HELLO, resume="old")
        seen.extend(line.play())

    voice = Voice()
    with Peer(dies, resumes) as peer:
        assert make(Toy(), peer.port, voice, episodes=1).run() == DONE
    assert [(f.sequence, f.flags) for f in seen[:-1]] == [
        (0, START),
        (1, 0),
        (2, 0),
        (2, 0),
        (3, TRUNCATED),
    ]
    assert seen[2] == seen[3]
    assert len(voice.warned) == 1 and "lost the server" in voice.warned[0]


def test_a_session_that_is_not_resumed_cuts_the_episode() -> None:
    seen: list[Any] = []

    def dies(line: Line) -> None:
        line.greet("old")
        line.play(2)

    def forgot(line: Line) -> None:
        assert line.greet("new").resume == "old"
        seen.extend(line.play())

    with Peer(dies, forgot) as peer:
        assert make(Toy(), peer.port, Voice(), episodes=1).run() == DONE
    assert [(f.flags, f.rewards) for f in seen[:-1]] == [(START, [0.0]), (TRUNCATED, [3.0])]


@pytest.mark.parametrize("once", [False, True])
def test_a_client_of_several_servers_goes_to_another_when_its_own_is_gone(once: bool) -> None:
    seen: list[Any] = []
    voice = Voice()

    def dies(line: Line) -> None:
        line.greet("old")
        line.play(2)
        first._listener.close()

    def takes_over(line: Line) -> None:
        line.greet("new")
        seen.extend(line.play())

    with Peer(dies) as first, Peer(takes_over) as second:
        player = make(Toy(), first.port, voice, others=(second.port,), episodes=1, once=once)
        assert player.run() == DONE
    assert [(f.flags, f.rewards) for f in seen[:-1]] == [(START, [0.0]), (TRUNCATED, [3.0])]
    assert "trying 2 servers" in voice.warned[0]


def test_a_full_server_sends_a_client_to_the_next_and_only_all_of_them_refuse_it() -> None:
    def full(line: Line) -> None:
        line.receive()
        line.send(wire.encode(wire.Reject("the server is full")))

    def free(line: Line) -> None:
        line.greet()
        line.play()

    with Peer(full) as first, Peer(free) as second:
        assert make(Toy(), first.port, Voice(), others=(second.port,)).run() == DONE
    with Peer(full) as first, Peer(full) as second:
        assert make(Toy(), first.port, Voice(), others=(second.port,)).run() == REFUSED


def test_a_lost_last_frame_is_not_repeated_to_a_server_that_forgot() -> None:
    seen: list[Any] = []

    def dies(line: Line) -> None:
        line.greet("old")
        line.play(3)
        line.receive()

    def forgot(line: Line) -> None:
        line.greet("new")
        seen.extend(line.play())

    with Peer(dies, forgot) as peer:
        assert make(Toy(), peer.port, Voice()).run() == DONE
    assert [f.flags for f in seen[:-1]] == [START, 0, 0, TERMINAL]


def test_timeout_reconnects_without_a_bye() -> None:
    def sleeps(line: Line) -> None:
        line.greet("old")
        line.receive()
        with pytest.raises(GoneError):
            line.receive()

    def awake(line: Line) -> None:
        assert line.greet("old", resumed=True).resume == "old"
        line.play()

    with Peer(sleeps, awake) as peer:
        assert make(Toy(), peer.port, Voice(), timeout_s=0.3).run() == DONE


def test_rejection_is_final() -> None:
    def script(line: Line) -> None:
        line.receive()
        line.send(wire.encode(wire.Reject("the token is wrong")))

    game, voice = Toy(), Voice()
    with Peer(script) as peer:
        assert make(game, peer.port, voice).run() == REFUSED
    assert len(voice.warned) == 1 and "the token is wrong" in voice.warned[0]
    assert game.closed


def test_once_gives_up_when_nobody_is_there() -> None:
    voice = Voice()
    assert make(Toy(), free_port(), voice, once=True).run() == GAVE_UP
    assert len(voice.warned) == 1 and "cannot reach" in voice.warned[0]


def test_once_gives_up_when_the_server_leaves() -> None:
    voice = Voice()

    def script(line: Line) -> None:
        line.greet()
        line.play(2)
        line.send(wire.encode(wire.Bye("going down")))

    with Peer(script) as peer:
        assert make(Toy(), peer.port, voice, once=True).run() == GAVE_UP
    assert len(voice.warned) == 1


def test_waits_for_a_server_that_starts_later_and_says_so_once() -> None:
    voice, port = Voice(), free_port()
    codes: list[int] = []
    client = make(Toy(), port, voice, episodes=1)
    thread = threading.Thread(target=lambda: codes.append(client.run()))
    thread.start()
    while not voice.warned:
        time.sleep(0.01)
    with socket.create_server(("127.0.0.1", port)) as listener:
        listener.settimeout(10)
        connection, _ = listener.accept()
        with connection:
            line = Line(connection)
            line.greet()
            line.play()
    thread.join(10)
    assert codes == [DONE]
    assert len(voice.warned) == 1 and "trying again" in voice.warned[0]


def test_stop_ends_the_wait_for_an_answer_with_a_bye() -> None:
    asked, codes, seen = threading.Event(), [], []

    def script(line: Line) -> None:
        line.greet()
        line.receive()
        asked.set()
        seen.append(line.receive())

    with Peer(script) as peer:
        client = make(Toy(), peer.port, Voice(), timeout_s=60.0)
        thread = threading.Thread(target=lambda: codes.append(client.run()))
        thread.start()
        assert asked.wait(10)
        client.stop()
        thread.join(10)
    assert codes == [DONE] and seen == [wire.Bye("the client was stopped")]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
