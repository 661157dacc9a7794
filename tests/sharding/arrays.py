"""The slow oracle: numpy arrays that are cut by indexing, through a rank's coordinates on the mesh."""

import math
from collections.abc import Mapping

import numpy as np

from plait.sharding.layout import Sharding, TensorLayout
from plait.sharding.shard_file import Buffer

DTYPES = {"F32": "u4", "BF16": "u2", "I64": "u8", "U8": "u1"}
"""Opaque numpy types of the same size."""

Tensors = dict[str, tuple[tuple[int, ...], str]]
"""Shape and dtype of each."""


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
