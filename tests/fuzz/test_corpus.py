"""Everything that fuzzing was given or has found, tried again."""

from __future__ import annotations

from pathlib import Path

import pytest

import fuzz
from fuzz.targets import TARGETS

CORPUS = Path(fuzz.__file__).parent / "corpus"
CASES = [(target, path) for target in TARGETS for path in sorted((CORPUS / target).iterdir())]


@pytest.mark.parametrize(("target", "path"), CASES, ids=[f"{t}-{p.name}" for t, p in CASES])
def test_no_input_breaks_a_rule(target: str, path: Path) -> None:
    TARGETS[target](path.read_bytes())


def test_every_target_has_a_corpus() -> None:
    assert {target for target, _ in CASES} == set(TARGETS)
