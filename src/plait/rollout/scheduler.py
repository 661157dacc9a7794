"""Which generation gets the next chunk, and where: the one interface of all schedulers. Pure: events in, decisions out.

- Every request added leaves exactly once: by `finish`, or by `remove`.
- A chunk's footprint, `placement_tokens`, is reserved on its engine while it runs; a chunk is placed only where that fits. Between
  chunks a request holds nothing, so nobody waits for memory while holding some: no deadlock, no preemption.
- A request that would not fit even an empty engine is placed nowhere, and `Placement.problem` says so.
- Lost chunks run again from what was returned before; sampling is a pure function, so nothing changes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from plait.rollout.engine_state import EngineState
from plait.rollout.request import GenerationRequest
from plait.types.chunks import PullFrom


@dataclass(frozen=True, slots=True)
class Placement:
    """`request` is running from now on, until `requeue`, `finish` or `remove`.

    With a `problem`, `engine` is empty: end the request with that error, by `finish`.
    """

    request: GenerationRequest
    engine: str
    budget_tokens: int
    """New tokens of this chunk: for `GenerationRequest.next_chunk`."""
    footprint_tokens: int
    """To be reserved on the engine until the chunk ends."""
    problem: str = ""
    pull: PullFrom | None = None
    """What the engine lacks of the context and can get; None: it has to look."""


class Scheduler(Protocol):
    chunk_tokens: int
    """Most new tokens of a chunk; set by whoever uses the scheduler."""

    @property
    def num_running(self) -> int: ...

    @property
    def num_waiting(self) -> int: ...

    def __iter__(self) -> Iterator[GenerationRequest]:
        """All requests, waiting and running, in order of arrival."""
        ...

    def add(self, request: GenerationRequest) -> None:
        """ValueError if a request of that id is here."""
        ...

    def place(self, engines: Sequence[EngineState]) -> Placement | None:
        """The next chunk; None if nothing waits, or nothing may start now. Ask again with the engines' new states."""
        ...

    def running(self, request_id: str) -> GenerationRequest | None: ...

    def requeue(self, request_id: str) -> None:
        """The chunk ended at its budget; its tokens are in the request. KeyError unless it runs."""
        ...

    def requeue_running(self, engine: str | None = None) -> None:
        """That engine was lost with all chunks that ran there and all it had cached; None: all engines were."""
        ...

    def finish(self, request_id: str) -> GenerationRequest:
        """The last chunk has ended; its tokens are in the request. KeyError unless it runs."""
        ...

    def remove(self, request_id: str) -> bool:
        """Forget a request, if it is here; whether it was running."""
        ...


def placement_tokens(request: GenerationRequest, budget_tokens: int) -> int:
    """Footprint of its next chunk: prompt, tokens so far, and the budget."""
    return len(request.context_tokens) + len(request.tokens) + budget_tokens


def misfit(request: GenerationRequest, footprint_tokens: int, engines: Sequence[EngineState]) -> str:
    """Why it would fit no engine, were it empty; empty if it would fit one."""
    if any(footprint_tokens <= engine.cache_tokens for engine in engines):
        return ""
    largest = max((engine.cache_tokens for engine in engines), default=0)
    return (
        f"{len(request.context_tokens)} context tokens, {len(request.tokens)} generated and the next chunk need {footprint_tokens}"
        f" tokens of cache; the largest engine has {largest}"
    )
