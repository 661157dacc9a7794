"""The engine to compare with: it admits what fits now, reserves nothing, and gives up the newest row when its cache overflows.

So do engines with paged caches by default; what a row that was given up had computed is computed again when it comes back.
"""

from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from plait.engine.engine import Engine
from plait.engine.row import Row
from plait.types.chunks import Chunk, ChunkResult
from plait.types.sampling import StopReason


@dataclass(frozen=True, slots=True)
class Size:
    """Of an engine; tokens."""

    cache_tokens: int
    """What rows may hold together."""
    pool_tokens: int
    """For prompts that siblings share, and, where there is no tier below, for requests between chunks."""
    context_tokens: int
    max_rows: int


class PreemptingEngine(Engine):
    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.cache_tokens = 0
        """Set it before the first request."""
        self.num_preemptions = 0
        self._drawn: dict[str, tuple[tuple[int, ...], tuple[float, ...]]] = {}
        """What requests had drawn when they were given up."""

    def step(self) -> list[ChunkResult]:
        while len(self.rows) > 1 and self._used_tokens > self.cache_tokens:
            self._preempt(max(range(len(self.rows)), key=lambda index: self.rows[index].number))
        return [self._whole(result) for result in super().step()]

    @property
    def _used_tokens(self) -> int:
        """At the end of the next decode step."""
        return sum(len(row.tokens) + 1 for row in self.rows)

    def _has_room(self, chunk: Chunk) -> bool:
        fits = not self.rows or self._used_tokens + len(chunk.context_tokens) + 1 <= self.cache_tokens
        return fits and len(self.rows) < self.slots.max_rows

    def _preempt(self, index: int) -> None:
        row = self.rows[index]
        self._end_row(index, row.result(StopReason.CANCELLED))
        self._done.pop()
        self._remember(row)
        self.waiting[row.chunk.request_id] = _rest(row)
        self.waiting.move_to_end(row.chunk.request_id, last=False)
        self.num_preemptions += 1

    def _remember(self, row: Row) -> None:
        tokens, logprobs = self._drawn.get(row.chunk.request_id, ((), ()))
        drawn = tuple(row.tokens[len(row.chunk.context_tokens) :])
        self._drawn[row.chunk.request_id] = (tokens + drawn, logprobs + tuple(row.logprobs))

    def _whole(self, result: ChunkResult) -> ChunkResult:
        tokens, logprobs = self._drawn.pop(result.request_id, ((), ()))
        return replace(result, tokens=tokens + result.tokens, logprobs=logprobs + result.logprobs)


def _rest(row: Row) -> Chunk:
    """The chunk that goes on from what a row has drawn."""
    num_drawn = len(row.logprobs)
    return replace(
        row.chunk, context_tokens=tuple(row.tokens), generated_tokens=row.chunk.generated_tokens + num_drawn,
        budget_tokens=row.chunk.budget_tokens - num_drawn,
    )  # fmt: skip
