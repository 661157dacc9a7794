"""A queue that takes turns between its keys: one with a thousand items delays another's first by one item."""

from collections import deque
from typing import Generic, TypeVar

Item = TypeVar("Item")


class FairQueue(Generic[Item]):
    """Round robin over keys, first in first out within a key."""

    def __init__(self) -> None:
        self._items_by_key: dict[str, deque[Item]] = {}

    def __len__(self) -> int:
        return sum(len(items) for items in self._items_by_key.values())

    def push(self, key: str, item: Item) -> None:
        self._items_by_key.setdefault(key, deque()).append(item)

    def pop(self) -> Item:
        """Raise LookupError when there is nothing."""
        if not self._items_by_key:
            raise LookupError("the queue is empty")
        key = next(iter(self._items_by_key))
        items = self._items_by_key.pop(key)
        item = items.popleft()
        if items:
            self._items_by_key[key] = items
        return item
