"""First come first served over several engines, in the order of a `RequestBuffer`. Pure.

- The next request goes to the engine that has its cache if that one has room, else to the emptiest that has.
- While the next request fits nowhere, nobody behind it goes first: so nobody starves, however large.
"""

from collections.abc import Iterator, Sequence

from plait.rollout.buffer import RequestBuffer
from plait.rollout.engine_state import EngineState
from plait.rollout.request import GenerationRequest
from plait.rollout.scheduler import Placement, misfit, placement_tokens


class BufferScheduler:
    """A `Scheduler`. The buffer may be any of its kind; it counts the request that is next as running, this does not."""

    def __init__(self, buffer: RequestBuffer | None = None, chunk_tokens: int = 128) -> None:
        self.buffer = RequestBuffer() if buffer is None else buffer
        self.chunk_tokens = chunk_tokens
        self._next: GenerationRequest | None = None
        """Taken from the buffer, and waits for room."""
        self._engines: dict[str, str] = {}
        """Where each running request runs."""

    @property
    def num_running(self) -> int:
        return len(self._engines)

    @property
    def num_waiting(self) -> int:
        return self.buffer.num_waiting + self.buffer.num_running - len(self._engines)

    def __iter__(self) -> Iterator[GenerationRequest]:
        return iter(self.buffer)

    def add(self, request: GenerationRequest) -> None:
        self.buffer.add(request)

    def place(self, engines: Sequence[EngineState]) -> Placement | None:
        if not any(engine.has_room(1) for engine in engines):
            return None
        request = self._next = self._next or self.buffer.take()
        if request is None:
            return None
        budget_tokens = request.chunk_budget(self.chunk_tokens)
        footprint = placement_tokens(request, budget_tokens)
        problem = misfit(request, footprint, engines)
        engine = "" if problem else _choose(request, footprint, engines)
        if engine is None:
            return None
        self._next, self._engines[request.request_id] = None, engine
        return Placement(request, engine, budget_tokens, footprint, problem=problem)

    def running(self, request_id: str) -> GenerationRequest | None:
        return self.buffer.running(request_id) if request_id in self._engines else None

    def requeue(self, request_id: str) -> None:
        del self._engines[request_id]
        self.buffer.requeue(request_id)

    def requeue_running(self, engine: str | None = None) -> None:
        for request in list(self.buffer):
            if request.request_id in self._engines and engine in (None, self._engines[request.request_id]):
                self.requeue(request.request_id)

    def finish(self, request_id: str) -> GenerationRequest:
        del self._engines[request_id]
        return self.buffer.finish(request_id)

    def remove(self, request_id: str) -> bool:
        if self._next is not None and self._next.request_id == request_id:
            self._next = None
        self.buffer.remove(request_id)
        return self._engines.pop(request_id, None) is not None


def _choose(request: GenerationRequest, footprint: int, engines: Sequence[EngineState]) -> str | None:
    """None: it fits nowhere just now."""
    roomy = [engine for engine in engines if engine.has_room(footprint)]
    if not roomy:
        return None
    return max(roomy, key=lambda engine: (engine.name == request.engine, engine.free_tokens, -engine.num_rows)).name
