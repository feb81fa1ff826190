"""Staying awake between frames: only while they come and a core is free."""

from __future__ import annotations

from collections.abc import Callable

from server.vigil import Vigil


class Loop:
    """A loop whose turns are taken by hand, and its clock."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.frames = 0
        self.due: list[Callable[[], None]] = []
        self.vigil = Vigil(
            call_soon=self.due.append, frames=lambda: self.frames, clock=lambda: self.now_s
        )

    def turn(self, *, after_s: float) -> None:
        self.now_s += after_s
        due, self.due[:] = list(self.due), []
        for call in due:
            call()


def test_a_loop_without_frames_may_sleep() -> None:
    loop = Loop()
    loop.vigil.look(core_free=True)
    assert not loop.due


def test_it_stays_awake_from_frame_to_frame_and_sleeps_when_none_comes() -> None:
    loop = Loop()
    for _ in range(20):
        loop.frames += 1
        loop.vigil.look(core_free=True)
        loop.turn(after_s=0.003)
        assert loop.vigil.awake
        assert len(loop.due) == 1  # a look while it is awake does not wake it twice
    loop.turn(after_s=0.005)
    assert not loop.vigil.awake
    assert not loop.due
    loop.vigil.look(core_free=True)
    assert not loop.vigil.awake  # nothing came since
    loop.frames += 1
    loop.vigil.look(core_free=True)
    assert loop.vigil.awake


def test_it_gives_the_core_up_when_it_is_wanted() -> None:
    loop = Loop()
    loop.frames = 1
    loop.vigil.look(core_free=True)
    loop.vigil.look(core_free=False)
    loop.frames = 2
    loop.turn(after_s=0.001)
    assert not loop.due
    loop.vigil.look(core_free=False)
    assert not loop.vigil.awake
