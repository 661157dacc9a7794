"""The state manager of a process: groups of tensors on the device when they are needed, elsewhere when they are not.

- `acquire` gives a group's tensors on the device and keeps them there until `release`; it waits for nothing but its own group and
  the room that takes. `prefetch` and `offload` work on a thread beside the caller.
- Tensors that were acquired are to be read, unless they were acquired `writable`: contents are shared by all groups that hold equal
  ones.
- A group that was written to disk is there again for the next manager of that folder, as it was last written there.
- An operation that fails raises `StateError` (a tier cannot be written, a copy is damaged) or `CapacityError` (there is no room)
  and leaves all as it was.
"""

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from plait.kv.background import Background
from plait.residency import canonical, content_file
from plait.residency.eviction import EvictionOrder, least_soon
from plait.residency.host_store import other_key
from plait.residency.ledger import ResidencyLedger
from plait.residency.mover import Mover
from plait.residency.setup import estimate_setup_s
from plait.residency.stores import Stores
from plait.residency.tensor_group import PRIVATE_PREFIX, TensorGroup, is_private, privatised
from plait.residency.tier import TIERS, Tier
from plait.types.errors import CapacityError, StateError


class StateManager:
    """`budgets`: bytes by tier, None without bound. A tier below the device needs its folder: the host's in memory (tmpfs)."""

    def __init__(
        self,
        budgets: Mapping[Tier, int | None],
        device: torch.device | str = "cpu",
        host_folder: Path | None = None,
        disk_folder: Path | None = None,
        order: EvictionOrder = least_soon,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ledger, self._clock, self._order = ResidencyLedger(budgets), clock, order
        self._stores = Stores(self._ledger, torch.device(device), host_folder, disk_folder, clock)
        self._changed = self._stores.changed
        self._mover = Mover(self._stores, order)
        self._background = Background("plait-residency")
        self._numbers = itertools.count()

    # ---- groups

    def register(self, name: str, tensors: Mapping[str, Tensor], version: int = 0) -> None:
        """Take a group into care: on the device if there is room, else below. The caller gives the tensors up."""
        if name in self:
            raise StateError(f"group {name!r} is there already.", "Update it, or drop it first.")
        entries, buffers = canonical.flatten(tensors, self._stores.device.device, self._new_keys(tensors))
        keys = {key: self._content_key(buffer) for key, buffer in buffers.items()}
        sizes = {key: buffer.numel() for key, buffer in buffers.items()}
        group = TensorGroup(name, tuple(entries), sizes, version).renamed(keys)
        with self._changed:
            self._stores.groups[name] = group
            self._ledger.put(name, group.contents)
            self._ledger.touch(name, self._clock())
        try:
            with self._mover.moving(name):
                self._place(name, {keys[key]: buffer for key, buffer in buffers.items()})
        except BaseException:
            self._forget(name)
            raise

    def _new_keys(self, names: Mapping[str, object]) -> dict[str, str]:
        return {name: self._new_key() for name in ("", *names)}

    def _new_key(self) -> str:
        return f"{PRIVATE_PREFIX}{next(self._numbers)}"

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
            if reservation is not None:
                self._mover.arrive(reservation, {key: buffers[key] for key in missing})
                return
            nowhere = {key: num_bytes for key, num_bytes in missing.items() if self._ledger.place(key) is None}
        self._mover.copy_below(name, nowhere, buffers)

    def drop(self, name: str) -> None:
        """Forget a group, in all tiers. `StateError` if it is in use."""
        with self._mover.moving(name), self._changed:
            self._check_unused(name)
        self._forget(name)

    def _forget(self, name: str) -> None:
        with self._changed:
            if self._stores.disk is not None and self._ledger.saved(name):
                self._stores.disk.withdraw(name)
            del self._stores.groups[name]
            self._stores.discard(self._ledger.remove(name))

    def _check_unused(self, name: str) -> None:
        if self._ledger.pins(name) > 1:  # one is of whoever moves it
            raise StateError(f"group {name!r} is in use.", "Release it first.")

    # ---- use

    def acquire(self, name: str, writable: bool = False) -> dict[str, Tensor]:
        """The group's tensors on the device, where they stay until they are released as often. What is written into them counts."""
        with self._mover.moving(name):
            self._mover.load(name)
            if writable:
                self._make_private(name)
            with self._changed:
                self._ledger.pin(name)
                self._ledger.touch(name, self._clock())
                return self._views(self._stores.groups[name])

    def _views(self, group: TensorGroup) -> dict[str, Tensor]:
        return {entry.name: canonical.view(entry, self._stores.device.get(entry.content)) for entry in group.tensors}

    def _make_private(self, name: str) -> None:
        """Contents of its own, under keys that are no digests. Copies only what other groups, or other tensors, use too."""
        with self._changed:
            group, origins = privatised(self._stores.groups[name], self._new_key)
            owned = {old: key for key, old in reversed(origins.items()) if self._ledger.users(old) == {name}}
            copied = {key: group.contents[key] for key, old in origins.items() if owned.get(old) != key}
            buffers = {key: self._stores.device.get(old) for key, old in origins.items()}
        reservation = self._mover.reserve(Tier.DEVICE, copied)
        try:
            buffers |= {key: buffers[key].clone() for key in copied}
        except BaseException:
            self._mover.roll_back(reservation)
            raise
        with self._changed:
            self._mover.arrive(reservation, {key: buffers[key] for key in copied})
            self._replace(group, buffers)

    def _replace(self, group: TensorGroup, buffers: Mapping[str, Tensor]) -> None:
        """A group consists of other contents from now on, all on the device; `buffers` are those that were not counted."""
        with self._changed:
            for key, buffer in buffers.items():
                self._stores.device.put(key, buffer)
            self._ledger.adopt(Tier.DEVICE, {key: buffer.numel() for key, buffer in buffers.items()})
            self._stores.groups[group.name] = group
            self._stores.discard(self._ledger.put(group.name, group.contents))

    def release(self, name: str) -> None:
        with self._changed:
            if not self._ledger.pins(name):
                raise StateError(f"group {name!r} is not in use.", "Release a group as often as it was acquired.")
            self._ledger.unpin(name)
            self._ledger.touch(name, self._clock())
            self._changed.notify_all()

    def update(self, name: str, tensors: Mapping[str, Tensor], version: int | None = None) -> None:
        """These of the group's tensors are now other ones, or new. What was acquired `writable` may be given as it is."""
        with self._mover.moving(name):
            with self._changed:
                before = self._stores.groups[name]
            if not tensors.keys() >= {entry.name for entry in before.tensors}:
                self._mover.load(name)
            with self._changed:
                before = self._stores.groups[name]
            group, buffers = self._updated(before, tensors)
            number = before.version + 1 if version is None else version
            group = TensorGroup(name, group.tensors, group.contents, number)
            reservation = self._mover.reserve(Tier.DEVICE, {key: buffer.numel() for key, buffer in buffers.items()})
            with self._changed:
                self._mover.arrive(reservation, buffers)
                self._replace(group, {})

    def _updated(self, before: TensorGroup, tensors: Mapping[str, Tensor]) -> tuple[TensorGroup, dict[str, Tensor]]:
        """The group with other tensors, and the buffers of the contents that are new."""
        given = {name: tensor for name, tensor in tensors.items() if not self._is_in_place(before, name, tensor)}
        kept = {entry.name: entry for entry in before.tensors if entry.name not in given}
        if any(not canonical.is_large(tensor) for tensor in given.values()):
            small = [entry for entry in kept.values() if not canonical.is_large_entry(entry)]
            given |= {entry.name: canonical.view(entry, self._stores.device.get(entry.content)) for entry in small}
            kept = {name: entry for name, entry in kept.items() if entry not in small}
        entries, buffers = canonical.flatten(given, self._stores.device.device, self._new_keys(given))
        contents = {entry.content: before.contents[entry.content] for entry in kept.values()}
        contents |= {key: buffer.numel() for key, buffer in buffers.items()}
        ordered = sorted([*kept.values(), *entries], key=lambda entry: entry.name)
        return TensorGroup(before.name, tuple(ordered), contents), buffers

    def _is_in_place(self, group: TensorGroup, name: str, tensor: Tensor) -> bool:
        """Whether a tensor is what the group has, in a content of its own."""
        entry = next((entry for entry in group.tensors if entry.name == name), None)
        if entry is None or not is_private(entry.content) or not self._ledger.has(Tier.DEVICE, entry.content):
            return False
        current = canonical.view(entry, self._stores.device.get(entry.content))
        return current.data_ptr() == tensor.data_ptr() and current.shape == tensor.shape and current.dtype == tensor.dtype

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
            try:
                self._mover.load(name, spared)
            except CapacityError:
                self._mover.lift(name)

    def offload(self, name: str, tier: Tier = Tier.HOST) -> None:
        """Move a group down to a tier beside the caller. To the disk goes a copy that outlives a crash."""
        self._background.submit(self._offload, name, tier)

    def _offload(self, name: str, tier: Tier) -> None:
        with self._mover.moving(name):
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

    def setup_s(self, name: str) -> float:
        """How long `acquire` would take: 0 on the device, else what has to leave and what has to come, as measured so far."""
        with self._changed:
            return estimate_setup_s(self._ledger, self._stores.rates, self._order, name, self._clock())

    def close(self) -> None:
        """End what runs beside; what only this process has in the host's memory is gone then, what is on disk stays."""
        self._background.close()
        self._stores.close()
