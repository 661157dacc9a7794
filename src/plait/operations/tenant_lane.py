"""The waiting requests of one tenant, in the order of `plait.rollout.buffer`: queues take turns, first come first served in each.

Pure; each call takes O(log n), averaged over calls.
"""

from collections import OrderedDict

from plait.operations.place_heap import Place, PlaceHeap


class TenantLane:
    def __init__(self, turn_chunks: int) -> None:
        self.turn_chunks = turn_chunks
        self._turn: str | None = None
        """The queue whose turn has begun."""
        self._num_taken = 0
        """Chunks it has had in this turn."""
        self._queues: OrderedDict[str, PlaceHeap] = OrderedDict()
        """None is empty; the queue whose turn it is comes first."""

    def __bool__(self) -> bool:
        return bool(self._queues)

    @property
    def turn_is_open(self) -> bool:
        """Whether the queue that was served last goes on."""
        return self._turn is not None

    def push(self, queue: str, place: Place) -> None:
        if queue not in self._queues:
            self._queues[queue] = PlaceHeap()
        self._queues[queue].push(place)

    def peek(self) -> Place:
        """What `pop` would give. StopIteration if nothing waits."""
        return next(iter(self._queues.values())).first()

    def pop(self) -> Place:
        """Whose turn it is. StopIteration if nothing waits."""
        queue = next(iter(self._queues))
        places = self._queues[queue]
        place = places.pop()
        if self._turn != queue:
            self._turn, self._num_taken = queue, 0
        self._num_taken += 1
        if not places:
            self._turn = None
            del self._queues[queue]
        elif self._num_taken == self.turn_chunks:
            self._turn = None
            self._queues.move_to_end(queue)
        return place

    def discard(self, queue: str, place: Place) -> None:
        """KeyError if it does not wait."""
        places = self._queues[queue]
        places.discard(place)
        if not places:
            del self._queues[queue]
