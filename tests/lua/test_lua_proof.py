"""proof.lua on every Lua, against Python's hashlib and the document's proofs."""

from __future__ import annotations

import hashlib
import hmac

import pytest
from golden import HELLO, NONCE, TOKEN, examples
from hypothesis import given, settings
from hypothesis import strategies as st
from lua import VERSIONS, Lua

from server.net import wire

PROOFS = {version: Lua(version).load("proof.lua") for version in VERSIONS}


@given(st.sampled_from(VERSIONS), st.binary(max_size=200))
@settings(max_examples=60, deadline=None)
def test_any_string_has_pythons_digest(version: str, data: bytes) -> None:
    assert PROOFS[version][b"sha256"](data) == hashlib.sha256(data).digest()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("size", [0, 1, 55, 56, 63, 64, 65, 119, 120, 1000])
def test_every_way_to_fill_the_last_block(version: str, size: int) -> None:
    data = bytes(range(256)) * 4
    assert PROOFS[version][b"sha256"](data[:size]) == hashlib.sha256(data[:size]).digest()


@given(st.sampled_from(VERSIONS), st.binary(max_size=150), st.binary(max_size=100))
@settings(max_examples=40, deadline=None)
def test_any_key_has_pythons_hmac(version: str, key: bytes, data: bytes) -> None:
    expected = hmac.new(key, data, hashlib.sha256).digest()
    assert PROOFS[version][b"hmac"](key, data) == expected


@pytest.mark.parametrize("version", VERSIONS)
def test_the_documents_proofs(version: str) -> None:
    hello = wire.encode(HELLO)[wire.HEADER_BYTES :]
    for name, function in (("proof", b"by_client"), ("welcome_proof", b"by_server")):
        shown = PROOFS[version][function](TOKEN.encode(), NONCE, hello)
        assert wire.unpack(examples()[name][1][4:])["proof"] == shown


@pytest.mark.parametrize("version", VERSIONS)
def test_the_proof_message_has_the_documents_bytes(version: str) -> None:
    shown = wire.unpack(examples()["proof"][1][4:])["proof"]
    assert Lua(version).load("wire.lua")[b"proof"](shown) == examples()["proof"][1]


@pytest.mark.parametrize("version", VERSIONS)
def test_proofs_are_compared_whole(version: str) -> None:
    equal = PROOFS[version][b"equal"]
    assert equal(b"abc", b"abc")
    assert not equal(b"abd", b"abc") and not equal(b"ab", b"abc") and not equal(None, b"abc")


@pytest.mark.parametrize("version", VERSIONS)
def test_no_two_nonces_are_the_same_with_and_without_the_systems_dice(version: str) -> None:
    lua = Lua(version)
    nothing = lua.runtime.eval(b"{open = function() end}")
    for proof in (PROOFS[version], lua.load("proof.lua", io=nothing)):
        nonces = {proof[b"nonce"](lambda: 1.0) for _ in range(20)}
        assert len(nonces) == 20
        assert {len(nonce) for nonce in nonces} == {32}
