"""How a group comes to consist of other contents. Callers are `moving` the group; see `Mover`."""

import itertools
from collections.abc import Iterable, Mapping

from torch import Tensor

from plait.residency import canonical
from plait.residency.mover import Mover
from plait.residency.stores import Stores
from plait.residency.tensor_group import PRIVATE_PREFIX, StoredTensor, TensorGroup, is_private, privatised
from plait.residency.tier import Tier


class GroupChanges:
    def __init__(self, stores: Stores, mover: Mover) -> None:
        self._stores, self._ledger, self._changed, self._mover = stores, stores.ledger, stores.changed, mover
        self._numbers = itertools.count()

    def new_keys(self, names: Iterable[str]) -> dict[str, str]:
        """Private keys for contents of these tensors, and under "" for that of the small ones."""
        return {name: self._new_key() for name in ("", *names)}

    def _new_key(self) -> str:
        return f"{PRIVATE_PREFIX}{next(self._numbers)}"

    def views(self, group: TensorGroup) -> dict[str, Tensor]:
        """The tensors of a group on the device."""
        return {entry.name: self._view(entry) for entry in group.tensors}

    def _view(self, entry: StoredTensor) -> Tensor:
        return canonical.view(entry, self._stores.device.get(entry.content))

    def make_private(self, name: str) -> None:
        """Contents of its own for a group on the device.

        Copies only what other groups there, or other of its tensors, use too: of what others have below, the copy here is taken.
        """
        with self._changed:
            group, origins = privatised(self._stores.groups[name], self._new_key)
            owned = {old: key for key, old in reversed(origins.items()) if self._may_take(old, name)}
            copied = {key: group.contents[key] for key, old in origins.items() if owned.get(old) != key}
            buffers = {key: self._stores.device.get(old) for key, old in origins.items()}
        reservation = self._mover.reserve(Tier.DEVICE, copied, name)
        try:
            buffers |= {key: buffers[key].clone() for key in copied}
        except BaseException:
            self._mover.roll_back(reservation)
            raise
        with self._changed:
            late = {key: buffers[key].clone() for old, key in owned.items() if not self._may_take(old, name)}
            self._mover.arrive(reservation, {key: buffers[key] for key in copied})
            self._adopt({key: buffer for key, buffer in (buffers | late).items() if key not in copied})
            self._replace(group)
            self._stores.discard([(Tier.DEVICE, old) for old, key in owned.items() if key not in late and self._is_left(old)])

    def _may_take(self, key: str, name: str) -> bool:
        """Whether no other group uses this content on the device, and all that use it have it elsewhere."""
        others = self._ledger.users(key) - {name}
        return not others or not (self._ledger.is_last(Tier.DEVICE, key) or any(self._ledger.pins(other) for other in others))

    def _is_left(self, key: str) -> bool:
        """Whether others use a content whose bytes on the device are somebody's own now."""
        return self._ledger.has(Tier.DEVICE, key) and bool(self._ledger.users(key))

    def _adopt(self, buffers: Mapping[str, Tensor]) -> None:
        """Count buffers for which others are about to leave."""
        for key, buffer in buffers.items():
            self._stores.device.put(key, buffer)
        self._ledger.adopt(Tier.DEVICE, {key: buffer.numel() for key, buffer in buffers.items()})

    def _replace(self, group: TensorGroup) -> None:
        self._stores.groups[group.name] = group
        self._stores.discard(self._ledger.put(group.name, group.contents))

    def update(self, name: str, tensors: Mapping[str, Tensor], version: int | None) -> None:
        with self._changed:
            is_whole = tensors.keys() >= {entry.name for entry in self._stores.groups[name].tensors}
        if not is_whole:
            self._mover.load(name)
        with self._changed:
            before = self._stores.groups[name]
            group, buffers = self._updated(before, tensors, version)
            leaving = [key for key in before.contents.keys() - group.contents.keys() if self._ledger.users(key) == {name}]
            freed_bytes = sum(before.contents[key] for key in leaving if self._ledger.has(Tier.DEVICE, key))
        on_device = self._stores.device.own(buffers)
        more_bytes = max(0, sum(buffer.numel() for buffer in buffers.values()) - freed_bytes)
        reservation = self._mover.reserve(Tier.DEVICE, {name: more_bytes}, name)
        with self._changed:  # in one step, since what comes takes the room of what leaves
            self._mover.roll_back(reservation)
            self._adopt(on_device)
            self._replace(group)

    def _updated(
        self, before: TensorGroup, tensors: Mapping[str, Tensor], version: int | None
    ) -> tuple[TensorGroup, dict[str, Tensor]]:
        """The group with other tensors, and the buffers of the contents that are new."""
        entries_before = {entry.name: entry for entry in before.tensors}
        given = {name: tensor for name, tensor in tensors.items() if not self._is_in_place(entries_before.get(name), tensor)}
        kept = {name: entry for name, entry in entries_before.items() if name not in given}
        if any(not canonical.is_large(tensor.nbytes) for tensor in given.values()):
            small = {name: entry for name, entry in kept.items() if not canonical.is_large(entry.num_bytes)}
            given |= {name: self._view(entry) for name, entry in small.items()}
            kept = {name: entry for name, entry in kept.items() if name not in small}
        entries, buffers = canonical.flatten(given, self.new_keys(given))
        contents = {entry.content: before.contents[entry.content] for entry in kept.values()}
        contents |= {key: buffer.numel() for key, buffer in buffers.items()}
        ordered = tuple(sorted([*kept.values(), *entries], key=lambda entry: entry.name))
        return TensorGroup(before.name, ordered, contents, before.version + 1 if version is None else version), buffers

    def _is_in_place(self, entry: StoredTensor | None, tensor: Tensor) -> bool:
        """Whether a tensor is what the group has, in a content of its own."""
        if entry is None or not is_private(entry.content) or not self._ledger.has(Tier.DEVICE, entry.content):
            return False
        current = self._view(entry)
        is_same = current.data_ptr() == tensor.data_ptr() and current.device == tensor.device
        return is_same and current.shape == tensor.shape and current.dtype == tensor.dtype
