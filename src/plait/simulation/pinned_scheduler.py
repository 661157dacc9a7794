"""Whole groups pinned to engines, as synchronous frameworks roll out. Pure."""

from collections.abc import Iterator, Sequence

from plait.rollout.engine_state import EngineState
from plait.rollout.request import GenerationRequest
from plait.rollout.scheduler import Placement


class PinnedScheduler:
    """Whole requests; each group stays on the engine that it was given round-robin. Memory is the engines' own affair."""

    def __init__(self, engines: Sequence[str]) -> None:
        self.chunk_tokens = 1
        self._engines = engines
        self._running: dict[str, GenerationRequest] = {}
        self._waiting: dict[str, GenerationRequest] = {}
        self._groups: dict[str, tuple[str, set[str]]] = {}
        """Group -> (its engine, its requests)."""
        self._num_groups = 0

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[GenerationRequest]:
        return iter([*self._running.values(), *self._waiting.values()])

    def add(self, request: GenerationRequest) -> None:
        self._waiting[request.request_id] = request
        group = request.group or request.request_id
        if group not in self._groups:
            self._groups[group] = (self._engines[self._num_groups % len(self._engines)], set())
            self._num_groups += 1
        self._groups[group][1].add(request.request_id)

    def place(self, engines: Sequence[EngineState]) -> Placement | None:
        if not self._waiting:
            return None
        request = self._waiting.pop(next(iter(self._waiting)))
        self._running[request.request_id] = request
        engine = self._groups[request.group or request.request_id][0]
        return Placement(request, engine, request.sampling.max_new_tokens, 0)

    def running(self, request_id: str) -> GenerationRequest | None:
        return self._running.get(request_id)

    def requeue(self, request_id: str) -> None:
        raise AssertionError("a whole request has no next chunk")

    def requeue_running(self, engine: str | None = None) -> None:
        """Engines are not lost here."""

    def finish(self, request_id: str) -> GenerationRequest:
        return self._leave(self._running.pop(request_id))

    def remove(self, request_id: str) -> bool:
        was_running = request_id in self._running
        request = self._running.pop(request_id, None) or self._waiting.pop(request_id, None)
        if request is not None:
            self._leave(request)
        return was_running

    def _leave(self, request: GenerationRequest) -> GenerationRequest:
        group = request.group or request.request_id
        self._groups[group][1].discard(request.request_id)
        if not self._groups[group][1]:
            del self._groups[group]
        return request
