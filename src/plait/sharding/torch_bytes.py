"""The bytes of torch tensors, and the layout of DTensors, in the terms of this package."""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Replicate, Shard

from plait.sharding.layout import DimSplit, Sharding, TensorLayout, chunk_bounds
from plait.sharding.shard_file import Buffer
from plait.types.errors import StateError

DTYPES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
    torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip

TORCH_DTYPES = {name: dtype for dtype, name in DTYPES.items()}


def tensor_bytes(tensor: Tensor) -> Buffer:
    """Flat bytes over a CPU tensor's own memory: writing to them writes to the tensor. Raises StateError if it has gaps."""
    local = local_part(tensor)
    if local.device.type != "cpu" or not local.is_contiguous():
        raise StateError(f"a tensor on {local.device} of strides {local.stride()} has no flat bytes.", "Copy it first.")
    buffer: Buffer = local.detach().reshape(-1).view(torch.uint8).numpy()
    return buffer


def local_part(tensor: Tensor) -> Tensor:
    """What this rank holds."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def sharding_of(tensors: Mapping[str, Tensor]) -> Sharding:
    """Of DTensors on one mesh, and of plain tensors that every rank holds. Raises StateError for what has no such form."""
    meshes = {tensor.device_mesh for tensor in tensors.values() if isinstance(tensor, DTensor)}
    if len(meshes) > 1:
        raise StateError(f"tensors lie on {len(meshes)} meshes.", "Save those of each mesh apart.")
    mesh = tuple(meshes.pop().mesh.shape) if meshes else (1,)
    return Sharding(mesh, {name: _layout(name, tensor, mesh) for name, tensor in tensors.items()})


def _layout(name: str, tensor: Tensor, mesh: tuple[int, ...]) -> TensorLayout:
    splits: list[DimSplit | None] = [None] * tensor.dim()
    placements = tensor.placements if isinstance(tensor, DTensor) else ()
    for axis, placement in enumerate(placements):
        if type(placement) is Shard and splits[placement.dim] is None:
            splits[placement.dim] = DimSplit((axis,), chunk_bounds(tensor.shape[placement.dim], mesh[axis]))
        elif not isinstance(placement, Replicate):
            raise StateError(f"tensor {name!r} has placements {placements}.", "Only one even cut of a dimension is known.")
    return TensorLayout(tuple(tensor.shape), DTYPES[tensor.dtype], tuple(splits))
