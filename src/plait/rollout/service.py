"""Generations for whoever asks, over one engine. Runs in the controller's event loop; never blocks and never polls.

- `generate` ends in a Segment, a RolloutError or a cancellation, also when the engine is lost (its chunks run again).
- At most `limit()` chunks are handed to the engine; the rest wait in the buffer.
- Each chunk has an id of its own at the engine, so a late result, of a cancelled request or a lost engine, is never taken for
  another's.
- A stored cache that no later chunk will use is released.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from plait.rollout.buffer import RequestBuffer
from plait.rollout.request import GenerationRequest
from plait.types.chunks import Chunk, ChunkResult
from plait.types.errors import PlaitError
from plait.types.sampling import StopReason
from plait.types.trajectory import Segment


class RolloutError(PlaitError):
    """A generation could not be served."""


class EngineLink(Protocol):
    """Where chunks go. Calls hand over and return at once; what is lost on the way is told by `detach`."""

    def submit(self, chunks: Sequence[Chunk]) -> None: ...

    def cancel(self, request_ids: Sequence[str]) -> None: ...

    def release(self, handles: Sequence[str]) -> None: ...


class RolloutService:
    """`limit` is asked whenever there may be room; call `pump` when it has risen at another time.

    `buffer` decides who goes next.
    """

    def __init__(self, chunk_tokens: int, limit: Callable[[], int], buffer: RequestBuffer | None = None) -> None:
        self.chunk_tokens, self._limit = chunk_tokens, limit
        self.buffer = RequestBuffer() if buffer is None else buffer
        self._engine: EngineLink | None = None
        self._failure: Exception | None = None
        self._futures: dict[str, asyncio.Future[Segment]] = {}
        self._chunks: dict[str, str] = {}
        """Id of a chunk that runs -> request_id."""
        self._num_chunks = 0
        self._will_pump = False

    async def generate(self, request: GenerationRequest) -> Segment:
        """The whole generation; cancelling the caller cancels it in the engine."""
        if self._failure is not None:
            raise self._failure
        future: asyncio.Future[Segment] = asyncio.get_running_loop().create_future()
        self.buffer.add(request)
        self._futures[request.request_id] = future
        self._pump_soon()
        try:
            return await future
        finally:
            del self._futures[request.request_id]
            self._leave(request)

    def _leave(self, request: GenerationRequest) -> None:
        """Take what is left of a request out of buffer and engine; its place goes to the next."""
        if self.buffer.remove(request.request_id):
            del self._chunks[request.chunk_id]
            if self._engine is not None:
                self._engine.cancel([request.chunk_id])
            self._pump_soon()
        self.release([request.cache_handle])

    def attach(self, engine: EngineLink) -> None:
        """A fresh engine takes over; what ran on a lost one runs again."""
        self.detach()
        self._engine, self._failure = engine, None
        self.pump()

    def detach(self) -> None:
        """The engine is lost, with its chunks and caches. Generations wait for the next."""
        self._engine = None
        self._chunks.clear()
        for request in self.buffer:
            request.cache_handle = ""
        self.buffer.requeue_running()

    def fail_all(self, error: Exception) -> None:
        """No engine will come: all generations end with `error`, and so does each new one until `attach`."""
        self._failure = error
        for future in self._futures.values():
            if not future.done():
                future.set_exception(error)

    def on_results(self, results: Sequence[ChunkResult]) -> None:
        unused: list[str] = []
        for result in results:
            request = self.buffer.running(self._chunks.pop(result.request_id, ""))
            if request is None:
                unused.append(result.cache_handle)
                continue
            if request.cache_handle != result.cache_handle:
                unused.append(request.cache_handle)
            self._take(request, result)
        self.release(unused)
        self.pump()

    def _take(self, request: GenerationRequest, result: ChunkResult) -> None:
        problem = request.problem_with(result)
        request.cache_handle = result.cache_handle if result.stop == StopReason.BUDGET else ""
        request.kept_handle = "" if result.stop == StopReason.BUDGET else result.cache_handle
        if not problem:
            request.append(result)
            if result.stop == StopReason.BUDGET:
                self.buffer.requeue(request.request_id)
                return
        self.buffer.finish(request.request_id)
        future = self._futures[request.request_id]
        if future.done():
            return
        if problem:
            future.set_exception(RolloutError(f"request {request.request_id}: {problem}"))
        else:
            future.set_result(request.segment(result.stop))

    def release(self, handles: Sequence[str]) -> None:
        """Free stored caches; also those that finished generations kept for a later turn."""
        named = [handle for handle in handles if handle]
        if named and self._engine is not None:
            self._engine.release(named)

    def pump(self) -> None:
        """Hand chunks over while there is room."""
        chunks: list[Chunk] = []
        while self._engine is not None and self.buffer.num_running < self._limit():
            request = self.buffer.take()
            if request is None:
                break
            self._num_chunks += 1
            request.chunk_id = f"{request.request_id}#{self._num_chunks}"
            self._chunks[request.chunk_id] = request.request_id
            chunks.append(request.next_chunk(self.chunk_tokens))
        if chunks and self._engine is not None:
            self._engine.submit(chunks)

    def _pump_soon(self) -> None:
        """Once for all that come or go in this turn of the event loop: one message, and no place for what is about to go."""
        if not self._will_pump:
            self._will_pump = True
            asyncio.get_running_loop().call_soon(self._pump_now)

    def _pump_now(self) -> None:
        self._will_pump = False
        self.pump()
