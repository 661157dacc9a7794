"""Moves groups between tiers, making room for them. Any thread may call; see `Stores` for what a lock guards.

- `changed` guards decisions, never a copy. A group that is being moved is pinned in all tiers, so that its sources stay.
- `_room` is held while groups leave a tier for the sake of others, one set at a time. Whoever holds it waits only for moves that
  have their reservation, and those wait for nobody: no deadlock.
- A move that fails gives back what it reserved and wrote; where things were before, they still are.
"""

import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

from torch import Tensor

from plait.residency.eviction import EvictionOrder
from plait.residency.ledger import Reservation
from plait.residency.stores import Stores
from plait.residency.tier import TIERS, Tier
from plait.types.errors import CapacityError, PlaitError, StateError

WAIT_S = 1.0
"""How often somebody who waits for another's move looks by himself."""


class Mover:
    def __init__(self, stores: Stores, order: EvictionOrder) -> None:
        self._stores, self._ledger, self._changed, self._order = stores, stores.ledger, stores.changed, order
        self._room = threading.RLock()
        self._moving: set[str] = set()

    @contextmanager
    def moving(self, name: str) -> Iterator[None]:
        """The only one to move a group. Waits for another's move of it."""
        with self._changed:
            while name in self._moving:
                self._changed.wait(WAIT_S)
            if name not in self._ledger:
                raise StateError(f"there is no group {name!r}.", "Register it first.")
            self._moving.add(name)
            self._ledger.pin(name, TIERS)
        try:
            yield
        finally:
            with self._changed:
                self._moving.discard(name)
                self._ledger.unpin(name, TIERS)
                self._changed.notify_all()

    # ---- towards the device

    def load(self, name: str, spared: Collection[str] = ()) -> None:
        """All of a group onto the device; the caller is `moving` it. `spared` are not to leave for it."""
        with self._changed:
            missing = self._ledger.missing(name, Tier.DEVICE)
        if not missing:
            return
        reservation = self.reserve(Tier.DEVICE, missing, spared)
        try:
            buffers = {key: self._stores.load(key, num_bytes) for key, num_bytes in missing.items()}
        except BaseException:
            self.roll_back(reservation)
            raise
        self.arrive(reservation, buffers)

    def arrive(self, reservation: Reservation, buffers: Mapping[str, Tensor]) -> None:
        with self._changed:
            for key, buffer in buffers.items():
                if not self._ledger.has(Tier.DEVICE, key):
                    self._stores.device.put(key, buffer)
            self._ledger.commit(reservation)
            self._changed.notify_all()

    def roll_back(self, reservation: Reservation) -> None:
        with self._changed:
            self._ledger.roll_back(reservation)
            self._changed.notify_all()

    # ---- room

    def reserve(self, tier: Tier, contents: Mapping[str, int], spared: Collection[str] = ()) -> Reservation:
        """Room in a tier, if need be made by moving others down. `CapacityError` if there cannot be enough."""
        reservation = self._try_reserve(tier, contents)
        if reservation is None:
            with self._room:
                while (reservation := self._try_reserve(tier, contents)) is None:
                    self._make_room(tier, contents, spared)
        return reservation

    def _try_reserve(self, tier: Tier, contents: Mapping[str, int]) -> Reservation | None:
        with self._changed:
            return self._ledger.reserve(tier, contents)

    def _make_room(self, tier: Tier, contents: Mapping[str, int], spared: Collection[str]) -> None:
        if tier is Tier.DISK:
            self._withdraw_stale(contents)
            return
        with self._changed:
            num_bytes = sum(contents.values())
            shortfall = self._ledger.shortfall(tier, num_bytes)
            victims = self._ledger.victims(tier, shortfall, self._order, self._stores.clock(), {*self._moving, *spared})
            if victims is None and self._ledger.num_reservations:
                self._changed.wait(WAIT_S)
                return
            if victims is None:
                raise self._no_room(tier, num_bytes)
            self._moving.update(victims)
        try:
            self._leave(tier, victims)
        finally:
            with self._changed:
                self._moving.difference_update(victims)
                self._changed.notify_all()

    def _withdraw_stale(self, contents: Mapping[str, int]) -> None:
        """Give up the saved form of a group that has changed since: only a crash would need it."""
        with self._changed:
            stale = self._ledger.stale()
            if not stale:
                raise self._no_room(Tier.DISK, sum(contents.values()))
            if self._stores.disk is not None:
                self._stores.disk.withdraw(stale[0])
            self._stores.discard(self._ledger.forget(stale[0]))

    def _no_room(self, tier: Tier, num_bytes: int) -> CapacityError:
        used, budget = self._ledger.used_bytes(tier), self._ledger.budgets[tier]
        message = f"{num_bytes} bytes do not fit into {tier.value}: {used} of its {budget} bytes are used, too few can leave."
        return CapacityError(message, "Raise its budget, or release groups.")

    # ---- away from the device

    def leave(self, name: str, tier: Tier) -> None:
        """A group leaves all tiers faster than this one, into it; the caller is `moving` it. Pinned groups stay: `StateError`."""
        with self._room:
            with self._changed:
                if self._ledger.pins(name, Tier.DEVICE) > 1:
                    raise StateError(f"group {name!r} is in use.", "Release it first.")
            if tier is Tier.DISK:
                self.copy_to_disk(name)
            else:
                self.copy(name, self._missing_below(name), Tier.HOST)
            with self._changed:
                self._ledger.unpin(name, TIERS)
                for faster in TIERS[: tier.rank]:
                    self._discard_freed(faster, [name])
                self._ledger.pin(name, TIERS)

    def _missing_below(self, name: str) -> dict[str, int]:
        with self._changed:
            return {k: n for k, n in self._ledger.contents(name).items() if self._ledger.place_below(k) is None}

    def _leave(self, tier: Tier, names: Sequence[str]) -> None:
        """Groups leave a tier; what has no other copy is copied down first."""
        for name in names:
            with self._changed:
                freed = self._ledger.freed(tier, names).keys() & self._ledger.contents(name).keys()
                sole = {key: self._ledger.num_bytes(key) for key in sorted(freed) if self._ledger.is_last(tier, key)}
            if sole:
                self._copy_down(name, sole, tier)
        self._discard_freed(tier, names)

    def _discard_freed(self, tier: Tier, names: Sequence[str]) -> None:
        with self._changed:
            freed = self._ledger.freed(tier, names)
            self._stores.discard((tier, key) for key in freed if not self._ledger.is_needed(tier, key))

    def _copy_down(self, name: str, contents: Mapping[str, int], tier: Tier) -> None:
        """To the next tier, or to the disk if that one cannot take it; to the disk goes all of the group."""
        if tier is Tier.DEVICE and self._stores.host is not None:
            try:
                self.copy(name, contents, Tier.HOST)
                return
            except PlaitError:
                if self._stores.disk is None:
                    raise
        self.copy_to_disk(name)

    def copy_below(self, name: str, contents: Mapping[str, int], buffers: Mapping[str, Tensor]) -> None:
        """Contents that are nowhere yet go to the host's memory, or to the disk if that has no room."""
        if self._stores.host is not None:
            try:
                self.copy(name, contents, Tier.HOST, buffers)
                return
            except PlaitError:
                if self._stores.disk is None:
                    raise
        self.copy(name, contents, Tier.DISK, buffers)
        self.copy_to_disk(name)

    def lift(self, name: str) -> None:
        """From the disk into the host's memory."""
        with self._changed:
            missing = self._ledger.missing(name, Tier.HOST)
            lacking = {k: n for k, n in missing.items() if not self._ledger.has(Tier.DEVICE, k)}
        if self._stores.host is not None:
            self.copy(name, lacking, Tier.HOST)

    def copy_to_disk(self, name: str) -> None:
        """All of the group, so that it outlives a crash."""
        with self._room:
            with self._changed:
                missing = self._ledger.missing(name, Tier.DISK)
            self.copy(name, missing, Tier.DISK)
            self._save(name)

    def _save(self, name: str) -> None:
        with self._changed:
            group = self._stores.groups[name]
            if self._stores.disk is None or self._ledger.saved(name) == group.contents.keys():
                return
        self._stores.disk.publish(group)
        with self._changed:
            self._stores.discard(self._ledger.save(name, group.contents))

    def copy(self, name: str, contents: Mapping[str, int], tier: Tier, buffers: Mapping[str, Tensor] | None = None) -> None:
        """Copy contents of a group to a tier below the device, from `buffers` or from where they are.

        `StateError` if one cannot be read or written, `CapacityError` if there is no room; then nothing has changed.
        """
        while contents and not self._copy_once(name, contents, tier, buffers or {}):
            pass

    def _copy_once(self, name: str, contents: Mapping[str, int], tier: Tier, buffers: Mapping[str, Tensor]) -> bool:
        with self._room:
            store, reservation = self._stores.file_store(tier), self.reserve(tier, contents)
            written: dict[str, str] = {}
            try:
                for key in contents:
                    written[key] = self._write(key, tier, buffers.get(key))
            except BaseException as error:
                self._undo(tier, reservation, written)
                if isinstance(error, OSError):
                    message = f"cannot move group {name!r} to {tier.value}: {error.strerror or error}."
                    raise StateError(message, "Make room there.") from error
                raise
            with self._changed:
                if not all(store.has(key) for key in written.values()):  # equal contents were there and have been discarded since
                    self._undo(tier, reservation, written)
                    return False
                self._ledger.commit(reservation)
                self._stores.rename(name, {old: new for old, new in written.items() if old != new})
                self._changed.notify_all()
                return True

    def _write(self, key: str, tier: Tier, buffer: Tensor | None) -> str:
        source = Tier.DEVICE
        if buffer is None:
            source, buffer = self._stores.buffer(key)
        start_s = time.perf_counter()
        new = self._stores.file_store(tier).write(key, buffer)
        self._stores.observe((source, tier), buffer.numel(), start_s)
        return new

    def _undo(self, tier: Tier, reservation: Reservation, written: Mapping[str, str]) -> None:
        with self._changed:
            for key in written.values():
                if not self._ledger.has(tier, key):
                    self._stores.file_store(tier).remove(key)
            self.roll_back(reservation)
