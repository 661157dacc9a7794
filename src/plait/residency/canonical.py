"""Tensors as contents: flat buffers of bytes, row-major, on one device.

A large tensor is a content of its own. Small ones share one, in the order of their names, each from a multiple of `ALIGN_BYTES`
on: an adapter of hundreds of small matrices is then one file and one copy.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from plait.residency.tensor_group import StoredTensor

ALIGN_BYTES = 64
OWN_CONTENT_BYTES = 256 << 10
"""From this size on a tensor is a content of its own."""


def as_bytes(tensor: Tensor) -> Tensor:
    """The tensor's bytes, flat; the same memory if it is contiguous."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def flatten(tensors: Mapping[str, Tensor], key_of: Mapping[str, str]) -> tuple[list[StoredTensor], dict[str, Tensor]]:
    """Entries of the tensors, and the buffers of their contents. `key_of`: tensor -> key of its content; "" -> of the small ones.

    A large contiguous tensor's buffer is its own memory; small ones are copied.
    """
    entries: list[StoredTensor] = []
    buffers: dict[str, Tensor] = {}
    small: dict[str, Tensor] = {}
    for name in sorted(tensors):
        if is_large(tensors[name].nbytes):
            buffers[key_of[name]] = as_bytes(tensors[name])
            entries.append(_entry(name, tensors[name], key_of[name], 0))
        else:
            small[name] = tensors[name]
    if small:
        more, buffers[key_of[""]] = _bundle(small, key_of[""])
        entries += more
    return entries, buffers


def is_large(num_bytes: int) -> bool:
    return num_bytes >= OWN_CONTENT_BYTES


def _bundle(tensors: Mapping[str, Tensor], key: str) -> tuple[list[StoredTensor], Tensor]:
    """On the device of the first of them."""
    entries, offset = [], 0
    for name, tensor in tensors.items():
        entries.append(_entry(name, tensor, key, offset))
        offset += -(-entries[-1].num_bytes // ALIGN_BYTES) * ALIGN_BYTES
    buffer = torch.zeros(offset, dtype=torch.uint8, device=next(iter(tensors.values())).device)
    for entry in entries:
        buffer[entry.offset_bytes : entry.offset_bytes + entry.num_bytes] = as_bytes(tensors[entry.name])
    return entries, buffer


def _entry(name: str, tensor: Tensor, key: str, offset: int) -> StoredTensor:
    dtype = str(tensor.dtype).removeprefix("torch.")
    return StoredTensor(name, dtype, tuple(tensor.shape), key, offset, tensor.nbytes)


def view(entry: StoredTensor, buffer: Tensor) -> Tensor:
    """The tensor within its content's buffer; the same memory."""
    part = buffer[entry.offset_bytes : entry.offset_bytes + entry.num_bytes]
    return part.view(getattr(torch, entry.dtype)).view(entry.shape)
