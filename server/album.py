"""The newest picture of every client, each in a file of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from server.net.wire import Preview
from server.picture import png
from server.session import Session

DIRECTORY = "previews"  # in the run's


class Album:
    """Says which pictures are to be written, and where."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._names: dict[str, str] = {}  # of the file, by session
        self._given: dict[str, Preview] = {}  # the picture last given out, by session

    def changes(self, sessions: Iterable[Session]) -> dict[Path, Preview]:
        """Give the pictures that were not given before; whoever is gone frees a file's name."""
        shown = {session.id: session for session in sessions if session.preview is not None}
        for gone in self._names.keys() - shown.keys():
            del self._names[gone], self._given[gone]
        changed = {}
        for session in shown.values():
            preview = session.preview
            if preview is not None and self._given.get(session.id) is not preview:
                self._given[session.id] = changed[self._path(session)] = preview
        return changed

    def _path(self, session: Session) -> Path:
        """Give a session's file: the client's name, with a number if another has that name."""
        if session.id not in self._names:
            taken = set(self._names.values())
            client, number = session.hello.client, 1
            name = client
            while name in taken:
                number += 1
                name = f"{client}-{number}"
            self._names[session.id] = name
        return self._directory / f"{self._names[session.id]}.png"


def write(pictures: Mapping[Path, Preview]) -> str | None:
    """Write each picture whole or not at all; say what went wrong, if anything did."""
    problem = None
    for path, picture in pictures.items():
        temporary = path.with_suffix(".new")
        try:
            path.parent.mkdir(exist_ok=True)
            temporary.write_bytes(png(picture.width, picture.height, picture.pixels))
            temporary.replace(path)
        except OSError as error:
            problem = f"cannot write the picture {path}: {error.strerror}"
    return problem
