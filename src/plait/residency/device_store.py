"""Contents on the device: flat buffers of bytes."""

import torch
from torch import Tensor

from plait.types.errors import CapacityError


class DeviceStore:
    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._buffers: dict[str, Tensor] = {}

    def allocate(self, num_bytes: int) -> Tensor:
        """`CapacityError` if the device has less than the budget says."""
        try:
            return torch.empty(num_bytes, dtype=torch.uint8, device=self.device)
        except (torch.OutOfMemoryError, RuntimeError) as error:
            raise CapacityError(f"{self.device} has no room for {num_bytes} bytes: {error}.", "Lower its budget.") from error

    def put(self, key: str, buffer: Tensor) -> None:
        self._buffers[key] = buffer

    def get(self, key: str) -> Tensor:
        return self._buffers[key]

    def holds(self, key: str, buffer: Tensor) -> bool:
        return torch.equal(self._buffers[key], buffer.to(self.device))

    def remove(self, key: str) -> None:
        self._buffers.pop(key, None)

    def rename(self, old: str, new: str) -> None:
        """The buffer that has the new key stays, if there is one."""
        self._buffers.setdefault(new, self._buffers.pop(old))

    def keys(self) -> frozenset[str]:
        return frozenset(self._buffers)
