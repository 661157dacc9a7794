"""Keys differ wherever what they name differs."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.kv.keys import KEY_BYTES, block_key, root_key
from plait.types.policy import PolicyVersion

TEXT = st.one_of(st.sampled_from(["", "a", "b", "aa", "1", "11", "a\x00", "\x00\x00\x00\x01a"]), st.text(max_size=6))
FIELDS = st.tuples(TEXT, TEXT, TEXT, TEXT, st.integers(0, 12), st.one_of(st.none(), TEXT))
TOKENS = st.lists(st.integers(0, 2**32 - 1), max_size=5).map(tuple)


def key_of(fields: tuple[str, str, str, str, int, str | None]) -> bytes:
    base, dtype, tenant, task, version, adapter = fields
    return root_key(base, dtype, PolicyVersion(tenant, task, version), adapter)


@given(FIELDS, FIELDS)
def test_roots_are_equal_only_for_equal_fields(left: tuple, right: tuple) -> None:
    assert (key_of(left) == key_of(right)) == (left == right)


@given(FIELDS, st.integers(0, 5), st.data())
def test_each_field_alone_makes_another_root(fields: tuple, place: int, data: st.DataObject) -> None:
    other = data.draw(FIELDS.map(lambda drawn: drawn[place]).filter(lambda value: value != fields[place]))
    assert key_of(fields) != key_of((*fields[:place], other, *fields[place + 1 :]))


@given(st.sampled_from([b"p" * KEY_BYTES, b"q" * KEY_BYTES]), st.sampled_from([b"p" * KEY_BYTES, b"q" * KEY_BYTES]), TOKENS, TOKENS)
def test_blocks_are_equal_only_for_equal_parent_and_tokens(left: bytes, right: bytes, mine: tuple, other: tuple) -> None:
    assert (block_key(left, mine) == block_key(right, other)) == ((left, mine) == (right, other))


def test_roots_and_blocks_never_meet() -> None:
    assert root_key("", "", PolicyVersion("", "", 0), "") != block_key(b"", ())


@pytest.mark.parametrize("token", [-1, 2**32])
def test_token_that_is_no_id(token: int) -> None:
    with pytest.raises(struct.error):
        block_key(b"p" * KEY_BYTES, (token,))


def test_keys_are_the_same_in_every_process() -> None:
    """A key may outlive the process that made it."""
    root = root_key("base", "torch.bfloat16", PolicyVersion("local", "task", 3), "digest")
    assert block_key(root, (1, 2, 3)).hex() == "c94c6d1c1d043ad691d4827236e1de9a"
