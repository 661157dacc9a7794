"""Slices between real processes: two training ranks, and one or three rollout ranks of another sharding."""

from collections.abc import Iterator

import msgspec
import pytest

from plait.sharding import weight_sync
from plait.sharding.layout import DimSplit, Sharding, TensorLayout, cut
from plait.sharding.plan import Slice
from plait.sharding.rank_group import RankGroup
from tests.sharding import work
from tests.sharding.groups import rank_group

SHAPES = {"a": ((6, 4), "F32"), "b": ((5,), "BF16"), "c": ((3, 5, 2), "F32"), "step": ((), "I64")}


@pytest.fixture(scope="module")
def ranks() -> Iterator[RankGroup]:
    with rank_group(5) as group:
        yield group


def along(dim: int | None, num_ranks: int) -> Sharding:
    """Every tensor that has such a dimension is cut along it."""
    return Sharding(
        (num_ranks,),
        {
            n: cut(shape, dtype, dim if dim is not None and dim < len(shape) else None, 0, num_ranks)
            for n, (shape, dtype) in SHAPES.items()
        },
    )


UNEVEN = Sharding(
    (3,),
    {
        name: TensorLayout(shape, dtype, (DimSplit((0,), (0, 1, 1, shape[0])), *[None] * (len(shape) - 1)) if shape else ())
        for name, (shape, dtype) in SHAPES.items()
    },
)


@pytest.mark.parametrize(
    ("training", "rollout", "training_ranks", "rollout_ranks"),
    [
        (along(0, 2), along(None, 1), [0, 1], [2]),
        (along(0, 2), along(1, 3), [0, 1], [2, 3, 4]),
        (along(0, 2), UNEVEN, [0, 1], [4, 3, 2]),
        (along(None, 2), along(None, 3), [0, 1], [2, 3, 4]),
        (along(1, 5), along(0, 5), [0, 1, 2, 3, 4], [4, 3, 2, 1, 0]),
        (along(0, 2), along(1, 3), [0, 1], [0, 1, 2]),
    ],
    ids=["2 to 1", "2 to 3 by columns", "2 to 3 uneven", "replicas", "all to all", "ranks in both"],
)
def test_bytes_sent_are_bytes_needed(
    ranks: RankGroup, training: Sharding, rollout: Sharding, training_ranks: list[int], rollout_ranks: list[int]
) -> None:
    counts = ranks.run(work.sync_arrays, training, rollout, training_ranks, rollout_ranks)
    for place, rank in enumerate(rollout_ranks):
        assert counts[rank].received_bytes + counts[rank].copied_bytes == rollout.shard_bytes(place)
    assert sum(count.sent_bytes for count in counts) == sum(count.received_bytes for count in counts)
    assert all(counts[rank].received_bytes == 0 for rank in set(range(5)) - set(rollout_ranks))


@pytest.mark.parametrize(("rollout_ranks", "dim"), [([2], None), ([2, 3, 4], 1)], ids=["one", "three"])
def test_a_rollout_rank_gets_what_fsdp_has_trained(ranks: RankGroup, rollout_ranks: list[int], dim: int | None) -> None:
    ranks.run(work.make_trainer, work.SETTINGS, "float32", (2,))
    ranks.run(work.train_if_training, range(1))
    results = ranks.run(work.sync_trainer, rollout_ranks, dim)
    assert sum(count.sent_bytes for count, _ in results[:2]) == sum(needed for _, needed in results) > 0
    assert all(count.received_bytes == needed for count, needed in results)


def test_large_slices_go_in_several_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weight_sync, "MAX_MESSAGE_BYTES", 100)
    box = ((2, 9), (1, 4), (0, 3))
    whole = Slice("a", 0, box, ((0, 9), (0, 4), (0, 3)), box, 4)
    parts = list(weight_sync._parts(whole))
    assert [part.box[0] for part in parts] == [(2, 4), (4, 6), (6, 8), (8, 9)]
    assert sum(part.num_bytes for part in parts) == whole.num_bytes
    assert max(part.num_bytes for part in parts) <= 100
    assert list(weight_sync._parts(msgspec.structs.replace(whole, box=parts[0].box))) == [parts[0]]
