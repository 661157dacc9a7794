"""Generations for whoever asks, over one engine. Runs in the controller's event loop; never blocks and never polls.

- `generate` ends in a Segment, a RolloutError or a cancellation, also when the engine is lost (its chunks run again).
- At most `limit` chunks are with the engine; the rest wait in the buffer.
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
    """Where chunks go. Calls hand over and return at once."""

    def submit(self, chunks: Sequence[Chunk]) -> None: ...

    def cancel(self, request_ids: Sequence[str]) -> None: ...

    def release(self, handles: Sequence[str]) -> None: ...


class RolloutService:
    def __init__(self, chunk_tokens: int, limit: Callable[[], int]) -> None:
        self.chunk_tokens, self._limit = chunk_tokens, limit
        self.buffer = RequestBuffer()
        self._engine: EngineLink | None = None
        self._futures: dict[str, asyncio.Future[Segment]] = {}

    async def generate(self, request: GenerationRequest) -> Segment:
        """The whole generation; cancelling the caller cancels it in the engine."""
        future: asyncio.Future[Segment] = asyncio.get_running_loop().create_future()
        self.buffer.add(request)
        self._futures[request.request_id] = future
        self._pump()
        try:
            return await future
        finally:
            del self._futures[request.request_id]
            if self.buffer.remove(request.request_id) and self._engine is not None:
                self._engine.cancel([request.request_id])
                self._pump()

    def attach(self, engine: EngineLink) -> None:
        """A fresh engine takes over; what ran on a lost one runs again."""
        self._engine = engine
        self.buffer.requeue_running()
        self._pump()

    def detach(self) -> None:
        self._engine = None

    def fail_all(self, error: Exception) -> None:
        for future in self._futures.values():
            if not future.done():
                future.set_exception(error)

    def on_results(self, results: Sequence[ChunkResult]) -> None:
        for result in results:
            request = self.buffer.running(result.request_id)
            if request is not None:
                self._take(request, result)
        self._pump()

    def _take(self, request: GenerationRequest, result: ChunkResult) -> None:
        request.tokens += result.tokens
        request.logprobs += result.logprobs
        if result.stop == StopReason.BUDGET:
            self.buffer.requeue(request.request_id)
            return
        self.buffer.finish(request.request_id)
        future = self._futures.get(request.request_id)
        if future is None or future.done():
            return
        if result.stop == StopReason.FAILED:
            future.set_exception(RolloutError(f"request {request.request_id}: {result.error}"))
        else:
            future.set_result(Segment(tuple(request.tokens), tuple(request.logprobs), request.policy, result.stop))

    def _pump(self) -> None:
        """Hand chunks over while there is room."""
        if self._engine is None:
            return
        chunks: list[Chunk] = []
        while self.buffer.num_running < self._limit():
            request = self.buffer.take()
            if request is None:
                break
            chunks.append(request.next_chunk(self.chunk_tokens))
        if chunks:
            self._engine.submit(chunks)


