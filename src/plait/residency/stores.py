"""What lies where: the ledger, and the stores it keeps account of. Ledger and groups change only under `changed`."""

import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from torch import Tensor

from plait.residency.device_store import DeviceStore, allocate
from plait.residency.disk_store import DiskStore
from plait.residency.holdings import Place
from plait.residency.host_store import HostStore
from plait.residency.ledger import ResidencyLedger
from plait.residency.rates import TransferRates
from plait.residency.tensor_group import TensorGroup
from plait.residency.tier import TIERS, Tier
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
        disk_lasts: bool = True,
    ) -> None:
        self.ledger, self.clock, self.rates = ledger, clock, TransferRates()
        self.changed = threading.Condition(threading.RLock())
        self.groups: dict[str, TensorGroup] = {}
        self.device = DeviceStore(device)
        self.host = HostStore(host_folder) if host_folder is not None else None
        self.disk = DiskStore(disk_folder, disk_lasts) if disk_folder is not None else None
        self._left: list[Place] = []
        """What nobody uses and could not be removed."""
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

    def buffer(self, key: str) -> Tensor:
        """A content's bytes: where they are on the device or in the host's memory, or read from the disk."""
        with self.changed:
            tier, num_bytes = self.ledger.place(key), self.ledger.num_bytes(key)
            if tier is Tier.DEVICE:
                return self.device.get(key)
        if tier is None:
            raise _nowhere(key)
        if tier is Tier.HOST and self.host is not None:
            return self.host.view(key, num_bytes)
        buffer = allocate(num_bytes, "cpu")
        self.file_store(tier).read(key, buffer)
        return buffer

    def load(self, key: str, num_bytes: int) -> tuple[Tier, Tensor]:
        """A copy of a content for the device, from the fastest tier that has it whole. A damaged copy is given up for another."""
        buffer = self.device.allocate(num_bytes)
        error = _nowhere(key)
        damaged: list[Place] = []
        for tier in (Tier.HOST, Tier.DISK):
            with self.changed:
                is_here = self.ledger.has(tier, key)
            if is_here:
                try:
                    self.file_store(tier).read(key, buffer)
                    if damaged:
                        self.discard(damaged, is_lost=True)
                    return tier, buffer
                except StateError as found:
                    error = found
                    damaged.append((tier, key))
        raise error

    def announce(self, key: str) -> None:
        """A content is to be loaded soon: begin if that takes the disk."""
        with self.changed:
            is_on_disk = self.ledger.place(key) is Tier.DISK
        if is_on_disk and self.disk is not None:
            self.disk.announce(key)

    def agrees(self, key: str, buffer: Tensor) -> bool:
        """Whether a content of this key, if there is one, has these bytes."""
        with self.changed:
            tier = self.ledger.place(key)
            if tier is None:
                return True
            if tier is Tier.DEVICE:
                return self.device.holds(key, buffer)
        return self.file_store(tier).holds(key, buffer)

    # ---- of several

    def discard(self, places: Iterable[Place], is_lost: bool = False) -> None:
        """Contents leave their tiers. What cannot be removed stays counted, and is tried again next time if nobody uses it."""
        with self.changed:
            left = [(tier, key) for tier, key in self._left if self.ledger.is_garbage(tier, key)]
            self._left.clear()
            for tier, key in dict.fromkeys([*left, *places]):
                store = self.device if tier is Tier.DEVICE else self.file_store(tier)
                if store.remove(key) or is_lost:
                    self.ledger.discard(tier, key, is_lost)
                elif self.ledger.is_garbage(tier, key):
                    self._left.append((tier, key))
            self.changed.notify_all()
        for tier in TIERS:
            self.bound_spares(tier)

    def bound_spares(self, tier: Tier, sizes: Iterable[int] = ()) -> None:
        """What a tier keeps to be written over takes what its budget leaves; files no more than may come down at once.

        `sizes`: of what is about to come, with its room reserved, for which spare ones are left as they are.
        """
        store = self.device if tier is Tier.DEVICE else self.host if tier is Tier.HOST else self.disk
        if store is None or not store.spares.num_bytes:
            return
        with self.changed:
            budget, device_bytes = self.ledger.budgets[tier], self.ledger.budgets[Tier.DEVICE]
            used_bytes, device_used_bytes = self.ledger.used_bytes(tier), self.ledger.used_bytes(Tier.DEVICE)
        most_bytes = device_used_bytes if device_bytes is None else device_bytes
        if tier is Tier.DEVICE and budget is None:
            most_bytes = 0  # Nobody says how much it may be.
        store.spares.keep(sizes, most_bytes if budget is None else min(most_bytes, budget - used_bytes))

    def rename(self, name: str, keys: dict[str, str]) -> None:
        """Private contents of a group have got digests."""
        with self.changed:
            for old, new in keys.items():
                if self.ledger.has(Tier.DEVICE, old):
                    self.device.rename(old, new)
            self.ledger.rename(keys)
            self.groups[name] = self.groups[name].renamed(keys)

    def close(self) -> None:
        if self.host is not None:
            self.host.close()
        if self.disk is not None:
            self.disk.close()


def _nowhere(key: str) -> StateError:
    return StateError(f"content {key} is nowhere.", "Load the group again from where it came from.")
