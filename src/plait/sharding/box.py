"""Boxes: the part of a tensor between a start and a stop in each dimension. Pure."""

import math

Box = tuple[tuple[int, int], ...]
"""(start, stop) for each dimension; a tensor without dimensions has one box, the empty tuple."""


def extents(box: Box) -> tuple[int, ...]:
    """The box's shape."""
    return tuple(stop - start for start, stop in box)


def volume(box: Box) -> int:
    """Number of elements."""
    return math.prod(extents(box))


def intersection(left: Box, right: Box) -> Box:
    """What both hold; of extent zero in a dimension where they do not meet."""
    pairs = ((max(a, c), min(b, d)) for (a, b), (c, d) in zip(left, right, strict=True))
    return tuple((start, max(start, stop)) for start, stop in pairs)


def within(box: Box, outer: Box) -> tuple[slice, ...]:
    """The index of `box` in an array that holds `outer`."""
    return tuple(slice(start - base, stop - base) for (start, stop), (base, _) in zip(box, outer, strict=True))
