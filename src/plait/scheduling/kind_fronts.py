"""The heads of streams, and of each kind the one that came first. Pure.

`add` and `discard` take O(log n) for n heads, averaged over calls, and O(k) for k kinds: a list of k is kept in order.
"""

from bisect import bisect_left
from typing import NamedTuple

from plait.rollout.keyed_heap import KeyedHeap
from plait.scheduling.function_call import FunctionCall
from plait.scheduling.service_times import Kind


class Entry(NamedTuple):
    """A call, and its place among those that arrived at the same time."""

    arrival_s: float
    number: int
    call: FunctionCall
    kind: Kind

    @property
    def stream_key(self) -> tuple[str, str]:
        return self.call.deployment, self.call.stream


class KindFronts:
    def __init__(self) -> None:
        self.calls: list[FunctionCall] = []
        """The first of each kind, in order of arrival. Not to be changed by who reads it."""
        self._keys: list[tuple[float, int]] = []
        """Of `calls`."""
        self._heads: dict[str, Entry] = {}
        """All heads, by call_id."""
        self._by_kind: dict[Kind, KeyedHeap[tuple[float, int]]] = {}

    def add(self, entry: Entry) -> None:
        """A head; one that is here already is fine."""
        heap = self._by_kind.setdefault(entry.kind, KeyedHeap())
        before = heap.first()
        self._heads[entry.call.call_id] = entry
        heap.put(entry.call.call_id, entry[:2])
        self._show(before, heap.first())

    def discard(self, entry: Entry) -> bool:
        """Whether it was a head."""
        if self._heads.get(entry.call.call_id) is not entry:
            return False
        heap = self._by_kind[entry.kind]
        before = heap.first()
        heap.discard(entry.call.call_id)
        self._show(before, heap.first())
        del self._heads[entry.call.call_id]
        if not heap:
            del self._by_kind[entry.kind]
        return True

    def _show(self, before: str | None, after: str | None) -> None:
        if before == after:
            return
        if before is not None:
            place = bisect_left(self._keys, self._heads[before][:2])
            del self._keys[place], self.calls[place]
        if after is not None:
            place = bisect_left(self._keys, self._heads[after][:2])
            self._keys.insert(place, self._heads[after][:2])
            self.calls.insert(place, self._heads[after].call)
