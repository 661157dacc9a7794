"""The devices of a cluster as a tree: cluster > node group > node > device, with the memory of each node.

- Every level keeps what its best part offers (free devices, wholly free nodes, bytes), so a search enters only where it can fit.
- A request of up to one node's devices is served by one node, the one with the fewest free that fits; a larger one by wholly free
  nodes, of one node group if any has enough (the tightest), else of as few node groups as possible.
- A device is free or not; who shares one that is not is known to `reservations`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from plait.types.errors import StateError

UNLIMITED = 1 << 62


class Bytes(msgspec.Struct, frozen=True):
    """Memory by tier."""

    device: int = 0
    host: int = 0
    disk: int = 0

    def fits(self, into: "Bytes") -> bool:
        return self.device <= into.device and self.host <= into.host and self.disk <= into.disk


NOTHING = Bytes()


class Node(msgspec.Struct, frozen=True):
    """`memory.device` is of each device, the other tiers are of the whole node."""

    node_id: str
    node_group: str
    num_devices: int
    memory: Bytes = Bytes(UNLIMITED, UNLIMITED, UNLIMITED)


class Slice(msgspec.Struct, frozen=True):
    """Devices of one node, by their numbers there."""

    node_id: str
    devices: tuple[int, ...]


def num_devices(slices: Iterable[Slice]) -> int:
    return sum(len(part.devices) for part in slices)


@dataclass(slots=True)
class _NodeState:
    node: Node
    free: set[int]
    host: int
    disk: int

    @property
    def is_whole(self) -> bool:
        return len(self.free) == self.node.num_devices

    def fits(self, devices: int, each: Bytes) -> bool:
        needed = Bytes(each.device, each.host * devices, each.disk * devices)
        return len(self.free) >= devices and needed.fits(Bytes(self.node.memory.device, self.host, self.disk))


@dataclass(slots=True)
class _NodeGroup:
    nodes: dict[str, _NodeState] = field(default_factory=dict)
    largest: int = 0
    """Most free devices of one node."""
    whole: int = 0
    """Devices of wholly free nodes."""
    best: Bytes = NOTHING
    """Most of each tier on one node."""

    def refresh(self) -> None:
        largest = whole = device = host = disk = 0
        for state in self.nodes.values():
            node, num_free = state.node, len(state.free)
            largest = max(largest, num_free)
            whole += num_free if num_free == node.num_devices else 0
            device, host, disk = max(device, node.memory.device), max(host, state.host), max(disk, state.disk)
        self.largest, self.whole, self.best = largest, whole, Bytes(device, host, disk)


class ResourceView:
    """`num_visited`: nodes that searches have looked at, in all."""

    def __init__(self, nodes: Iterable[Node] = ()) -> None:
        self._groups: dict[str, _NodeGroup] = {}
        self._group_of: dict[str, _NodeGroup] = {}
        self._changed: dict[int, _NodeGroup] = {}
        self.num_visited = 0
        for node in nodes:
            self.add(node)

    def add(self, node: Node) -> None:
        if node.node_id in self._group_of:
            raise StateError(f"node {node.node_id} has joined before.", "Let it leave first.")
        group = self._groups.setdefault(node.node_group, _NodeGroup())
        group.nodes[node.node_id] = _NodeState(node, set(range(node.num_devices)), node.memory.host, node.memory.disk)
        self._group_of[node.node_id] = group
        self._touch(group)

    def remove(self, node_id: str) -> Node:
        """Whatever was on it is gone."""
        group = self._group_of.pop(node_id)
        self._touch(group)
        return group.nodes.pop(node_id).node

    def nodes(self) -> list[Node]:
        return [state.node for group in self._groups.values() for state in group.nodes.values()]

    def __contains__(self, node_id: object) -> bool:
        return node_id in self._group_of

    def node(self, node_id: str) -> Node:
        return self._group_of[node_id].nodes[node_id].node

    def free(self, node_id: str) -> frozenset[int]:
        return frozenset(self._group_of[node_id].nodes[node_id].free)

    @property
    def num_free(self) -> int:
        return sum(len(state.free) for group in self._groups.values() for state in group.nodes.values())

    def occupy(self, part: Slice) -> None:
        group = self._group_of[part.node_id]
        group.nodes[part.node_id].free.difference_update(part.devices)
        self._touch(group)

    def vacate(self, part: Slice) -> None:
        group = self._group_of[part.node_id]
        group.nodes[part.node_id].free.update(part.devices)
        self._touch(group)

    def set_memory(self, node_id: str, host: int, disk: int) -> None:
        """Free bytes of a node."""
        group = self._group_of[node_id]
        group.nodes[node_id].host, group.nodes[node_id].disk = host, disk
        self._touch(group)

    def copy(self) -> "ResourceView":
        """For plans: nothing done to it is done to this one."""
        other = ResourceView()
        for name, group in self._groups.items():
            states = {key: _NodeState(state.node, set(state.free), state.host, state.disk) for key, state in group.nodes.items()}
            copied = other._groups[name] = _NodeGroup(states, group.largest, group.whole, group.best)
            other._group_of.update(dict.fromkeys(states, copied))
            if id(group) in self._changed:
                other._touch(copied)
        return other

    def find(self, devices: int, each: Bytes = NOTHING) -> tuple[Slice, ...] | None:
        """Free devices with this much memory for each; None if there are none together. Nothing is taken."""
        for group in self._changed.values():
            group.refresh()
        self._changed.clear()
        return self._on_one_node(devices, each) or self._on_whole_nodes(devices, each)

    def find_all(self, requests: Sequence[tuple[int, Bytes]]) -> list[tuple[Slice, ...]] | None:
        """Disjoint devices for every request, the largest served first; None if one of them finds none. Nothing is taken."""
        found: dict[int, tuple[Slice, ...]] = {}
        for index in sorted(range(len(requests)), key=lambda index: -requests[index][0]):
            slices = self.find(*requests[index])
            if slices is not None:
                found[index] = slices
                self._each(slices, self.occupy)
        for slices in found.values():
            self._each(slices, self.vacate)
        return [found[index] for index in range(len(requests))] if len(found) == len(requests) else None

    def _touch(self, group: _NodeGroup) -> None:
        self._changed[id(group)] = group

    @staticmethod
    def _each(slices: Sequence[Slice], act: Callable[[Slice], None]) -> None:
        for part in slices:
            act(part)

    def _on_one_node(self, devices: int, each: Bytes) -> tuple[Slice, ...] | None:
        best: _NodeState | None = None
        for group in self._groups.values():
            if group.largest < devices or not Bytes(each.device, each.host * devices, each.disk * devices).fits(group.best):
                continue
            for state in self._visit(group.nodes):
                if state.fits(devices, each) and (best is None or len(state.free) < len(best.free)):
                    best = state
        return None if best is None else (Slice(best.node.node_id, tuple(sorted(best.free)[:devices])),)

    def _on_whole_nodes(self, devices: int, each: Bytes) -> tuple[Slice, ...] | None:
        groups = [group for group in self._groups.values() if group.whole and each.fits(group.best)]
        if sum(group.whole for group in groups) < devices:
            return None
        enough = sorted((group for group in groups if group.whole >= devices), key=lambda group: group.whole)
        for group in enough:
            if (slices := self._fill([group], devices, each)) is not None:
                return slices
        return self._fill(sorted(groups, key=lambda group: -group.whole), devices, each)

    def _fill(self, groups: Sequence[_NodeGroup], devices: int, each: Bytes) -> tuple[Slice, ...] | None:
        slices: list[Slice] = []
        left = devices
        for group in groups:
            for state in self._visit(group.nodes):
                take = min(left, state.node.num_devices)
                if take and state.is_whole and state.fits(take, each):
                    slices.append(Slice(state.node.node_id, tuple(range(take))))
                    left -= take
        return None if left else tuple(slices)

    def _visit(self, nodes: Mapping[str, _NodeState]) -> Iterable[_NodeState]:
        for state in nodes.values():
            self.num_visited += 1
            yield state
