"""How tensors are laid out over a mesh of ranks. Pure, torch-free.

- Ranks fill the mesh in row-major order. A dimension is cut over one mesh axis, or over several, the last running fastest.
- Along mesh axes over which a tensor is not cut, ranks hold replicas of each other.
- Cuts may be even, uneven, or leave ranks without anything.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from itertools import pairwise, product

import msgspec

from plait.sharding.box import Box, extents, volume
from plait.types.errors import StateError

ITEM_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}
"""By the names of the safetensors format."""


class DimSplit(msgspec.Struct, frozen=True):
    """Part i of a dimension is `bounds[i]` to `bounds[i + 1]`; i is the rank's place along `mesh_axes`."""

    mesh_axes: tuple[int, ...]
    bounds: tuple[int, ...]


class TensorLayout(msgspec.Struct, frozen=True):
    """One logical tensor; `splits` has an entry for each dimension, None where every rank holds all of it."""

    shape: tuple[int, ...]
    dtype: str
    splits: tuple[DimSplit | None, ...]

    @property
    def item_bytes(self) -> int:
        return ITEM_BYTES[self.dtype]

    @property
    def num_bytes(self) -> int:
        """Of the whole tensor."""
        return math.prod(self.shape) * self.item_bytes


class Piece(msgspec.Struct, frozen=True):
    """A box of a tensor and the ranks that hold it, in ascending order."""

    box: Box
    ranks: tuple[int, ...]


class Sharding(msgspec.Struct, frozen=True):
    """Tensors by their logical names on a mesh of ranks. Raises StateError where a split does not fit tensor or mesh."""

    mesh: tuple[int, ...]
    tensors: Mapping[str, TensorLayout]

    def __post_init__(self) -> None:
        for name, layout in self.tensors.items():
            _check(name, layout, self.mesh)

    @property
    def num_ranks(self) -> int:
        return math.prod(self.mesh)

    def box(self, name: str, rank: int) -> Box:
        """What the rank holds of a tensor."""
        layout, places = self.tensors[name], _places(self.mesh, rank)
        return tuple(
            (0, length) if split is None else _part(split, _place_along(split.mesh_axes, self.mesh, places))
            for length, split in zip(layout.shape, layout.splits, strict=True)
        )

    def shard_shape(self, name: str, rank: int) -> tuple[int, ...]:
        return extents(self.box(name, rank))

    def shard_bytes(self, rank: int) -> int:
        """Of all tensors that the rank holds."""
        return sum(volume(self.box(name, rank)) * layout.item_bytes for name, layout in self.tensors.items())

    def pieces(self, name: str, wanted: Box) -> Iterator[Piece]:
        """The distinct pieces that hold something of the box; found by bisection, not by asking every rank."""
        layout = self.tensors[name]
        spans = [_parts_that_meet(split, box) for split, box in zip(layout.splits, wanted, strict=True)]
        for parts in product(*spans):
            box = tuple(
                (0, length) if split is None else _part(split, part)
                for length, split, part in zip(layout.shape, layout.splits, parts, strict=True)
            )
            yield Piece(box, self._holders(layout, parts))

    def is_first_holder(self, name: str, rank: int) -> bool:
        """Whether no lower rank holds the same piece: the one that writes it down."""
        cut = {axis for split in self.tensors[name].splits if split is not None for axis in split.mesh_axes}
        return not any(place for axis, place in enumerate(_places(self.mesh, rank)) if axis not in cut)

    def _holders(self, layout: TensorLayout, parts: tuple[int, ...]) -> tuple[int, ...]:
        fixed: dict[int, int] = {}
        for split, part in zip(layout.splits, parts, strict=True):
            for axis in reversed(split.mesh_axes if split is not None else ()):
                part, fixed[axis] = divmod(part, self.mesh[axis])
        choices = ((fixed[axis],) if axis in fixed else range(size) for axis, size in enumerate(self.mesh))
        return tuple(_rank(self.mesh, places) for places in product(*choices))


def even_bounds(length: int, num_parts: int) -> tuple[int, ...]:
    """Parts that differ by one at most, the longer ones first."""
    short, num_longer = divmod(length, num_parts)
    return tuple(part * short + min(part, num_longer) for part in range(num_parts + 1))


def chunk_bounds(length: int, num_parts: int) -> tuple[int, ...]:
    """As `torch.chunk`, FSDP2 and DTensor cut: all parts of one length but the last ones, which may be empty."""
    chunk = -(-length // num_parts)
    return tuple(min(length, part * chunk) for part in range(num_parts + 1))


def cut(shape: tuple[int, ...], dtype: str, dim: int | None, mesh_axis: int, num_parts: int) -> TensorLayout:
    """The common case: one dimension over one mesh axis, as FSDP2 does it; `dim` None is a replica everywhere."""
    splits: list[DimSplit | None] = [None] * len(shape)
    if dim is not None:
        splits[dim] = DimSplit((mesh_axis,), chunk_bounds(shape[dim], num_parts))
    return TensorLayout(shape, dtype, tuple(splits))


def _check(name: str, layout: TensorLayout, mesh: tuple[int, ...]) -> None:
    if layout.dtype not in ITEM_BYTES:
        raise StateError(f"tensor {name!r} has dtype {layout.dtype!r}.", f"Known are {', '.join(ITEM_BYTES)}.")
    if len(layout.splits) != len(layout.shape):
        raise StateError(f"tensor {name!r} has {len(layout.shape)} dimensions and {len(layout.splits)} splits.", "Give one each.")
    axes = [axis for split in layout.splits if split is not None for axis in split.mesh_axes]
    if len(set(axes)) < len(axes) or not set(axes) <= set(range(len(mesh))):
        raise StateError(f"tensor {name!r} is cut over mesh axes {axes} of a mesh {mesh}.", "Use each axis at most once.")
    for length, split in zip(layout.shape, layout.splits, strict=True):
        if split is not None and not _fits(split, length, mesh):
            raise StateError(f"tensor {name!r}: bounds {split.bounds} do not cut {length}.", "They rise from 0 to the length.")


def _fits(split: DimSplit, length: int, mesh: tuple[int, ...]) -> bool:
    bounds, num_parts = split.bounds, math.prod(mesh[axis] for axis in split.mesh_axes)
    rises = all(a <= b for a, b in pairwise(bounds))
    return len(bounds) == num_parts + 1 and bounds[0] == 0 and bounds[-1] == length and rises


def _places(mesh: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """The rank's place along each mesh axis."""
    places = []
    for size in reversed(mesh):
        rank, place = divmod(rank, size)
        places.append(place)
    return tuple(reversed(places))


def _rank(mesh: tuple[int, ...], places: tuple[int, ...]) -> int:
    rank = 0
    for size, place in zip(mesh, places, strict=True):
        rank = rank * size + place
    return rank


def _place_along(axes: tuple[int, ...], mesh: tuple[int, ...], places: tuple[int, ...]) -> int:
    return _rank(tuple(mesh[axis] for axis in axes), tuple(places[axis] for axis in axes))


def _part(split: DimSplit, part: int) -> tuple[int, int]:
    return split.bounds[part], split.bounds[part + 1]


def _parts_that_meet(split: DimSplit | None, wanted: tuple[int, int]) -> range:
    """Parts that are not empty and overlap `wanted`, among possibly empty ones that lie between them."""
    start, stop = wanted
    if split is None:
        return range(1 if start < stop else 0)
    if start >= stop:
        return range(0)
    return range(bisect_right(split.bounds, start) - 1, bisect_left(split.bounds, stop))
