"""The request buffer: a `Scheduler` that serves in order of arrival. Pure: no clock, no input or output.

- Queues take turns of at most `turn_chunks`: while a queue waits, no other gets more than that. So no task's burst holds up
  another's; and rows that run together belong to few tasks, which costs the engine less than many adapters would.
- Within a queue it is first come first served, from first chunk to last; so what has begun goes before what has not.
- A chunk goes to the engine with the fewest rows of those it fits. While the next one fits nowhere, nothing behind it starts.
"""

from bisect import insort
from collections.abc import Iterator, Sequence

from plait.rollout.engine_state import EngineState
from plait.rollout.request import GenerationRequest
from plait.rollout.scheduler import Placement, misfit, placement_tokens

_Place = tuple[int, str]
"""(number of arrival, request_id): a request's place in its queue, the same before and after each of its chunks."""

TURNS = 4


class RequestBuffer:
    def __init__(self, turn_chunks: int = 1, chunk_tokens: int = 1) -> None:
        self.turn_chunks, self.chunk_tokens = turn_chunks, chunk_tokens
        self._turn: str | None = None
        """The queue whose turn has begun."""
        self._num_taken = 0
        """Chunks it has had in this turn."""
        self._requests: dict[str, GenerationRequest] = {}
        self._places: dict[str, _Place] = {}
        self._running: dict[str, str] = {}
        """request_id -> the engine's name."""
        self._queues: dict[str, list[_Place]] = {}
        """Waiting places in order, by queue; the queue whose turn it is comes first, and none is empty."""
        self._num_arrived = 0

    @classmethod
    def for_rows(cls, max_rows: int) -> "RequestBuffer":
        """With turns such that `TURNS` queues share the rows when all have more work than fits."""
        return cls(max(1, max_rows // TURNS))

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        return len(self._requests) - len(self._running)

    def __iter__(self) -> Iterator[GenerationRequest]:
        """All requests, waiting and running, in order of arrival."""
        return iter(self._requests.values())

    def add(self, request: GenerationRequest) -> None:
        if request.request_id in self._requests:
            raise ValueError(f"request_id {request.request_id!r} is in the buffer already")
        self._requests[request.request_id] = request
        self._places[request.request_id] = (self._num_arrived, request.request_id)
        self._num_arrived += 1
        self._wait(request)

    def _wait(self, request: GenerationRequest) -> None:
        insort(self._queues.setdefault(request.queue, []), self._places[request.request_id])

    def place(self, engines: Sequence[EngineState]) -> Placement | None:
        request = self.peek()
        if request is None or not engines:
            return None
        budget = request.chunk_budget(self.chunk_tokens)
        footprint = placement_tokens(request, budget)
        problem = misfit(request, footprint, engines)
        engine = min((e for e in engines if e.has_room(footprint)), key=lambda e: e.num_rows, default=None)
        if engine is None and not problem:
            return None
        self.take()
        name = "" if problem or engine is None else engine.name
        self._running[request.request_id] = name
        return Placement(request, name, budget, footprint, problem=problem)

    def peek(self) -> GenerationRequest | None:
        """What `take` would give."""
        places = next(iter(self._queues.values()), None)
        return self._requests[places[0][1]] if places else None

    def take(self) -> GenerationRequest | None:
        """The next request to run a chunk of, wherever; it is running until `requeue`, `finish` or `remove`."""
        if not self._queues:
            return None
        name = next(iter(self._queues))
        places = self._queues[name]
        request = self._requests[places.pop(0)[1]]
        self._count_turn(name)
        if not places or self._num_taken == self.turn_chunks:
            self._end_turn(name)
        self._running[request.request_id] = ""
        return request

    def _count_turn(self, name: str) -> None:
        if self._turn != name:
            self._turn, self._num_taken = name, 0
        self._num_taken += 1

    def _end_turn(self, name: str) -> None:
        """To the end of the line, or out of it if nothing of it waits."""
        self._turn = None
        places = self._queues.pop(name)
        if places:
            self._queues[name] = places

    def running(self, request_id: str) -> GenerationRequest | None:
        return self._requests[request_id] if request_id in self._running else None

    def requeue(self, request_id: str) -> None:
        """The request's chunk ended at its budget."""
        del self._running[request_id]
        self._wait(self._requests[request_id])

    def requeue_running(self, engine: str | None = None) -> None:
        """That engine was lost with all chunks that ran there; None: all were."""
        for request_id in list(self._requests):
            if request_id in self._running and engine in (None, self._running[request_id]):
                self.requeue(request_id)

    def finish(self, request_id: str) -> GenerationRequest:
        """The request's last chunk has ended."""
        del self._running[request_id]
        return self._forget(request_id)

    def remove(self, request_id: str) -> bool:
        """Forget a request, if it is here; whether it was running."""
        if request_id not in self._requests:
            return False
        if self._running.pop(request_id, None) is not None:
            self._forget(request_id)
            return True
        queue = self._requests[request_id].queue
        self._queues[queue].remove(self._places[request_id])
        if not self._queues[queue]:
            del self._queues[queue]
        self._forget(request_id)
        return False

    def _forget(self, request_id: str) -> GenerationRequest:
        del self._places[request_id]
        return self._requests.pop(request_id)
