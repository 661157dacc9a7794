"""Generations for whoever asks, over the engines of a deployment. Runs in the controller's event loop; never blocks, never polls.

- `generate` ends in a Segment, a RolloutError or a cancellation, also when engines are lost: what ran on one runs again elsewhere.
- The dispatcher decides which chunk goes where and keeps what each engine has promised. What finds no room waits there.
- Each chunk has an id of its own at the engine, so a late result, of a cancelled request or a lost engine, is never taken for
  another's.
- A stored cache that no later chunk will use is released, wherever copies of it may be.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from plait.rollout.buffer_scheduler import BufferScheduler
from plait.rollout.dispatcher import Dispatcher
from plait.rollout.engine_state import EngineState
from plait.rollout.request import GenerationRequest
from plait.rollout.scheduler import Scheduler
from plait.types.chunks import Chunk, ChunkResult
from plait.types.errors import PlaitError
from plait.types.sampling import StopReason
from plait.types.trajectory import Segment


class RolloutError(PlaitError):
    """A generation could not be served."""


class EngineLink(Protocol):
    """Where an engine's chunks go. Calls hand over and return at once; what is lost on the way is told by `detach`."""

    def submit(self, chunks: Sequence[Chunk]) -> None: ...

    def cancel(self, request_ids: Sequence[str]) -> None: ...

    def release(self, handles: Sequence[str], went_on: bool = False) -> None:
        """Also of caches that it does not have. `went_on`: later chunks have gone on from them, here or elsewhere."""
        ...

    def end_stretches(self) -> None:
        """Chunks that were submitted before keep to their budgets from now on."""
        ...


class GroupListener(Protocol):
    """Hears when a group's generations come and go; each that began ends."""

    def began(self, group: str) -> None: ...

    def ended(self, group: str) -> None: ...


class RolloutService:
    """`max_rows` is asked how many chunks an engine may have whenever there may be room; call `pump` when it has risen."""

    siblings: GroupListener | None = None

    def __init__(
        self,
        chunk_tokens: int,
        max_rows: Callable[[str], int],
        scheduler: Scheduler | None = None,
        max_context_tokens: int | None = None,
    ) -> None:
        self._max_context_tokens = max_context_tokens
        self.scheduler: Scheduler = BufferScheduler() if scheduler is None else scheduler
        self.scheduler.chunk_tokens = chunk_tokens
        self._dispatcher = Dispatcher(self.scheduler, max_rows)
        self._links: dict[str, EngineLink] = {}
        self._failure: Exception | None = None
        self._futures: dict[str, asyncio.Future[Segment]] = {}
        self._will_pump = False

    @property
    def engines(self) -> list[EngineState]:
        """What each has reserved; one that was lost and is not back is full."""
        return self._dispatcher.engines

    @property
    def num_moves(self) -> Counter[str]:
        """Chunks that went on at an engine after another had the one before, by the new engine's name."""
        return self._dispatcher.num_moves

    async def generate(self, request: GenerationRequest) -> Segment:
        """The whole generation; cancelling the caller cancels it in the engine."""
        if self._failure is not None:
            raise self._failure
        future: asyncio.Future[Segment] = asyncio.get_running_loop().create_future()
        request.max_context_tokens = self._max_context_tokens
        self.scheduler.add(request)
        self._futures[request.request_id] = future
        if self.siblings is not None:
            self.siblings.began(request.group)
        self._pump_soon()
        try:
            return await future
        finally:
            del self._futures[request.request_id]
            self._leave(request)
            if self.siblings is not None:
                self.siblings.ended(request.group)

    def _leave(self, request: GenerationRequest) -> None:
        """Take what is left of a request out of scheduler and engine; its place goes to the next."""
        if self._dispatcher.remove(request):
            if request.engine in self._links:
                self._links[request.engine].cancel([request.chunk_id])
            self._pump_soon()
        self.release([request.cache_handle])

    # ---- engines

    def attach(self, name: str, engine: EngineLink, cache_tokens: int) -> None:
        """A fresh engine comes, of so many tokens of cache; what ran on a lost one of its name runs again."""
        self.detach(name)
        self._dispatcher.attach(name, cache_tokens)
        self._links[name], self._failure = engine, None
        self.pump()

    def detach(self, name: str) -> None:
        """The engine is lost, with its chunks and caches; they wait for room at the others, or for the next of its name."""
        if self._links.pop(name, None) is None:
            return
        self._dispatcher.detach(name)
        self.pump()

    def fail_all(self, error: Exception) -> None:
        """No engine will come: all generations end with `error`, and so does each new one until `attach`."""
        self._failure = error
        for future in self._futures.values():
            if not future.done():
                future.set_exception(error)

    # ---- results

    def on_results(self, results: Sequence[ChunkResult]) -> None:
        unused: list[str] = []
        outdated: list[str] = []
        for result in results:
            request = self._dispatcher.ended(result.request_id)
            if request is None:
                unused.append(result.cache_handle)
                continue
            if request.cache_handle != result.cache_handle:
                (unused if result.stop == StopReason.FAILED else outdated).append(request.cache_handle)
            self._take(request, result)
        self.release(unused)
        self._release(outdated, went_on=True)
        self.pump()

    def _take(self, request: GenerationRequest, result: ChunkResult) -> None:
        problem = request.problem_with(result)
        request.cache_handle = result.cache_handle if result.stop == StopReason.BUDGET else ""
        request.kept_handle = "" if result.stop == StopReason.BUDGET else result.cache_handle
        if not problem:
            request.append(result)
            if result.stop == StopReason.BUDGET:
                self.scheduler.requeue(request.request_id)
                return
        self.scheduler.finish(request.request_id)
        self._end(request, problem, result.stop)

    def _end(self, request: GenerationRequest, problem: str, stop: StopReason = StopReason.FAILED) -> None:
        future = self._futures[request.request_id]
        if future.done():
            return
        if problem:
            future.set_exception(RolloutError(f"request {request.request_id}: {problem}"))
        else:
            future.set_result(request.segment(stop))

    def release(self, handles: Iterable[str]) -> None:
        """Free stored caches at all engines; also those that finished generations kept for a later turn."""
        self._release(handles, went_on=False)

    def _release(self, handles: Iterable[str], went_on: bool) -> None:
        named = [handle for handle in handles if handle]
        if named:
            for link in self._links.values():
                link.release(named, went_on)

    # ---- chunks

    def pump(self) -> None:
        """Hand chunks over while there is room."""
        if not self._links:
            return
        handed = self._dispatcher.place()
        for placement in handed.problems:
            self._end(placement.request, placement.problem)
        for name, chunks in handed.chunks.items():
            self._links[name].submit(chunks)
        for name in handed.end_stretches:
            self._links[name].end_stretches()

    def _pump_soon(self) -> None:
        """Once for all that come or go in this turn of the event loop: one message, and no place for what is about to go."""
        if not self._will_pump:
            self._will_pump = True
            asyncio.get_running_loop().call_soon(self._pump_now)

    def _pump_now(self) -> None:
        self._will_pump = False
        self.pump()
