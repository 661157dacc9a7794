"""Which bytes of which shard a rank needs, when tensors that lie under one sharding are wanted under another. Pure.

- Every element of the wanted shard comes from exactly one slice, so bytes read are bytes needed.
- Replicas of the source share the readers among them where they all exist (`weight_sync`); in files only the first one does.
"""

from collections.abc import Iterator
from itertools import product

import msgspec

from plait.sharding.box import Box, intersection, volume
from plait.sharding.layout import Sharding
from plait.types.errors import StateError


class Run(msgspec.Struct, frozen=True):
    """Bytes that are in one piece in the saved shard and in the wanted one; offsets within the tensor's bytes there."""

    saved_offset: int
    wanted_offset: int
    num_bytes: int


class Slice(msgspec.Struct, frozen=True):
    """`box` of a tensor, out of the shard of `saved_rank`, which holds `saved_box`, into one that holds `wanted_box`."""

    tensor: str
    saved_rank: int
    box: Box
    saved_box: Box
    wanted_box: Box
    item_bytes: int

    @property
    def num_bytes(self) -> int:
        return volume(self.box) * self.item_bytes

    @property
    def run_bytes(self) -> int:
        """Length of each run."""
        return volume(self.box[self._first_dim_of_run() :]) * self.item_bytes

    def runs(self) -> Iterator[Run]:
        """All runs, in the order of both shards."""
        first, num_bytes = self._first_dim_of_run(), self.run_bytes
        outer = self.box[:first]
        for index in product(*(range(start, stop) for start, stop in outer)):
            at = (*index, *(start for start, _ in self.box[first:]))
            yield Run(self._offset(at, self.saved_box), self._offset(at, self.wanted_box), num_bytes)

    def _first_dim_of_run(self) -> int:
        """Runs span the dimensions in which the box is all that both shards hold, and a part of the one before."""
        first = len(self.box)
        while first and self.box[first - 1] == self.saved_box[first - 1] == self.wanted_box[first - 1]:
            first -= 1
        return max(first - 1, 0)

    def _offset(self, at: tuple[int, ...], shard: Box) -> int:
        offset = 0
        for place, (start, stop) in zip(at, shard, strict=True):
            offset = offset * (stop - start) + place - start
        return offset * self.item_bytes


class Transfer(msgspec.Struct, frozen=True):
    """A slice on its way to a rank of the wanted sharding."""

    slice: Slice
    wanted_rank: int


def read_plan(saved: Sharding, wanted: Sharding, rank: int, spread_replicas: bool = False) -> tuple[Slice, ...]:
    """The slices that make up the shard of `rank`, for all tensors that it wants.

    With `spread_replicas`, readers take turns among replicas. Raises StateError for a tensor that is not there, or is of another
    shape or dtype: converting is not resharding.
    """
    slices = []
    for name, layout in wanted.tensors.items():
        _check_same(name, saved, wanted)
        box = wanted.box(name, rank)
        for piece in saved.pieces(name, box):
            part = intersection(piece.box, box)
            if volume(part):
                source = piece.ranks[rank % len(piece.ranks) if spread_replicas else 0]
                slices.append(Slice(name, source, part, piece.box, box, layout.item_bytes))
    return tuple(slices)


def sync_plan(training: Sharding, rollout: Sharding) -> tuple[Transfer, ...]:
    """Who sends which slice to whom, in an order that all ranks follow.

    Pairs of ranks come in rounds, in each of which senders and receivers differ as far as there are enough of them. As all follow
    one order, the first transfer that is not done has both of its ends waiting for it: blocking calls cannot end in a deadlock.
    """
    plans = {rank: read_plan(training, rollout, rank, spread_replicas=True) for rank in range(rollout.num_ranks)}
    transfers = [Transfer(piece, rank) for rank, plan in plans.items() for piece in plan]
    width = max(training.num_ranks, rollout.num_ranks)
    return tuple(sorted(transfers, key=lambda t: ((t.wanted_rank - t.slice.saved_rank) % width, t.slice.saved_rank)))


def num_bytes(slices: tuple[Slice, ...]) -> int:
    return sum(piece.num_bytes for piece in slices)


def _check_same(name: str, saved: Sharding, wanted: Sharding) -> None:
    found, expected = saved.tensors.get(name), wanted.tensors[name]
    if found is None:
        raise StateError(f"tensor {name!r} was not saved.", "It is of another model, or of a training without it.")
    if (found.shape, found.dtype) != (expected.shape, expected.dtype):
        raise StateError(
            f"tensor {name!r} was saved as {found.dtype} {found.shape}, not {expected.dtype} {expected.shape}.",
            "Read it as it was saved, then convert it.",
        )
