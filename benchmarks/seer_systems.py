"""Who decides which engine gets what, system by system. All have the same engines, memory for rows, and requests."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from plait.rollout.context_scheduler import ContextScheduler, SchedulerLimits
from plait.rollout.engine_state import EngineState
from plait.rollout.request import GenerationRequest
from plait.rollout.scheduler import Placement, Scheduler


class PinnedScheduler:
    """Whole requests; each group stays on the engine that it was given round-robin. Memory is the engines' own affair."""

    def __init__(self, engines: Sequence[str]) -> None:
        self.chunk_tokens = 1
        self._engines = engines
        self._requests: dict[str, GenerationRequest] = {}
        self._waiting: deque[GenerationRequest] = deque()
        self._groups: dict[str, str] = {}

    @property
    def num_running(self) -> int:
        return len(self._requests) - len(self._waiting)

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[GenerationRequest]:
        return iter(list(self._requests.values()))

    def add(self, request: GenerationRequest) -> None:
        self._requests[request.request_id] = request
        self._waiting.append(request)
        self._groups.setdefault(request.group, self._engines[len(self._groups) % len(self._engines)])

    def place(self, engines: Sequence[EngineState]) -> Placement | None:
        if not self._waiting:
            return None
        request = self._waiting.popleft()
        return Placement(request, self._groups[request.group], request.sampling.max_new_tokens, 0)

    def running(self, request_id: str) -> GenerationRequest | None:
        return self._requests.get(request_id)

    def requeue(self, request_id: str) -> None:
        raise AssertionError("a whole request has no next chunk")

    def requeue_running(self, engine: str | None = None) -> None:
        """Engines are not lost here."""

    def finish(self, request_id: str) -> GenerationRequest:
        return self._requests.pop(request_id)

    def remove(self, request_id: str) -> bool:
        return self._requests.pop(request_id, None) is not None


@dataclass(frozen=True, slots=True)
class System:
    name: str
    make_scheduler: Callable[[Sequence[str]], Scheduler]
    preempts: bool = False
    drafts: bool = False
    knows_lengths: bool = False
    """Requests come with their true lengths, each on its own: longest first is then exact."""
    over_issue: int = 1
    """So many times the requests are issued, and the first to finish are kept."""


def divided(uses_context: bool) -> Callable[[Sequence[str]], Scheduler]:
    return lambda engines: ContextScheduler(limits=SchedulerLimits(uses_context=uses_context))


SYSTEMS = (
    System("pinned groups", PinnedScheduler, preempts=True),
    System("+ divided", divided(uses_context=False)),
    System("+ context", divided(uses_context=True)),
    System("+ drafting", divided(uses_context=True), drafts=True),
    System("oracle", divided(uses_context=True), knows_lengths=True),
    System("partial rollout", PinnedScheduler, preempts=True, over_issue=2),
)
"""The first is how synchronous veRL rolls out; the next three add one mechanism each."""
