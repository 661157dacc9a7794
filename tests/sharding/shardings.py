"""Random shardings for property tests."""

import math

from hypothesis import strategies as st

from plait.sharding.layout import DimSplit, Sharding, TensorLayout, chunk_bounds, even_bounds
from tests.sharding.arrays import DTYPES, Tensors

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
