"""The forward pass in C: the same numbers as numpy's, and no harm where it cannot be had."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server import native
from server.learn.mlp import Mlp
from server.learn.network import NativeInference, NumpyInference, Shape, make_inference
from server.spaces import Actions, Discrete, Observation, Spaces

SPACES = Spaces(Observation("float32", (5,)), Actions((Discrete("stick", 3),), ()), ("score",))


@pytest.fixture(autouse=True)
def fresh():
    native.library.cache_clear()
    yield
    native.library.cache_clear()


def compiled():
    found = native.library()
    if found is None:
        pytest.skip("no C compiler here (cc, gcc or clang)")
    return found


def expected(layers: list[np.ndarray], rows: np.ndarray) -> np.ndarray:
    for number, layer in enumerate(layers):
        rows = rows @ layer[:-1] + layer[-1]
        if number + 1 < len(layers):
            rows = np.maximum(rows, 0)
    return rows


def test_a_network_small_enough_for_paper() -> None:
    first = np.array([[1, -1], [2, 1], [0.5, 0]], np.float32)  # two inputs and the bias
    last = np.array([[1, 0, -1], [3, 1, 0], [0, 0.5, 4]], np.float32)
    mlp = Mlp(compiled(), [first, last], [3])
    # (1, 2) -> (5.5, 1) -> (8.5, 1.5, -1.5); (-1, 1) -> (1.5, 2) -> (7.5, 2.5, 2.5)
    said = mlp.judge(np.array([[1, 2], [-1, 1]], np.float32))
    assert said.tolist() == [[8.5, 1.5, -1.5], [7.5, 2.5, 2.5]]
    # (-1, -1) -> (-2.5, 0) -> (0, 0): only the last bias speaks
    assert mlp.judge(np.array([[-1, -1]], np.float32)).tolist() == [[0, 0.5, 4]]
    assert mlp.choose(np.array([-1, -1], np.float32).tobytes())[0] == [2]


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 40), min_size=2, max_size=5),
    rows=st.integers(1, 13),
    seed=st.integers(0, 2**32 - 1),
)
def test_it_says_what_numpy_says(sizes: list[int], rows: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    layers = [
        rng.standard_normal((inputs + 1, outputs)).astype(np.float32)
        for inputs, outputs in itertools.pairwise(sizes)
    ]
    given_rows = rng.standard_normal((rows, sizes[0])).astype(np.float32)
    cut = int(rng.integers(1, sizes[-1] + 1))
    branches = [cut, sizes[-1] - cut] if cut < sizes[-1] else [cut]
    mlp = Mlp(compiled(), layers, branches)
    want = expected([layer.astype(np.float64) for layer in layers], given_rows.astype(np.float64))
    scale = np.abs(want).max() + 1
    got = mlp.judge(given_rows)
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-4 * scale)
    for row in given_rows:
        best, out = mlp.choose(row.tobytes())
        alone = out.copy()
        np.testing.assert_allclose(alone, mlp.judge(row[None])[0], rtol=0, atol=1e-4 * scale)
        assert best[0] == alone[:cut].argmax()
        assert len(best) == len(branches)
        assert cut == sizes[-1] or best[1] == alone[cut:].argmax()


def test_an_answer_stays_when_the_next_batch_passes_through() -> None:
    rng = np.random.default_rng(1)
    layers = [rng.standard_normal((4, 7)).astype(np.float32)]
    mlp = Mlp(compiled(), layers, [7])
    first = mlp.judge(np.ones((3, 3), np.float32))
    kept = first.copy()
    mlp.judge(np.full((9, 3), 5, np.float32))  # more rows than ever before
    assert np.array_equal(first, kept)


def test_bytes_are_observations_too() -> None:
    mlp = Mlp(compiled(), [np.array([[2, -2], [1, 0]], np.float32)], [2], "uint8")
    assert mlp.judge(np.array([[255]], np.uint8)).tolist() == [[511, -510]]
    best, out = mlp.choose(bytes([255]))
    assert (best, out.tolist()) == ([0], [511, -510])


def test_it_plays_where_it_can_be_compiled() -> None:
    compiled()
    assert type(make_inference(SPACES, Shape((8,)), "cpu")) is NativeInference


def test_without_a_compiler_numpy_plays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert native.library() is None
    assert type(make_inference(SPACES, Shape((8,)), "cpu")) is NumpyInference


def test_a_compiler_that_fails_is_like_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "cc").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "cc").chmod(0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert native.library() is None
    assert not list((tmp_path / "cache" / "coinop").iterdir())


def test_a_cache_that_cannot_be_written_is_like_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "coinop").write_text("a file where a directory should be")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert native.library() is None


def test_many_may_compile_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compiled()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    code = "from server import native; assert native.library() is not None"
    started = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(3)]
    assert [process.wait(60) for process in started] == [0, 0, 0]
    assert len(list((tmp_path / "coinop").iterdir())) == 1
