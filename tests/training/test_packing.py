"""Packing: what every cut must keep, and where sharing pays."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.training.packing import PackedBatch, pack
from plait.types.datum import Datum
from plait.types.errors import ConfigError

sequences = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=8), max_size=12)


def datum(tokens: list[int]) -> Datum:
    return Datum(tuple(tokens), (*tokens[1:], 9))


def contents(batches: list[PackedBatch], datums: list[Datum]) -> list[tuple]:
    """A description that does not name datums by their place of arrival."""
    return [
        (batch.tokens_R, batch.positions_R, [(g.num_prefix_tokens, [datums[m] for m in g.members]) for g in batch.groups])
        for batch in batches
    ]


@given(sequences, st.integers(1, 30))
def test_invariants(tokens: list[list[int]], limit: int) -> None:
    datums = [datum(t) for t in tokens]
    batches = pack(datums, limit)
    assert sorted(m for batch in batches for m in batch.members) == list(range(len(datums)))
    for batch in batches:
        rows = batch.rows()
        assert len(batch.tokens_R) <= limit or len(batch.members) == 1
        assert {row for member in rows.values() for row in member} == set(range(len(batch.tokens_R)))
        for member, member_rows in rows.items():
            assert tuple(batch.tokens_R[row] for row in member_rows) == datums[member].tokens
            assert tuple(batch.positions_R[row] for row in member_rows) == tuple(range(len(datums[member].tokens)))


@given(sequences, st.integers(1, 30), st.randoms(use_true_random=False))
def test_arrival_order_does_not_matter(tokens: list[list[int]], limit: int, rng: random.Random) -> None:
    datums = [datum(t) for t in tokens]
    shuffled = rng.sample(datums, len(datums))
    assert contents(pack(datums, limit), datums) == contents(pack(shuffled, limit), shuffled)


def test_a_groups_prompt_is_computed_once_though_all_prompts_begin_alike() -> None:
    system = [1, 2, 3]
    datums = [datum(system + [10 + g] * 20 + [50 + s] * (s + 1)) for g in range(3) for s in range(4)]
    (batch,) = pack(datums, 1000)
    assert sorted(len(group.members) for group in batch.groups) == [4, 4, 4]
    assert all(group.num_prefix_tokens == 23 for group in batch.groups)
    assert len(batch.tokens_R) == 3 * (23 + 1 + 2 + 3 + 4)


def test_unlike_sequences_share_what_all_begin_with() -> None:
    datums = [datum([1, 2, 3, 10 + s, 4]) for s in range(5)]
    (batch,) = pack(datums, 1000)
    assert len(batch.tokens_R) == 3 + 5 * 2


def test_a_group_larger_than_a_micro_batch_is_cut_and_its_prompt_repeated() -> None:
    datums = [datum([7] * 10 + [s] * 5) for s in range(20, 28)]
    batches = pack(datums, 32)
    assert [len(batch.tokens_R) for batch in batches] == [30, 30]


def test_equal_datums_and_a_datum_that_begins_another() -> None:
    datums = [datum([1, 2, 3]), datum([1, 2, 3]), datum([1, 2, 3, 4])]
    (batch,) = pack(datums, 100)
    assert len(batch.tokens_R) == 2 + 1 + 1 + 2


def test_only_a_single_long_datum_exceeds_the_limit() -> None:
    batches = pack([datum([1] * 50), datum([1] * 50), datum([2, 3])], 16)
    assert [len(batch.tokens_R) for batch in batches] == [50, 50, 2]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (Datum((), ()), "datum 1 has no tokens"),
        (Datum((1, 2), (3,)), "2 tokens and 1 target_tokens"),
        (Datum((1, 2), ()), "2 tokens and 0 target_tokens"),
        (Datum((1, 2), (2, 3), temperature=0.0), "datum 1 has temperature 0"),
        (Datum((1, 2), (2, 3), weights=(1.0,)), "2 tokens and 1 weights"),
        (Datum((1, 2), (2, 3), logprobs=(1.0, 1.0, 1.0)), "2 tokens and 3 logprobs"),
        (Datum((1, 2), (2, 3), sequence_ratio_mask=(1.0,)), "2 tokens and 1 sequence_ratio_mask"),
    ],
)
def test_ragged_datums_are_errors(bad: Datum, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        pack([datum([1]), bad], 100)
