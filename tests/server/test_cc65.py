"""ROMs built with cc65."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from server import cc65, emulators
from server.cc65 import BuildError
from server.emulators import LaunchError

GAMES = emulators.ROOT / "client_lua" / "games"
needs_cc65 = pytest.mark.skipif(not shutil.which("cl65"), reason="cc65 is not installed")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "coinop"


@needs_cc65
def test_catch_becomes_a_cartridge_outside_the_source_tree(cache: Path) -> None:
    before = sorted(GAMES.iterdir())
    rom = cc65.build(GAMES / "catch.c", "nes")
    data = rom.read_bytes()
    assert data[:4] == b"NES\x1a"
    assert len(data) == 16 + 2 * 16384 + 8192
    assert sorted(GAMES.iterdir()) == before
    assert list(cache.iterdir()) == [rom]


@needs_cc65
def test_a_rom_is_built_once_for_each_source(tmp_path: Path, cache: Path) -> None:
    source = tmp_path / "small.c"
    source.write_text("void main(void) { for (;;) {} }\n")
    first = cc65.build(source, "nes")
    built_at = first.stat().st_mtime_ns
    assert cc65.build(source, "nes") == first
    assert first.stat().st_mtime_ns == built_at
    source.write_text("void main(void) { for (;;) { *(char*) 0x500 = 1; } }\n")
    second = cc65.build(source, "nes")
    assert second != first
    assert second.read_bytes() != first.read_bytes()
    assert sorted(cache.iterdir()) == sorted([first, second])


@needs_cc65
def test_the_compilers_words_are_shown(tmp_path: Path, cache: Path) -> None:
    source = tmp_path / "wrong.c"
    source.write_text("void main(void) {\n    apples();\n    }}\n")
    with pytest.raises(BuildError, match=r"(?s)cannot build .*wrong\.c.*wrong\.c\(\d\): Error"):
        cc65.build(source, "nes")
    assert list(cache.iterdir()) == []


def test_what_is_missing_is_named_with_the_fix(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BuildError, match=r"cannot read the source .*nothing\.c"):
        cc65.build(tmp_path / "nothing.c", "nes")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LaunchError, match=r"'catch': .*apt-get install cc65"):
        emulators._rom("catch", "cc65:catch.c")


@needs_cc65
def test_a_cache_that_cannot_be_written_is_named(cache: Path) -> None:
    cache.parent.write_text("a file, not a directory")
    with pytest.raises(BuildError, match=r"cannot build catch\.c in .*coinop"):
        cc65.build(GAMES / "catch.c", "nes")
