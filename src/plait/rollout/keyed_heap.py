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
        if self._keys.get(item) != key:
            self._keys[item] = key
            heapq.heappush(self._heap, (key, item))
            self._compact()

    def discard(self, item: str) -> None:
        """Take it out, if it is here."""
        if self._keys.pop(item, None) is not None:
            self._compact()

    def first(self) -> str | None:
        while self._heap and self._is_stale(self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0][1] if self._heap else None

    def top(self, count: int) -> list[str]:
        """The first `count` in order."""
        found: dict[str, K] = {}
        while len(found) < count and (item := self.first()) is not None:
            key, _ = heapq.heappop(self._heap)
            found[item] = key
        for item, key in found.items():
            heapq.heappush(self._heap, (key, item))
        return list(found)

    def _is_stale(self, entry: tuple[K, str]) -> bool:
        return self._keys.get(entry[1]) != entry[0]

    def _compact(self) -> None:
        if len(self._heap) > 2 * len(self._keys) + 8:
            self._heap = sorted((key, item) for item, key in self._keys.items())
