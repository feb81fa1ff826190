"""Writes the pages that come from the code; tests check that they are up to date."""

from __future__ import annotations

import re
from pathlib import Path

import config
from server.console import hotkeys

ROOT = Path(__file__).resolve().parent.parent


def pages() -> dict[Path, str]:
    """Give the text of every generated page."""
    readme = ROOT / "README.md"
    return {
        ROOT / "docs" / "configuration.md": config.markdown(),
        readme: with_hotkeys(readme.read_text(encoding="utf-8")),
    }


def with_hotkeys(readme: str) -> str:
    """Put the table of keys between its marks in the README."""
    return re.sub(
        r"(?s)(<!-- keys -->\n).*?(<!-- /keys -->)",
        lambda marks: f"{marks[1]}{hotkeys.markdown()}{marks[2]}",
        readme,
    )


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path.relative_to(ROOT)}")
