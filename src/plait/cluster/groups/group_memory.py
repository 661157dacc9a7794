"""The memory of a worker group: base weights, state of deployments, and room that deployments fill themselves, in one account.

- Base weights are kept once for all deployments of a base, in parts of a layer each, so that laying them out anew never needs all
  of them on the device twice.
- State that is put away leaves the device when room is needed there; caches that find no room anywhere are lost.
- What is on the device, room that is promised included, never exceeds the group's budget.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

from plait.cluster.groups.base_weights import part_of
from plait.cluster.groups.messages import ConfigureGroup
from plait.cluster.groups.moving_memory import MovingMemory
from plait.residency.tier import Tier
from plait.types.errors import CapacityError, PlaitError

Result = TypeVar("Result")


class GroupMemory(MovingMemory):
    def __init__(self, settings: ConfigureGroup, device: torch.device) -> None:
        budgets = {Tier.DEVICE: settings.device_bytes, Tier.HOST: settings.host_bytes, Tier.DISK: settings.disk_bytes}
        host_folder = Path(settings.host_folder) if settings.host_bytes != 0 else None
        super().__init__(budgets, device, host_folder, Path(settings.folder) if settings.disk_bytes else None)
        self.device_bytes, self.host_bytes, self.disk_bytes = settings.device_bytes, settings.host_bytes, settings.disk_bytes
        self._numbers = itertools.count()
        self._rooms: dict[str, dict[str, int]] = {}
        """Bytes of each room, by owner."""
        self._caches: dict[str, list[str]] = {}
        """Groups that may be lost, by owner, whose cache was put away first is the first."""
        self._keeps_caches = False

    @property
    def below_bytes(self) -> int | None:
        """Room for what is off the device; None: as much as there is."""
        return None if self.host_bytes is None else self.host_bytes + self.disk_bytes

    @property
    def free_bytes(self) -> int:
        """Of the device."""
        return self.device_bytes - self.used_bytes()[Tier.DEVICE]

    # ---- room

    def take_room(self, owner: str, num_bytes: int) -> None:
        """So many bytes of the device are the owner's, in place of those it had. CapacityError: it keeps what it had."""
        rooms = self._rooms.setdefault(owner, {})
        missing_bytes = num_bytes - sum(rooms.values())
        if missing_bytes > 0:
            rooms[self._patiently(lambda: self._reserve(owner, missing_bytes))] = missing_bytes
        elif missing_bytes < 0:
            with self._changed:  # Nobody else gets what is given back before the rest is taken anew.
                for room in list(rooms):
                    self._give_back(room)
                self._rooms[owner] = {self._reserve(owner, num_bytes): num_bytes} if num_bytes else {}

    def room_bytes(self, owner: str) -> int:
        return sum(self._rooms.get(owner, {}).values())

    def _reserve(self, owner: str, num_bytes: int) -> str:
        """A group without tensors that is in use."""
        room = f"{owner}/room {next(self._numbers)}"
        reservation = self._mover.reserve(Tier.DEVICE, {room: num_bytes}, room)
        with self._changed:
            self._ledger.put(room, {room: num_bytes})
            self._ledger.pin(room)
            self._ledger.commit(reservation)
        return room

    def _give_back(self, room: str) -> None:
        with self._changed:
            self._ledger.unpin(room)
            for tier, key in self._ledger.remove(room):
                self._ledger.discard(tier, key)
            self._changed.notify_all()

    @contextmanager
    def keeping_caches(self) -> Iterator[None]:
        """No cache is lost to make room."""
        self._keeps_caches = True
        try:
            yield
        finally:
            self._keeps_caches = False

    def _without_caches(self, action: Callable[[], Result]) -> Result:
        """What finds no room as long as there are caches is done when they are lost."""
        while True:
            try:
                return self._patiently(action)
            except CapacityError:
                if self._keeps_caches or not self.lose_oldest_cache():
                    raise

    # ---- state of deployments

    def acquire(self, name: str, writable: bool = False) -> dict[str, Tensor]:
        return self._without_caches(lambda: super(GroupMemory, self).acquire(name, writable))

    def put_away(self, name: str, tensors: Mapping[str, Tensor]) -> None:
        """It leaves the device as soon as room is needed there. Without tensors the group is gone."""
        if self.is_acquired(name):
            self.release(name)
        if not tensors:
            self.lose(name)
            return
        self._without_caches(lambda: self._store(name, tensors))

    def _store(self, name: str, tensors: Mapping[str, Tensor]) -> None:
        if name in self and {entry.name for entry in self.group(name).tensors} == tensors.keys():
            self.update(name, tensors)
        else:
            self.lose(name)
            self.register(name, tensors, is_private=True)

    # ---- caches, which may be lost

    def put_cache_away(self, owner: str, cache: Tensor, piece_bytes: int) -> None:
        """In pieces along the first dimension, so that taking it back needs no more than one of them on the device besides."""
        rows = max(1, piece_bytes * len(cache) // cache.nbytes)
        names = self._caches[owner] = []
        try:
            for number, piece in enumerate(cache.split(rows)):
                self.register(f"{owner}/cache {number}", {"cache": piece}, is_private=True)
                names.append(f"{owner}/cache {number}")
        except PlaitError:
            self.lose_cache(owner)

    def take_cache(self, owner: str) -> Iterator[Tensor]:
        """Its pieces, each to be copied before the next; all of it, or what there is until some of it is lost."""
        for name in list(self._caches.get(owner, ())):
            try:
                piece = self.acquire(name)["cache"]
            except PlaitError:
                break
            yield piece
            self.lose(name)
        self.lose_cache(owner)

    def lose_oldest_cache(self) -> bool:
        """False if there is none."""
        owner = next(iter(self._caches), None)
        if owner is not None:
            self.lose_cache(owner)
        return owner is not None

    def lose_cache(self, owner: str) -> None:
        for name in self._caches.pop(owner, ()):
            self.lose(name)

    # ---- base weights

    def hold_base(self, base: str, weights: Mapping[str, Tensor]) -> None:
        """Take a base's weights into care, unless they are there."""
        parts: dict[str, dict[str, Tensor]] = {}
        for name, tensor in weights.items():
            parts.setdefault(part_of(base, name), {})[name] = tensor
        for part, tensors in parts.items():
            if part not in self:
                self.register(part, tensors)

    def drop_base(self, base: str) -> None:
        """No deployment has it any more."""
        for part in self.base_parts(base):
            self.lose(part)

    def base_bytes(self, base: str) -> int:
        return sum(self.group(part).num_bytes for part in self.base_parts(base))

    def base_parts(self, base: str) -> list[str]:
        return [name for name in self.names() if name.startswith(f"{base}/")]
