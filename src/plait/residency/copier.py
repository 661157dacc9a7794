"""Copies contents down to the host's memory or the disk. A copy that fails gives back what it reserved and wrote."""

import errno
import time
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from plait.residency.ledger import Reservation
from plait.residency.parallel import for_each
from plait.residency.stores import Stores
from plait.residency.tier import Tier
from plait.types.errors import CapacityError, StateError

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
"""What the system says where the budget would have let more come."""

MANY_BYTES = 8 << 20
"""From here on contents are written by as many threads as torch computes with here."""

Reserve = Callable[[Tier, Mapping[str, int], str], Reservation]
"""(tier, contents, the group they are of) -> room for them; `CapacityError` if there is none."""


class Copier:
    """Callers are `moving` the group; see `Mover`."""

    def __init__(self, stores: Stores, reserve: Reserve) -> None:
        self._stores, self._ledger, self._changed, self._reserve = stores, stores.ledger, stores.changed, reserve

    def to_disk(self, name: str, buffers: Mapping[str, Tensor] | None = None, needed: Mapping[str, int] | None = None) -> None:
        """All of the group, so that it outlives a crash; where the disk is not to last, only the contents that are needed there."""
        lasts = self._stores.disk is None or self._stores.disk.lasts
        with self._changed:
            missing = self._ledger.missing(name, Tier.DISK)
        if not lasts and needed is not None:
            missing = {key: num_bytes for key, num_bytes in missing.items() if key in needed}
        self.copy(name, missing, Tier.DISK, buffers)
        if lasts:
            self._save(name)

    def _save(self, name: str) -> None:
        """Its contents are on the disk: from now on it is there after a crash."""
        with self._changed:
            group = self._stores.groups[name]
            if self._stores.disk is None or self._ledger.saved(name) == group.contents.keys():
                return
        try:
            self._stores.disk.publish(group)
        except StateError:
            with self._changed:
                if self._ledger.saved(name) and not self._stores.disk.lists(name):
                    self._stores.discard(self._ledger.forget(name))
            raise
        with self._changed:
            self._stores.discard(self._ledger.save(name, group.contents))

    def copy(self, name: str, contents: Mapping[str, int], tier: Tier, buffers: Mapping[str, Tensor] | None = None) -> None:
        """Some contents of a group, from `buffers` or from where they are; private ones get their digests.

        `StateError` if one cannot be read or written, `CapacityError` if there is no room, whatever the budget says; then nothing
        has changed.
        """
        while contents and not self._copy_once(name, contents, tier, buffers or {}):
            pass

    def _copy_once(self, name: str, contents: Mapping[str, int], tier: Tier, buffers: Mapping[str, Tensor]) -> bool:
        """Whether it is done. It is not when an equal content that was there has gone meanwhile."""
        reservation = self._reserve(tier, contents, name)
        written: dict[str, str] = {}
        store, start_s = self._stores.file_store(tier), time.perf_counter()
        with self._changed:
            source = self._ledger.place(next(iter(contents))) or Tier.DEVICE

        def write(key: str) -> None:
            buffer = buffers[key] if key in buffers else self._stores.buffer(key)
            try:
                written[key] = store.write(key, buffer)
            except OSError as error:
                if error.errno not in NO_ROOM or not store.spares.clear():
                    raise
                written[key] = store.write(key, buffer)

        try:
            is_much = sum(contents.values()) >= MANY_BYTES
            largest_first = sorted(contents, key=contents.__getitem__, reverse=True)  # so that threads end together
            for_each(write, largest_first, torch.get_num_threads() if is_much else 1)
            store.sync(written.values())
        except BaseException as error:
            self._undo(reservation, written)
            if isinstance(error, OSError):
                kind = CapacityError if error.errno in NO_ROOM else StateError
                message = f"cannot move group {name!r} to {tier.value}: {error.strerror or error}."
                raise kind(message, "Make room there, or mend it.") from error
            raise
        self._stores.rates.observe((source, tier), sum(contents.values()), time.perf_counter() - start_s)
        return self._commit(name, reservation, written)

    def _commit(self, name: str, reservation: Reservation, written: Mapping[str, str]) -> bool:
        store = self._stores.file_store(reservation.tier)
        with self._changed:
            if not all(store.has(key) for key in written.values()):
                self._undo(reservation, written)
                return False
            self._ledger.commit(reservation)
            self._stores.rename(name, {old: new for old, new in written.items() if old != new})
            self._changed.notify_all()
            return True

    def _undo(self, reservation: Reservation, written: Mapping[str, str]) -> None:
        with self._changed:
            for key in written.values():
                if not self._ledger.has(reservation.tier, key):
                    self._stores.file_store(reservation.tier).remove(key)
            self._ledger.roll_back(reservation)
            self._changed.notify_all()
        self._stores.bound_spares(reservation.tier)
