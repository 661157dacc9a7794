"""What it costs an engine that generations are divided: the end of a chunk, and the start of the one that goes on from it."""

import time
from collections.abc import Callable, Iterable
from statistics import median
from typing import Any

from msgspec.structs import replace

from plait.types.chunks import Chunk, ChunkResult

QUIET_STEPS = 4
"""In a row in which no chunk starts or ends: what any step takes. One more has a start alone."""


class ResumedChunks:
    """Rows whose chunks end one step after another, as they do where chunks are long; then come some steps without.

    Caches also go to a tier in main memory, as those of several engines do.
    """

    def __init__(self, make_engine: Callable[[], Any], chunks: Iterable[Chunk]) -> None:
        """No engine before the first measurement."""
        self._make_engine = make_engine
        self.chunks = {chunk.request_id: chunk for chunk in chunks}
        self._handles: dict[str, str] = {}
        self.engine: Any = None

    @property
    def num_steps(self) -> int:
        """Of a period."""
        return len(self.chunks) + 1 + QUIET_STEPS

    def resume_s(self) -> float:
        """Of one chunk, beside the steps themselves."""
        if self.engine is None:
            self.engine = self._with_tier(self._make_engine())
            self._spread_out()
        steps_s = [self._step() for _ in range(self.num_steps)]
        usual_s = median(steps_s[-QUIET_STEPS:])
        return (sum(steps_s) - self.num_steps * usual_s) / len(self.chunks)

    def _spread_out(self) -> None:
        """The first tokens, until all prompts are computed; then one row after another is at the end of its chunk."""
        for chunk in self.chunks.values():
            self.engine.submit(replace(chunk, budget_tokens=1))
        results: list[ChunkResult] = []
        while len(results) < len(self.chunks):
            results += self.engine.step()
        for number, result in enumerate(results, 1):
            self._go_on(result, number)

    def _step(self) -> float:
        start_s = time.perf_counter()
        for result in self.engine.step():
            self._go_on(result, self.num_steps)
        return time.perf_counter() - start_s

    def _go_on(self, result: ChunkResult, num_tokens: int) -> None:
        """What the chunk before stored is not needed any more."""
        self.engine.release(self._handles.get(result.request_id, ""), went_on=True)
        chunk = self.chunks[result.request_id]
        generated_tokens = chunk.generated_tokens + len(result.tokens)
        chunk = replace(chunk, context_tokens=chunk.context_tokens + result.tokens, generated_tokens=generated_tokens)
        self.chunks[result.request_id], self._handles[result.request_id] = chunk, result.cache_handle
        self.engine.submit(replace(chunk, budget_tokens=num_tokens))

    def _with_tier(self, engine: Any) -> Any:
        from plait.kv.host_tier import HostTier
        from plait.kv.tiers import LowerTiers

        payload_bytes = engine.kv.codec.payload_bytes
        host = HostTier.alone(2 * engine.pool.num_blocks * (payload_bytes + 4096), payload_bytes)
        engine.kv.attach(LowerTiers(host, None, engine.pool.block_tokens))
        return engine
