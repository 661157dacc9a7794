"""Contents on the device: flat buffers of bytes.

Buffers in the host's memory that left, and that nobody else refers to, are kept to be filled again (`spares`, which the caller is
to bound): new memory costs as much as the copy into it. On other devices torch keeps them.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

from plait.residency.spares import Spares
from plait.types.errors import CapacityError


@contextmanager
def _named_errors(device: torch.device | str, num_bytes: int) -> Iterator[None]:
    try:
        yield
    except (torch.OutOfMemoryError, RuntimeError) as error:  # torch raises the latter on the CPU
        raise CapacityError(f"{device} has no room for {num_bytes} bytes: {error}.", "Lower its budget.") from error


def allocate(num_bytes: int, device: torch.device | str) -> Tensor:
    """A flat buffer. `CapacityError` if the device has no room for it, whatever budgets say."""
    with _named_errors(device, num_bytes):
        return torch.empty(num_bytes, dtype=torch.uint8, device=device)


def _num_references(buffer: Tensor) -> int:
    """To its memory: of tensors, views and arrays."""
    return int(torch._C._storage_Use_Count(buffer.untyped_storage()._cdata))


_ALONE = _num_references(torch.empty(1))
_ONLY_ARGUMENT = 3
"""References to a tensor that only the caller of a function has: its own, the argument, and that of the call that counts them."""


def _is_ours_alone(buffer: Tensor) -> bool:
    """Whether nobody can read the memory of a buffer but through the caller's name."""
    return sys.getrefcount(buffer) <= _ONLY_ARGUMENT and _num_references(buffer) <= _ALONE


class DeviceStore:
    def __init__(self, device: torch.device) -> None:
        self.device, self.spares = device, Spares[Tensor]()
        self._buffers: dict[str, Tensor] = {}
        self._made: set[int] = set()
        """Addresses of buffers that were made here, in the host's memory: what a caller gave may be part of something else."""

    def allocate(self, num_bytes: int) -> Tensor:
        buffer = self.spares.take(num_bytes)
        if buffer is None:
            buffer = allocate(num_bytes, self.device)
        if self.device.type == "cpu" and num_bytes:
            self._made.add(buffer.data_ptr())
        return buffer

    def own(self, buffers: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The buffers, on the device."""
        with _named_errors(self.device, sum(buffer.numel() for buffer in buffers.values())):
            return {key: buffer.to(self.device) for key, buffer in buffers.items()}

    def put(self, key: str, buffer: Tensor) -> None:
        self._buffers[key] = buffer

    def get(self, key: str) -> Tensor:
        return self._buffers[key]

    def holds(self, key: str, buffer: Tensor) -> bool:
        return torch.equal(self._buffers[key], buffer.to(self.device))

    def remove(self, key: str) -> bool:
        buffer = self._buffers.pop(key, None)
        if buffer is not None and _is_ours_alone(buffer) and buffer.data_ptr() in self._made:
            self._made.remove(buffer.data_ptr())
            if buffer.untyped_storage().nbytes() == buffer.numel():  # else another has come to the place of one that is gone
                self.spares.give(buffer.numel(), buffer)
        return True

    def rename(self, old: str, new: str) -> None:
        """The buffer that has the new key stays, if there is one."""
        self._buffers.setdefault(new, self._buffers.pop(old))

    def keys(self) -> frozenset[str]:
        return frozenset(self._buffers)
