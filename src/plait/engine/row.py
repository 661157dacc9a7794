"""One generation while it is being decoded."""

from dataclasses import dataclass, field

from plait.engine.stops import StopRule
from plait.kv.keys import Key
from plait.lora.mix import FusedAdapter
from plait.types.chunks import Chunk, ChunkResult
from plait.types.sampling import StopReason


@dataclass(slots=True)
class Row:
    """`tokens` is the whole context and grows; all but the last are in the slot."""

    chunk: Chunk
    adapter: FusedAdapter | None
    root: Key
    rule: StopRule
    cached_tokens: int
    tokens: list[int]
    logprobs: list[float] = field(default_factory=list)

    @property
    def position(self) -> int:
        """Absolute position of the next token to be computed."""
        return len(self.tokens) - 1

    @property
    def longest_tokens(self) -> int:
        """Tokens the slot holds at most when the chunk ends."""
        return len(self.chunk.context_tokens) + self.chunk.budget_tokens

    def append(self, token: int, logprob: float) -> StopReason | None:
        """Take the drawn token; the reason if the chunk ends with it."""
        self.tokens.append(token)
        self.logprobs.append(logprob)
        reason = self.rule.after(token, len(self.tokens))
        if reason is None and len(self.logprobs) >= self.chunk.budget_tokens:
            return StopReason.BUDGET
        return reason

    def result(self, stop: StopReason, handle: str = "") -> ChunkResult:
        drawn = tuple(self.tokens[len(self.chunk.context_tokens) :])
        return ChunkResult(
            request_id=self.chunk.request_id, policy=self.chunk.policy, tokens=drawn, logprobs=tuple(self.logprobs),
            stop=stop, cache_handle=handle, cached_tokens=self.cached_tokens,
        )  # fmt: skip


def failed(chunk: Chunk, error: str) -> ChunkResult:
    return ChunkResult(
        request_id=chunk.request_id, policy=chunk.policy, tokens=(), logprobs=(), stop=StopReason.FAILED, error=error
    )
