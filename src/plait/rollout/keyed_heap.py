"""Items in order of their keys, of which any can be changed or taken out. Pure.

Each call takes O(log n), averaged over calls; `top(k)` takes O(k log n).
"""

import heapq
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=tuple[Any, ...])


class KeyedHeap(Generic[K]):
    def __init__(self) -> None:
        self._keys: dict[str, K] = {}
        self._heap: list[tuple[K, str]] = []
        """What is here with another key than in `_keys` is stale, and is skipped."""

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, item: str) -> bool:
        return item in self._keys

    def key(self, item: str) -> K:
        """KeyError if it is not here."""
        return self._keys[item]

    def put(self, item: str, key: K) -> None:
        """Add it, or change its key."""
        keys, heap = self._keys, self._heap
        if keys.get(item) != key:
            keys[item] = key
            heapq.heappush(heap, (key, item))
            if len(heap) > 2 * len(keys) + 8:
                self._compact()

    def discard(self, item: str) -> None:
        """Take it out, if it is here."""
        keys = self._keys
        if keys.pop(item, None) is not None and len(self._heap) > 2 * len(keys) + 8:
            self._compact()

    def first(self) -> str | None:
        heap, keys = self._heap, self._keys
        while heap:
            key, item = heap[0]
            if keys.get(item) == key:
                return item
            heapq.heappop(heap)
        return None

    def top(self, count: int) -> list[str]:
        """The first `count` in order."""
        if count == 1:
            item = self.first()
            return [] if item is None else [item]
        found: list[tuple[K, str]] = []
        while len(found) < count and (item := self.first()) is not None:
            found.append(heapq.heappop(self._heap))
            while self._heap and self._heap[0] == found[-1]:
                heapq.heappop(self._heap)  # It was put, taken out, and put again with the same key.
        for entry in found:
            heapq.heappush(self._heap, entry)
        return [item for _, item in found]

    def _compact(self) -> None:
        """Forget what is stale."""
        self._heap = sorted((key, item) for item, key in self._keys.items())
