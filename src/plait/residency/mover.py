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

from plait.residency.copier import Copier
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
        self.copies = Copier(stores, self.reserve)
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
                if name in self._ledger:  # else it was dropped
                    self._ledger.unpin(name, TIERS)
                self._changed.notify_all()

    # ---- towards the device

    def load(self, name: str, spared: Collection[str] = ()) -> None:
        """All of a group onto the device; the caller is `moving` it. `spared` are not to leave for it."""
        while missing := self._missing(name):
            try:
                reservation = self.reserve(Tier.DEVICE, missing, name, spared, is_load=True)
                break
            except CapacityError:  # What another group had in private may turn out, as it leaves, to be what this one lacks.
                if self._missing(name) == missing:
                    raise
        else:
            return
        try:
            buffers = self._read(missing)
        except BaseException:
            self.roll_back(reservation)
            raise
        self.arrive(reservation, buffers)

    def _missing(self, name: str) -> dict[str, int]:
        with self._changed:
            return self._ledger.missing(name, Tier.DEVICE)

    def _read(self, contents: Mapping[str, int]) -> dict[str, Tensor]:
        buffers: dict[str, Tensor] = {}
        moved: dict[Tier, list[tuple[int, float]]] = {}
        keys = list(contents)
        for key, following in zip(keys, [*keys[1:], None], strict=True):
            if following is not None:
                self._stores.announce(following)
            start_s = time.perf_counter()
            tier, buffers[key] = self._stores.load(key, contents[key])
            moved.setdefault(tier, []).append((contents[key], time.perf_counter() - start_s))
        with self._changed:
            for tier, parts in moved.items():
                self._stores.rates.observe((tier, Tier.DEVICE), sum(n for n, _ in parts), sum(spent_s for _, spent_s in parts))
        return buffers

    def arrive(self, reservation: Reservation, buffers: Mapping[str, Tensor]) -> None:
        """The reserved contents are here, on whichever device: if they cannot be copied, what was reserved is given back."""
        try:
            on_device = self._stores.device.own(buffers)
        except BaseException:
            self.roll_back(reservation)
            raise
        with self._changed:
            for key, buffer in on_device.items():
                if not self._ledger.has(Tier.DEVICE, key):
                    self._stores.device.put(key, buffer)
            self._ledger.commit(reservation)
            self._changed.notify_all()

    def roll_back(self, reservation: Reservation) -> None:
        with self._changed:
            self._ledger.roll_back(reservation)
            self._changed.notify_all()

    # ---- room

    def reserve(
        self, tier: Tier, contents: Mapping[str, int], owner: str = "", spared: Collection[str] = (), is_load: bool = False
    ) -> Reservation:
        """Room for a move of a group; without an `owner`, room that lasts until it is rolled back. Others make room by moving down.
        `is_load`: contents are read from below. `CapacityError` if there cannot be enough."""
        reservation = self._try_reserve(tier, contents, not owner)
        if reservation is None:
            with self._room:
                reservation = self._reserve_after_others(tier, contents, owner, spared)
        self._stores.bound_spares(tier, contents.values() if is_load or tier is not Tier.DEVICE else ())
        return reservation

    def _reserve_after_others(self, tier: Tier, contents: Mapping[str, int], owner: str, spared: Collection[str]) -> Reservation:
        """Those that cannot leave are passed over for others; the first error is raised if there are none."""
        stuck: dict[str, PlaitError] = {}
        while (reservation := self._try_reserve(tier, contents, not owner)) is None:
            try:
                if tier is Tier.DISK:
                    self._thin_out_disk(contents, owner)
                else:
                    stuck |= self._make_room(tier, contents, {*spared, *stuck})
            except CapacityError as error:
                raise next(iter(stuck.values()), error) from None
        return reservation

    def _try_reserve(self, tier: Tier, contents: Mapping[str, int], is_lasting: bool) -> Reservation | None:
        with self._changed:
            return self._ledger.reserve(tier, contents, is_lasting)

    def _make_room(self, tier: Tier, contents: Mapping[str, int], spared: Collection[str]) -> dict[str, PlaitError]:
        """Let a set of groups leave, or wait for somebody's move. Who cannot leave, and why."""
        with self._changed:
            num_bytes = sum(contents.values())
            shortfall = self._ledger.shortfall(tier, num_bytes)
            victims = self._ledger.victims(tier, shortfall, self._order, self._stores.clock(), {*self._moving, *spared})
            if victims is None:
                self._await_reservations(tier, num_bytes)
                return {}
            self._moving.update(victims)
        try:
            return self._leave(tier, victims)
        finally:
            with self._changed:
                self._moving.difference_update(victims)
                self._changed.notify_all()

    def _thin_out_disk(self, contents: Mapping[str, int], owner: str) -> None:
        """Give up the saved form of a group that has changed since, which only a crash would need; first what nobody saved."""
        with self._changed:
            if spare := self._ledger.spare(Tier.DISK):
                self._stores.discard(spare)
                return
            stale = [name for name in self._ledger.stale() if name == owner or name not in self._moving]
            if not stale:
                self._await_reservations(Tier.DISK, sum(contents.values()))
                return
            if self._stores.disk is not None:
                self._stores.disk.withdraw(stale[0])
            self._stores.discard(self._ledger.forget(stale[0]))

    def _await_reservations(self, tier: Tier, num_bytes: int) -> None:
        """Moves that have their room end by themselves, and then what they moved may leave, or what they left may be taken."""
        if not self._ledger.is_moving:
            raise self._no_room(tier, num_bytes)
        self._changed.wait(WAIT_S)

    def _no_room(self, tier: Tier, num_bytes: int) -> CapacityError:
        used, budget = self._ledger.used_bytes(tier), self._ledger.budgets[tier]
        message = f"{num_bytes} bytes do not fit into {tier.value}: {used} of its {budget} bytes are used, too few can leave."
        return CapacityError(message, "Raise its budget, or release groups.")

    # ---- away from the device

    def leave(self, name: str, tier: Tier) -> None:
        """A group leaves all tiers faster than this one, into it; the caller is `moving` it, and nobody uses it."""
        with self._changed:
            contents = self._ledger.contents(name)
            nowhere_below = {key: n for key, n in contents.items() if self._ledger.place_below(key) is None}
        if tier is Tier.DISK:
            self.copies.to_disk(name)
        else:
            self.copies.copy(name, nowhere_below, tier)
        with self._changed:
            self._ledger.unpin(name, TIERS)
            for faster in TIERS[: tier.rank]:
                self._discard_freed(faster, [name])
            self._ledger.pin(name, TIERS)

    def is_used(self, name: str) -> bool:
        """Whether anybody has acquired a group that the caller is `moving`."""
        with self._changed:
            return self._ledger.pins(name) > 1

    def _leave(self, tier: Tier, names: Sequence[str]) -> dict[str, PlaitError]:
        """Groups leave a tier; what has no other copy is copied down first. If one cannot be, which, and all stay."""
        for name in names:
            with self._changed:
                freed = self._ledger.freed(tier, names).keys() & self._ledger.contents(name).keys()
                sole = {key: self._ledger.num_bytes(key) for key in sorted(freed) if self._ledger.is_last(tier, key)}
            try:
                if sole:
                    self._copy_down(name, sole, tier)
            except PlaitError as error:
                return {name: error}
        with self._changed:
            self._discard_freed(tier, names)
        return {}

    def _discard_freed(self, tier: Tier, names: Sequence[str]) -> None:
        freed = self._ledger.freed(tier, names)
        self._stores.discard([(tier, key) for key in freed if not self._ledger.is_needed(tier, key)])

    def _copy_down(self, name: str, contents: Mapping[str, int], tier: Tier) -> None:
        if tier is Tier.DEVICE:
            self.copy_below(name, contents, {})
        else:
            self.copies.to_disk(name, needed=contents)

    def copy_below(self, name: str, contents: Mapping[str, int], buffers: Mapping[str, Tensor]) -> None:
        """Contents that are on the device at most go to the host's memory; if it cannot take them, all of the group to the disk."""
        if self._stores.host is not None:
            try:
                self.copies.copy(name, contents, Tier.HOST, buffers)
                return
            except PlaitError:
                if self._stores.disk is None:
                    raise
        self.copies.to_disk(name, buffers, contents)

    def lift(self, name: str) -> None:
        """From the disk into the host's memory."""
        with self._changed:
            missing = self._ledger.missing(name, Tier.HOST)
            lacking = {key: n for key, n in missing.items() if not self._ledger.has(Tier.DEVICE, key)}
        if self._stores.host is not None:
            self.copies.copy(name, lacking, Tier.HOST)
