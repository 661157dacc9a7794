"""Contents on the device: flat buffers of bytes."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

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


class DeviceStore:
    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._buffers: dict[str, Tensor] = {}

    def allocate(self, num_bytes: int) -> Tensor:
        return allocate(num_bytes, self.device)

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
        self._buffers.pop(key, None)
        return True

    def rename(self, old: str, new: str) -> None:
        """The buffer that has the new key stays, if there is one."""
        self._buffers.setdefault(new, self._buffers.pop(old))

    def keys(self) -> frozenset[str]:
        return frozenset(self._buffers)
