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
    stream_key: tuple[str, str]
    """Deployment and stream."""


class KindFronts:
    def __init__(self) -> None:
        self.calls: list[FunctionCall] = []
        """The first of each kind, in order of arrival. Not to be changed by who reads it."""
        self._keys: list[tuple[float, int]] = []
        """Of `calls`."""
        self._fronts: dict[Kind, Entry] = {}
        """Those of `calls`."""
        self._behind: dict[Kind, KeyedHeap[tuple[float, int]]] = {}
        """The other heads of a kind, if there are any, by call_id."""
        self._entries: dict[str, Entry] = {}
        """Of those in `_behind`."""

    def add(self, entry: Entry) -> None:
        """A head; one that is here already is fine."""
        front = self._fronts.get(entry.kind)
        if front is entry:
            return
        if front is None:
            self._show(entry)
        elif entry[:2] < front[:2]:
            self._hide(front)
            self._show(entry)
            self._put_behind(front)
        else:
            self._put_behind(entry)

    def discard(self, entry: Entry) -> bool:
        """Whether it was a head."""
        if self._fronts.get(entry.kind) is entry:
            self._hide(entry)
            self._promote(entry.kind)
        elif self._entries.get(entry.call.call_id) is entry:
            self._take_behind(entry)
        else:
            return False
        return True

    def _show(self, entry: Entry) -> None:
        key = entry[:2]
        place = bisect_left(self._keys, key)
        self._keys.insert(place, key)
        self.calls.insert(place, entry.call)
        self._fronts[entry.kind] = entry

    def _hide(self, entry: Entry) -> None:
        place = bisect_left(self._keys, entry[:2])
        del self._keys[place], self.calls[place], self._fronts[entry.kind]

    def _promote(self, kind: Kind) -> None:
        heap = self._behind.get(kind)
        first = heap.first() if heap else None
        if first is not None:
            entry = self._entries[first]
            self._take_behind(entry)
            self._show(entry)

    def _put_behind(self, entry: Entry) -> None:
        self._entries[entry.call.call_id] = entry
        self._behind.setdefault(entry.kind, KeyedHeap()).put(entry.call.call_id, entry[:2])

    def _take_behind(self, entry: Entry) -> None:
        heap = self._behind[entry.kind]
        heap.discard(entry.call.call_id)
        del self._entries[entry.call.call_id]
        if not heap:
            del self._behind[entry.kind]
