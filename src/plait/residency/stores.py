"""What lies where: the ledger, and the stores it keeps account of. Ledger and groups change only under `changed`."""

import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from torch import Tensor

from plait.residency.device_store import DeviceStore
from plait.residency.disk_store import DiskStore
from plait.residency.host_store import HostStore
from plait.residency.ledger import Place, ResidencyLedger
from plait.residency.rates import TransferRates
from plait.residency.tensor_group import TensorGroup
from plait.residency.tier import Tier
from plait.types.errors import StateError


class Stores:
    """`StateError` if a folder cannot be used. No folder, no such tier."""

    def __init__(
        self,
        ledger: ResidencyLedger,
        device: torch.device,
        host_folder: Path | None,
        disk_folder: Path | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.ledger, self.clock, self.rates = ledger, clock, TransferRates()
        self.changed = threading.Condition(threading.RLock())
        self.groups: dict[str, TensorGroup] = {}
        self.device = DeviceStore(device)
        self.host = HostStore(host_folder) if host_folder is not None else None
        self.disk = DiskStore(disk_folder) if disk_folder is not None else None
        self._adopt_disk()

    def _adopt_disk(self) -> None:
        for group in self.disk.groups if self.disk else ():
            self.groups[group.name] = group
            self.ledger.put(group.name, group.contents)
            self.ledger.save(group.name, group.contents)
            self.ledger.adopt(Tier.DISK, {k: n for k, n in group.contents.items() if self.disk and self.disk.has(k)})

    def file_store(self, tier: Tier) -> HostStore | DiskStore:
        store = self.host if tier is Tier.HOST else self.disk
        if store is None:
            raise StateError(f"there is no {tier.value} tier.", "Give the state manager a folder for it.")
        return store

    # ---- one content at a time, without the lock

    def buffer(self, key: str) -> tuple[Tier, Tensor]:
        """A content's bytes, and whence: the device's own buffer, or read into the host's memory."""
        with self.changed:
            tier, size = self.ledger.place(key), self.ledger.num_bytes(key)
            if tier is Tier.DEVICE:
                return tier, self.device.get(key)
        if tier is None:
            raise StateError(f"content {key} is nowhere.", "Load the group again from where it came from.")
        buffer = torch.empty(size, dtype=torch.uint8)
        self.file_store(tier).read(key, buffer)
        return tier, buffer

    def load(self, key: str, num_bytes: int) -> Tensor:
        """A copy of a content for the device, from the fastest tier below that has it whole."""
        buffer = self.device.allocate(num_bytes)
        errors: list[StateError] = []
        for tier in (Tier.HOST, Tier.DISK):
            with self.changed:
                is_here = self.ledger.has(tier, key)
            if is_here:
                try:
                    start_s = time.perf_counter()
                    self.file_store(tier).read(key, buffer)
                    self.observe((tier, Tier.DEVICE), num_bytes, start_s)
                    return buffer
                except StateError as error:
                    errors.append(error)
        raise errors[0] if errors else StateError(f"content {key} is nowhere.", "Load the group again from where it came from.")

    def observe(self, route: tuple[Tier, Tier], num_bytes: int, start_s: float) -> None:
        with self.changed:
            self.rates.observe(route, num_bytes, time.perf_counter() - start_s)

    def agrees(self, key: str, buffer: Tensor) -> bool:
        """Whether a content of this key, if there is one, has these bytes."""
        with self.changed:
            tier = self.ledger.place(key)
            if tier is None:
                return True
            if tier is Tier.DEVICE:
                return self.device.holds(key, buffer)
        return self.file_store(tier).holds(key, buffer)

    # ---- under the lock

    def discard(self, places: Iterable[Place], is_lost: bool = False) -> None:
        """Contents leave their tiers."""
        with self.changed:
            for tier, key in places:
                self.ledger.discard(tier, key, is_lost)
                (self.device if tier is Tier.DEVICE else self.file_store(tier)).remove(key)
            self.changed.notify_all()

    def rename(self, name: str, keys: dict[str, str]) -> None:
        """Private contents of a group have got digests."""
        with self.changed:
            for old, new in keys.items():
                if self.ledger.has(Tier.DEVICE, old):
                    self.device.rename(old, new)
                self.ledger.rename(old, new)
            self.groups[name] = self.groups[name].renamed(keys)

    def close(self) -> None:
        if self.host is not None:
            self.host.close()
        if self.disk is not None:
            self.disk.close()
