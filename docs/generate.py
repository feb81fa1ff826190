"""Writes the pages that come from the code; tests check that they are up to date."""

from __future__ import annotations

import re
from pathlib import Path

import config
from server import dials, exposition, nursery
from server.console import hotkeys

ROOT = Path(__file__).resolve().parent.parent


def pages() -> dict[Path, str]:
    """Give the text of every generated page."""
    readme, control, metrics = (
        ROOT / name for name in ("README.md", "docs/control.md", "docs/metrics.md")
    )
    return {
        metrics: _between("prometheus", metrics.read_text(encoding="utf-8"), exposition.markdown()),
        control: with_dials(control.read_text(encoding="utf-8")),
        ROOT / "docs" / "configuration.md": config.markdown(),
        readme: with_hotkeys(readme.read_text(encoding="utf-8")),
    }


def with_hotkeys(readme: str) -> str:
    """Put the table of keys between its marks in the README."""
    return _between("keys", readme, hotkeys.markdown())


def with_dials(page: str) -> str:
    """Put the table of live settings between its marks."""
    return _between("dials", page, dials.markdown(dials.table(nursery.bounds())))


def _between(mark: str, page: str, table: str) -> str:
    return re.sub(
        rf"(?s)(<!-- {mark} -->\n).*?(<!-- /{mark} -->)",
        lambda marks: f"{marks[1]}{table}{marks[2]}",
        page,
    )


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path.relative_to(ROOT)}")
