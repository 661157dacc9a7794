"""Random shardings for property tests, and the slow oracle: numpy arrays that are cut by indexing."""

import math
from collections.abc import Mapping

import numpy as np
from hypothesis import strategies as st

from plait.sharding.layout import DimSplit, Sharding, TensorLayout, chunk_bounds, even_bounds
from plait.sharding.shard_file import Buffer

DTYPES = {"F32": "u4", "BF16": "u2", "I64": "u8", "U8": "u1"}
"""Opaque numpy types of the same size."""

Tensors = dict[str, tuple[tuple[int, ...], str]]

tensors_strategy = st.dictionaries(
    st.sampled_from(["a", "b.weight", "step"]),
    st.tuples(st.lists(st.integers(1, 7), max_size=3).map(tuple), st.sampled_from(sorted(DTYPES))),
    min_size=1,
)


@st.composite
def shardings(draw: st.DrawFn, tensors: Tensors) -> Sharding:
    """Any mesh of up to two axes; each axis cuts some dimension of a tensor, or none; cuts even, as chunks, or anywhere."""
    mesh = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=2)))
    return Sharding(mesh, {name: _layout(draw, shape, dtype, mesh) for name, (shape, dtype) in tensors.items()})


def _layout(draw: st.DrawFn, shape: tuple[int, ...], dtype: str, mesh: tuple[int, ...]) -> TensorLayout:
    axes_of: dict[int, list[int]] = {}
    for axis in draw(st.permutations(range(len(mesh)))):
        dim = draw(st.none() | st.integers(0, len(shape) - 1)) if shape else None
        if dim is not None:
            axes_of.setdefault(dim, []).append(axis)
    splits = [_split(draw, length, axes_of[dim], mesh) if dim in axes_of else None for dim, length in enumerate(shape)]
    return TensorLayout(shape, dtype, tuple(splits))


def _split(draw: st.DrawFn, length: int, axes: list[int], mesh: tuple[int, ...]) -> DimSplit:
    num_parts = math.prod(mesh[axis] for axis in axes)
    anywhere = st.lists(st.integers(0, length), min_size=num_parts - 1, max_size=num_parts - 1)
    inner = anywhere.map(lambda cuts: (0, *sorted(cuts), length))
    return DimSplit(tuple(axes), draw(st.sampled_from([even_bounds(length, num_parts), chunk_bounds(length, num_parts)]) | inner))


def full_arrays(tensors: Tensors) -> dict[str, np.ndarray]:
    """Every element differs from all others, as far as its dtype goes."""
    return {
        name: np.arange(math.prod(shape)).astype(DTYPES[dtype]).reshape(shape) + np.array(index * 7, DTYPES[dtype])
        for index, (name, (shape, dtype)) in enumerate(tensors.items())
    }


def shard_of(full: Mapping[str, np.ndarray], sharding: Sharding, rank: int) -> dict[str, np.ndarray]:
    """The oracle: the rank's part of each tensor, found through its coordinates on the mesh."""
    places = np.unravel_index(rank, sharding.mesh)
    return {name: _cut(full[name], layout, sharding.mesh, places) for name, layout in sharding.tensors.items()}


def _cut(array: np.ndarray, layout: TensorLayout, mesh: tuple[int, ...], places: tuple) -> np.ndarray:
    index = []
    for split in layout.splits:
        if split is None:
            index.append(slice(None))
            continue
        part = np.ravel_multi_index([places[a] for a in split.mesh_axes], [mesh[a] for a in split.mesh_axes])
        index.append(slice(split.bounds[part], split.bounds[part + 1]))
    return np.array(array[tuple(index)], order="C")


def flat_bytes(shards: Mapping[str, np.ndarray]) -> dict[str, Buffer]:
    """Over the arrays' own memory."""
    return {name: array.reshape(-1).view(np.uint8) for name, array in shards.items()}


def empty_shard(sharding: Sharding, rank: int) -> dict[str, np.ndarray]:
    """Memory that is waiting to be filled."""
    return {name: np.full(sharding.shard_shape(name, rank), 255, DTYPES[layout.dtype]) for name, layout in sharding.tensors.items()}
