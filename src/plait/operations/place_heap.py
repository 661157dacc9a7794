"""Waiting places in order, from which any can be taken out. Pure; each call takes O(log n), averaged over calls."""

import heapq

Place = tuple[int, str]
"""(number of arrival, request_id)."""


class PlaceHeap:
    def __init__(self) -> None:
        self._heap: list[Place] = []
        self._waiting: set[Place] = set()
        """What is in the heap and not here was discarded, and is skipped."""

    def __len__(self) -> int:
        return len(self._waiting)

    def push(self, place: Place) -> None:
        """`place` is new, or was popped; one that was discarded never comes again."""
        self._waiting.add(place)
        heapq.heappush(self._heap, place)

    def first(self) -> Place:
        """IndexError if there is none."""
        while self._heap[0] not in self._waiting:
            heapq.heappop(self._heap)
        return self._heap[0]

    def pop(self) -> Place:
        """The first. IndexError if there is none."""
        place = self.first()
        heapq.heappop(self._heap)
        self._waiting.remove(place)
        return place

    def discard(self, place: Place) -> None:
        """KeyError if it does not wait."""
        self._waiting.remove(place)
        if len(self._heap) > 2 * len(self._waiting) + 8:
            self._heap = sorted(self._waiting)
