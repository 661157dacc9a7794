"""The order in which a tensor's dimensions lie in memory. Sums over a tensor run in that order, so their bits depend on it."""

from torch import Tensor

Order = tuple[int, ...]


def memory_order(tensor: Tensor) -> Order:
    """Dimensions from the slowest to the fastest."""
    strides = tuple(tensor.stride())
    return tuple(sorted(range(tensor.ndim), key=lambda dim: (-strides[dim], dim)))


def laid_flat(tensor: Tensor) -> Tensor:
    """A view whose row-major order is the tensor's own in memory."""
    return tensor.permute(memory_order(tensor))


def laid_as(flat: Tensor, order: Order) -> Tensor:
    """The view that `laid_flat` was made of, of a tensor in that order."""
    return flat.permute([order.index(dim) for dim in range(flat.ndim)])
