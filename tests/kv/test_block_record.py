"""Bytes that are not exactly what was encoded are no block."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.kv.block_record import OVERHEAD_BYTES, BlockRecord, decode, encode
from plait.kv.chain import Link

LINKS = st.builds(
    Link, st.binary(min_size=16, max_size=16), st.binary(min_size=16, max_size=16), st.integers(0, 9999), st.integers(1, 16)
)


@given(LINKS, st.binary(max_size=100))
def test_what_is_encoded_is_decoded(link: Link, payload: bytes) -> None:
    found = decode(link.key, encode(BlockRecord(link, payload)))
    assert found is not None
    assert (found.link, bytes(found.payload)) == (link, payload)


@given(LINKS, st.binary(min_size=1, max_size=100), st.data())
def test_a_flipped_bit_is_seen(link: Link, payload: bytes, data: st.DataObject) -> None:
    encoded = bytearray(encode(BlockRecord(link, payload)))
    place = data.draw(st.integers(0, len(encoded) - 1))
    encoded[place] ^= 1 << data.draw(st.integers(0, 7))
    assert decode(link.key, bytes(encoded)) is None


@given(LINKS, st.binary(min_size=1, max_size=100), st.data())
def test_missing_and_added_bytes_are_seen(link: Link, payload: bytes, data: st.DataObject) -> None:
    encoded = encode(BlockRecord(link, payload))
    assert decode(link.key, encoded[: data.draw(st.integers(0, len(encoded) - 1))]) is None
    assert decode(link.key, encoded + b"\0") is None


def test_block_under_another_key_is_none() -> None:
    link = Link(b"a" * 16, b"r" * 16, 0, 3)
    assert decode(b"b" * 16, encode(BlockRecord(link, b"payload"))) is None


@pytest.mark.parametrize("data", [b"", bytes(OVERHEAD_BYTES), bytes(5000)], ids=["empty", "zeros", "sparse"])
def test_zeros_are_no_block(data: bytes) -> None:
    """What a file system may leave after a crash."""
    assert decode(bytes(16), data) is None
