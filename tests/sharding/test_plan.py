"""Slices of any sharding under any other, against numpy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.sharding.box import within
from plait.sharding.layout import DimSplit, Sharding, TensorLayout, chunk_bounds, cut, even_bounds
from plait.sharding.plan import num_bytes, read_plan, sync_plan
from plait.types.errors import StateError
from tests.sharding.arrays import Tensors, empty_shard, flat_bytes, full_arrays, shard_of
from tests.sharding.shardings import shardings, tensors_strategy


@given(st.data(), tensors_strategy)
@settings(max_examples=40)
def test_runs_put_together_the_wanted_shard_and_touch_each_byte_once(data: st.DataObject, tensors: Tensors) -> None:
    full = full_arrays(tensors)
    saved, wanted = data.draw(shardings(tensors)), data.draw(shardings(tensors))
    sources = [flat_bytes(shard_of(full, saved, rank)) for rank in range(saved.num_ranks)]
    for rank in range(wanted.num_ranks):
        plan = read_plan(saved, wanted, rank)
        target = empty_shard(wanted, rank)
        written = {name: np.zeros(array.nbytes, int) for name, array in target.items()}
        moved = 0
        for piece in plan:
            for run in piece.runs():
                source = sources[piece.saved_rank][piece.tensor][run.saved_offset :][: run.num_bytes]
                assert len(source) == run.num_bytes
                flat_bytes(target)[piece.tensor][run.wanted_offset :][: run.num_bytes] = source
                written[piece.tensor][run.wanted_offset :][: run.num_bytes] += 1
                moved += run.num_bytes
        expected = shard_of(full, wanted, rank)
        assert all(np.array_equal(target[name], expected[name]) for name in expected)
        assert all((counts == 1).all() for counts in written.values())
        assert moved == num_bytes(plan) == wanted.shard_bytes(rank) == sum(array.nbytes for array in expected.values())


@given(st.data(), tensors_strategy)
@settings(max_examples=25)
def test_a_sync_gives_each_rank_its_shard_and_nothing_twice(data: st.DataObject, tensors: Tensors) -> None:
    full = full_arrays(tensors)
    training, rollout = data.draw(shardings(tensors)), data.draw(shardings(tensors))
    plan = sync_plan(training, rollout)
    sources = [shard_of(full, training, rank) for rank in range(training.num_ranks)]
    targets = [empty_shard(rollout, rank) for rank in range(rollout.num_ranks)]
    for transfer in plan:
        piece = transfer.slice
        sent = sources[piece.saved_rank][piece.tensor][within(piece.box, piece.saved_box)]
        targets[transfer.wanted_rank][piece.tensor][within(piece.box, piece.wanted_box)] = sent
    for rank, target in enumerate(targets):
        expected = shard_of(full, rollout, rank)
        assert all(np.array_equal(target[name], expected[name]) for name in expected)
    assert sum(t.slice.num_bytes for t in plan) == sum(rollout.shard_bytes(rank) for rank in range(rollout.num_ranks))


def test_readers_share_the_replicas() -> None:
    replicas = Sharding((3,), {"a": cut((6, 4), "F32", None, 0, 3)})
    rows = Sharding((3,), {"a": cut((6, 4), "F32", 0, 0, 3)})
    assert [t.slice.saved_rank for t in sync_plan(replicas, rows)] == [0, 1, 2]
    assert {piece.saved_rank for rank in range(3) for piece in read_plan(replicas, rows, rank)} == {0}


def test_rows_are_one_run_and_columns_a_run_for_each_row() -> None:
    whole = Sharding((1,), {"a": cut((6, 4), "F32", None, 0, 1)})
    rows, columns = (Sharding((2,), {"a": cut((6, 4), "F32", dim, 0, 2)}) for dim in (0, 1))
    (by_rows,), (by_columns,) = read_plan(whole, rows, 1), read_plan(whole, columns, 1)
    assert [(run.saved_offset, run.wanted_offset, run.num_bytes) for run in by_rows.runs()] == [(48, 0, 48)]
    assert [run.saved_offset for run in by_columns.runs()] == [8, 24, 40, 56, 72, 88]
    assert by_columns.run_bytes == 8


@given(st.integers(0, 40), st.integers(1, 9))
def test_bounds_are_those_of_numpy_and_torch(length: int, num_parts: int) -> None:
    parts = np.array_split(np.arange(length), num_parts)
    assert even_bounds(length, num_parts) == (0, *np.cumsum([len(part) for part in parts]))
    chunk = -(-length // num_parts)
    assert chunk_bounds(length, num_parts) == tuple(min(length, part * chunk) for part in range(num_parts + 1))


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        (TensorLayout((4,), "F32", (DimSplit((0,), (0, 3, 2)),)), "do not cut 4"),
        (TensorLayout((4,), "F32", (DimSplit((0,), (0, 4)),)), "do not cut 4"),
        (TensorLayout((4,), "F32", (DimSplit((1,), (0, 2, 4)),)), "mesh axes"),
        (TensorLayout((4,), "F33", (None,)), "dtype"),
        (TensorLayout((4, 4), "F32", (None,)), "2 dimensions"),
        (TensorLayout((4, 4), "F32", (DimSplit((0,), (0, 2, 4)),) * 2), "mesh axes"),
    ],
)
def test_a_split_that_does_not_fit_is_named(layout: TensorLayout, message: str) -> None:
    with pytest.raises(StateError, match=message):
        Sharding((2,), {"a": layout})


def test_another_shape_or_a_missing_tensor_is_named() -> None:
    saved = Sharding((1,), {"a": cut((4,), "F32", None, 0, 1)})
    with pytest.raises(StateError, match="'a' was saved as F32"):
        read_plan(saved, Sharding((1,), {"a": cut((4,), "BF16", None, 0, 1)}), 0)
    with pytest.raises(StateError, match="'b' was not saved"):
        read_plan(saved, Sharding((1,), {"b": cut((4,), "F32", None, 0, 1)}), 0)
