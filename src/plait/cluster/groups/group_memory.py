"""The memory of a worker group: base weights, state of deployments, and room that deployments fill themselves, in one account.

- Base weights are kept once for all deployments of a base, in parts of a layer each, so that laying them out anew never needs all
  of them on the device twice.
- State that is put away leaves the device when room is needed there; caches that find no room anywhere are lost.
- What is on the device, room that is promised included, never exceeds the group's budget.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

from plait.cluster.groups.messages import ConfigureGroup
from plait.residency.manager import StateManager
from plait.residency.tier import Tier
from plait.types.errors import CapacityError

BASE = "base "
"""With its digest, the name of a base."""
EMBEDDING = "embed_tokens"
"""Decoders compute with the very tensor: it stays while they are on the device."""

Result = TypeVar("Result")


class GroupMemory(StateManager):
    def __init__(self, settings: ConfigureGroup, device: torch.device) -> None:
        budgets = {Tier.DEVICE: settings.device_bytes, Tier.HOST: settings.host_bytes, Tier.DISK: settings.disk_bytes}
        host_folder = Path(settings.host_folder) if settings.host_bytes != 0 else None
        super().__init__(budgets, device, host_folder, Path(settings.folder) if settings.disk_bytes else None)
        self.device_bytes = settings.device_bytes
        self._numbers = itertools.count()
        self._rooms: dict[str, dict[str, int]] = {}
        """Bytes of each room, by owner."""
        self._caches: dict[str, list[str]] = {}
        """Groups that may be lost, by owner, whose cache was put away first is the first."""
        for name in self.names():  # Of a process before this one.
            if not name.startswith(BASE):
                self.drop(name)

    # ---- room

    def take_room(self, owner: str, num_bytes: int) -> None:
        """So many bytes of the device are the owner's, in place of those it had. CapacityError: it keeps what it had."""
        rooms = self._rooms.setdefault(owner, {})
        missing_bytes = num_bytes - sum(rooms.values())
        if missing_bytes < 0:
            for room in list(rooms):
                self._give_back(room)
            rooms.clear()
            missing_bytes = num_bytes
        if missing_bytes:
            rooms[self._reserve(owner, missing_bytes)] = missing_bytes

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

    def lift(self, name: str) -> None:
        """Bring what is on disk into the host's memory, beside the caller."""
        if name in self and self.tier(name) is Tier.DISK:
            self._background.submit(self._lift, name)

    def _lift(self, name: str) -> None:
        with self._mover.moving(name):
            self._mover.lift(name)

    def _without_caches(self, action: Callable[[], Result]) -> Result:
        """What finds no room as long as there are caches is done when they are lost."""
        while True:
            try:
                return action()
            except CapacityError:
                if not self.lose_oldest_cache():
                    raise

    # ---- state of deployments

    def acquire(self, name: str, writable: bool = False) -> dict[str, Tensor]:
        return self._without_caches(lambda: StateManager.acquire(self, name, writable))

    def put_away(self, name: str, tensors: Mapping[str, Tensor]) -> None:
        """It leaves the device as soon as room is needed there. Without tensors the group is gone."""
        if name in self and self._ledger.pins(name):
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
            self.register(name, tensors)

    def lose(self, name: str) -> None:
        """Whether it is there or not, in use or not."""
        if name in self:
            while self._ledger.pins(name):
                self.release(name)
            self.drop(name)

    # ---- caches, which may be lost

    def put_cache_away(self, owner: str, cache: Tensor, piece_bytes: int) -> None:
        """In pieces along the first dimension, so that taking it back needs no more than one of them on the device besides."""
        rows = max(1, piece_bytes * len(cache) // cache.nbytes)
        names = self._caches[owner] = []
        try:
            for number, piece in enumerate(cache.split(rows)):
                self.register(f"{owner}/cache {number}", {"cache": piece})
                names.append(f"{owner}/cache {number}")
        except CapacityError:
            self.lose_cache(owner)

    def take_cache(self, owner: str) -> Iterator[Tensor]:
        """Its pieces, each to be copied before the next; all of it, or what there is until some of it is lost."""
        for name in list(self._caches.get(owner, ())):
            if name not in self:
                break
            yield self.acquire(name)["cache"]
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

    def base_parts(self, base: str) -> list[str]:
        return [name for name in self.names() if name.startswith(f"{base}/")]


def part_of(base: str, name: str) -> str:
    """The group of a base that has the tensor `name`."""
    first, *rest = name.split(".")
    return f"{base}/{first}.{rest[0]}" if first == "layers" else f"{base}/{first}"


class BaseWeights(Mapping[str, Tensor]):
    """A base's tensors, one part at a time on the device; `close` lets go of the last."""

    def __init__(self, memory: GroupMemory, base: str) -> None:
        self._memory, self._base, self._part = memory, base, ""
        self._names = [entry.name for part in memory.base_parts(base) for entry in memory.group(part).tensors]
        self._tensors: dict[str, Tensor] = {}

    def __getitem__(self, name: str) -> Tensor:
        part = part_of(self._base, name)
        if part != self._part:
            if part not in self._memory:
                raise KeyError(name)
            self.close()
            self._tensors, self._part = self._memory.acquire(part), part
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def close(self) -> None:
        if self._part:
            self._memory.release(self._part)
        self._part = ""
