"""The state manager of a process: groups of tensors on the device when they are needed, elsewhere when they are not.

- `acquire` gives a group's tensors on the device and keeps them there until `release`; it waits for nothing but its own group and
  the room that takes. `prefetch` and `offload` work on a thread beside the caller.
- Tensors that were acquired are to be read, unless they were acquired `writable`: contents are shared by all groups that hold equal
  ones.
- A group that was written to disk is there again for the next manager of that folder, as it was last written there.
- An operation that fails raises `StateError` (a tier cannot be written, a copy is damaged) or `CapacityError` (there is no room)
  and leaves all as it was.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from plait.kv.background import Background
from plait.residency import canonical, content_file
from plait.residency.eviction import EvictionOrder, least_soon
from plait.residency.group_changes import GroupChanges
from plait.residency.host_store import other_key
from plait.residency.ledger import ResidencyLedger
from plait.residency.mover import Mover
from plait.residency.setup import estimate_setup_s
from plait.residency.stores import Stores
from plait.residency.tensor_group import TensorGroup
from plait.residency.tier import TIERS, Tier
from plait.types.errors import CapacityError, StateError


class StateManager:
    """`budgets`: bytes by tier, None without bound. A tier below the device needs its folder: the host's in memory (tmpfs).

    `disk_lasts`: what was written to the disk tier as a whole is there again for the next manager of the folder; else it is only a
    place for what other tiers have no room for.
    """

    def __init__(
        self,
        budgets: Mapping[Tier, int | None],
        device: torch.device | str = "cpu",
        host_folder: Path | None = None,
        disk_folder: Path | None = None,
        order: EvictionOrder = least_soon,
        clock: Callable[[], float] = time.monotonic,
        disk_lasts: bool = True,
    ) -> None:
        self._ledger, self._clock, self._order = ResidencyLedger(budgets), clock, order
        self._background = Background("plait-residency")
        self._stores = Stores(self._ledger, torch.device(device), host_folder, disk_folder, clock, disk_lasts)
        self._changed = self._stores.changed
        self._mover = Mover(self._stores, order)
        self._changes = GroupChanges(self._stores, self._mover)

    # ---- groups

    def register(self, name: str, tensors: Mapping[str, Tensor], version: int = 0, is_private: bool = False) -> None:
        """Take a group into care: on the device if there is room, else below. The caller gives the tensors up.

        `is_private`: it is soon to be written into, so what others have of it too is not looked for before it leaves the device.
        """
        if name in self:
            raise StateError(f"group {name!r} is there already.", "Update it, or drop it first.")
        entries, flat = canonical.flatten(tensors, self._changes.new_keys(tensors))
        keys = {key: key if is_private else self._content_key(buffer) for key, buffer in flat.items()}
        sizes = {key: buffer.numel() for key, buffer in flat.items()}
        group = TensorGroup(name, tuple(entries), sizes, version).renamed(keys)
        with self._changed:
            self._stores.groups[name] = group
            self._ledger.put(name, group.contents)
            self._ledger.touch(name, self._clock())
        with self._mover.moving(name):
            try:
                self._place(name, {keys[key]: buffer for key, buffer in flat.items()})
            except BaseException:
                self._forget(name)
                raise

    def _content_key(self, buffer: Tensor) -> str:
        """The digest; of other bytes with the same digest, if there are any, the next key."""
        key = content_file.digest(content_file.pieces(buffer))
        while not self._stores.agrees(key, buffer):
            key = other_key(key)
        return key

    def _place(self, name: str, buffers: Mapping[str, Tensor]) -> None:
        with self._changed:
            missing = self._ledger.missing(name, Tier.DEVICE)
            reservation = self._ledger.reserve(Tier.DEVICE, missing)
            nowhere = {key: num_bytes for key, num_bytes in missing.items() if self._ledger.place(key) is None}
        if reservation is not None:
            self._mover.arrive(reservation, {key: buffers[key] for key in missing})
        else:
            self._mover.copy_below(name, nowhere, buffers)

    def drop(self, name: str) -> None:
        """Forget a group, in all tiers. `StateError` if it is in use."""
        with self._mover.moving(name):
            if self._mover.is_used(name):
                raise StateError(f"group {name!r} is in use.", "Release it first.")
            self._forget(name)

    def _forget(self, name: str) -> None:
        with self._changed:
            if self._stores.disk is not None and self._ledger.saved(name):
                self._stores.disk.withdraw(name)
            del self._stores.groups[name]
            self._stores.discard(self._ledger.remove(name))

    # ---- use

    def acquire(self, name: str, writable: bool = False) -> dict[str, Tensor]:
        """The group's tensors on the device, where they stay until they are released as often.

        What is written into tensors that were acquired `writable` is what the group consists of from then on.
        """
        with self._mover.moving(name):
            self._mover.load(name)
            if writable:
                self._changes.make_private(name)
            with self._changed:
                self._ledger.pin(name)
                self._ledger.touch(name, self._clock())
                return self._changes.views(self._stores.groups[name])

    def release(self, name: str) -> None:
        with self._changed:
            if not self._ledger.pins(name):
                raise StateError(f"group {name!r} is not in use.", "Release a group as often as it was acquired.")
            self._ledger.unpin(name)
            self._ledger.touch(name, self._clock())
            self._changed.notify_all()

    def update(self, name: str, tensors: Mapping[str, Tensor], version: int | None = None) -> None:
        """These of the group's tensors are now other ones, or new. What was acquired `writable` may be given as it is.

        `version`: one more than before unless it is given. Whoever has the group acquired goes on with what he has.
        """
        with self._mover.moving(name):
            self._changes.update(name, tensors, version)

    # ---- ahead of use

    def hint(self, names: Sequence[str]) -> None:
        """What the scheduler runs next, the first first."""
        with self._changed:
            self._ledger.hint(names)

    def prefetch(self, name: str) -> None:
        """Load a group beside the caller, as far as that moves nothing away that is needed before."""
        self._background.submit(self._prefetch, name)

    def _prefetch(self, name: str) -> None:
        with self._mover.moving(name):
            with self._changed:
                spared = self._ledger.sooner(name)
                self._ledger.touch(name, self._clock())
            try:
                self._mover.load(name, spared)
            except CapacityError:
                self._mover.lift(name)

    def offload(self, name: str, tier: Tier = Tier.HOST) -> None:
        """Move a group down to a tier beside the caller, unless it is in use then. What is on disk outlives a crash."""
        self._background.submit(self._offload, name, tier)

    def _offload(self, name: str, tier: Tier) -> None:
        with self._mover.moving(name):
            if not self._mover.is_used(name):
                self._mover.leave(name, tier)

    def flush(self) -> None:
        """Wait for what was prefetched and offloaded."""
        self._background.flush()

    # ---- what is known

    def __contains__(self, name: str) -> bool:
        with self._changed:
            return name in self._ledger

    def names(self) -> list[str]:
        with self._changed:
            return sorted(self._stores.groups)

    def group(self, name: str) -> TensorGroup:
        with self._changed:
            if name not in self._stores.groups:
                raise StateError(f"there is no group {name!r}.", "Register it first.")
            return self._stores.groups[name]

    def tier(self, name: str) -> Tier:
        """The fastest tier that has all of a group, or the slowest it has to be loaded from. `StateError` if some of it is lost."""
        with self._changed:
            self.group(name)
            tier = self._ledger.tier(name)
        if tier is None:
            raise StateError(f"group {name!r} has lost some of its contents.", "Load it again from where it came from.")
        return tier

    def used_bytes(self) -> dict[Tier, int]:
        with self._changed:
            return {tier: self._ledger.used_bytes(tier) for tier in TIERS}

    def setup_s(self, *names: str) -> float:
        """How long acquiring these would take: 0 on the device, else what has to leave and what has to come, as measured so far."""
        with self._changed:
            return estimate_setup_s(self._ledger, self._stores.rates, self._order, names, self._clock())

    def close(self) -> None:
        """End what runs beside; what only this process has in the host's memory is gone then, what is on disk stays."""
        self._background.close()
        self._stores.close()
