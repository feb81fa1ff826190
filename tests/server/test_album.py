"""Which pictures are written, under which names, and what becomes of errors."""

from __future__ import annotations

from pathlib import Path

import png
import pytest
from live import SPACES

from server import album as album_module
from server.album import Album
from server.net.wire import Hello, Preview
from server.session import Session


def make_session(name: str, number: str, shade: int | None = 0) -> Session:
    session = Session(session_id=number, hello=Hello(name, "1", "game", "game", SPACES))
    if shade is not None:
        session.show(shaded(shade))
    return session


def shaded(shade: int) -> Preview:
    return Preview(4, 3, bytes([shade] * 36))


def test_a_picture_is_given_once_and_again_when_it_changed(tmp_path: Path) -> None:
    album, session, path = Album(tmp_path), make_session("mame", "1", 7), tmp_path / "mame.png"
    blind = make_session("blind", "2", None)
    assert album.changes([session, blind]) == {path: shaded(7)}
    assert album.changes([session, blind]) == {}
    session.show(shaded(8))
    session.show(shaded(9))
    assert album.changes([session, blind]) == {path: shaded(9)}


def test_a_picture_like_the_last_one_is_written_all_the_same(tmp_path: Path) -> None:
    """Its file's time says when the client last showed anything."""
    album, session = Album(tmp_path), make_session("mame", "1", 7)
    album.changes([session])
    session.show(shaded(7))
    assert album.changes([session]) == {tmp_path / "mame.png": shaded(7)}


def test_clients_of_one_name_keep_files_of_their_own(tmp_path: Path) -> None:
    album = Album(tmp_path)
    sessions = [make_session(name, str(at)) for at, name in enumerate(("a", "a-2", "a", "b", "a"))]
    names = ["a.png", "a-2.png", "a-3.png", "b.png", "a-4.png"]
    assert [path.name for path in album.changes(sessions)] == names
    # A name is kept for as long as its session lasts, and is free after that.
    for session in sessions[1:]:
        session.show(shaded(1))
    assert [path.name for path in album.changes(sessions[1:])] == names[1:]
    newcomer = make_session("a", "9")
    assert [path.name for path in album.changes([*sessions[1:], newcomer])] == ["a.png"]


def test_pictures_are_written_and_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "previews" / "mame.v2.png"
    for shade in (1, 2):
        assert album_module.write({path: shaded(shade)}) is None
        assert png.decode(path.read_bytes()).tobytes() == shaded(shade).pixels
        assert [file.name for file in path.parent.iterdir()] == ["mame.v2.png"]


def test_one_picture_that_cannot_be_written_does_not_hold_up_the_others(tmp_path: Path) -> None:
    blocked, good = tmp_path / "a.png", tmp_path / "b.png"
    blocked.mkdir()
    problem = album_module.write({blocked: shaded(1), good: shaded(2)})
    assert problem == f"cannot write the picture {blocked}: Is a directory"
    assert png.decode(good.read_bytes()).shape == (3, 4, 3)


@pytest.mark.parametrize("place", ["a file", "gone"])
def test_a_directory_that_cannot_be_used_is_named(tmp_path: Path, place: str) -> None:
    directory = tmp_path / "previews" if place == "a file" else tmp_path / "gone" / "previews"
    if place == "a file":
        directory.write_text("in the way")
    problem = album_module.write({directory / "a.png": shaded(1)})
    assert problem is not None
    assert str(directory / "a.png") in problem
