"""A generation that somebody waits for."""

from collections.abc import Callable
from dataclasses import dataclass, field

from plait.types.chunks import Chunk, ChunkResult, PullFrom
from plait.types.policy import AdapterRef, PolicyVersion
from plait.types.sampling import SamplingParams, StopReason
from plait.types.trajectory import Segment


@dataclass(slots=True)
class GenerationRequest:
    """Lives in the buffer between its chunks. `queue` names whose turn it takes (a task, or its evaluation)."""

    request_id: str
    queue: str
    policy: PolicyVersion
    adapter: AdapterRef | None
    context_tokens: tuple[int, ...]
    sampling: SamplingParams
    keep_cache: bool = False
    tokens: list[int] = field(default_factory=list)
    """Drawn so far."""
    logprobs: list[float] = field(default_factory=list)
    cached_tokens: int = 0
    """Tokens of the context that the first chunk found in the cache."""
    chunk_id: str = ""
    """What the latest chunk is called at the engine; empty: like the request."""
    engine: str = ""
    """Name of the engine that has the running chunk, or had the latest one and its cache; empty: none has."""
    cache_handle: str = ""
    """The stored cache of the context and the tokens so far; empty: none."""
    kept_handle: str = ""
    """The cache of the finished generation, if `keep_cache` asked for it; whoever asked releases it."""
    on_chunk: Callable[[ChunkResult], None] | None = None
    """Told of each chunk once its tokens are taken in. Must not raise: it is called from the handler of the engine's results."""
    max_chunk_tokens: int | None = None
    """Cut it finer than others, for whoever reads along."""
    max_context_tokens: int | None = None
    """The model's; the service sets it, so that nothing is reserved for tokens that cannot be."""
    group: str = ""
    """Siblings share it: same prompt, same policy version, other seeds. Empty: it has none."""

    def chunk_budget(self, chunk_tokens: int) -> int:
        """Most tokens of the next chunk, where chunks have `chunk_tokens` in general."""
        return min(chunk_tokens, self.max_chunk_tokens or chunk_tokens, self.remaining_tokens)

    @property
    def remaining_tokens(self) -> int:
        """Most that can still be drawn."""
        remaining = self.sampling.max_new_tokens - len(self.tokens)
        if self.max_context_tokens is not None:
            remaining = max(1, min(remaining, self.max_context_tokens - len(self.context_tokens) - len(self.tokens)))
        return remaining

    def next_chunk(self, chunk_tokens: int, stretch_tokens: int = 0, pull: PullFrom | None = None) -> Chunk:
        """The chunk that goes on from what has been drawn; the limits of the whole request hold across cuts."""
        return Chunk(
            request_id=self.chunk_id or self.request_id,
            policy=self.policy,
            context_tokens=self.context_tokens + tuple(self.tokens),
            budget_tokens=self.chunk_budget(chunk_tokens),
            sampling=self.sampling,
            adapter=self.adapter,
            generated_tokens=len(self.tokens),
            keep_cache=self.keep_cache,
            group=self.group,
            generation=self.request_id,
            stretch_tokens=stretch_tokens,
            pull=pull,
        )

    def problem_with(self, result: ChunkResult) -> str:
        """Why the result of a chunk cannot be taken in; empty if it can."""
        if result.stop == StopReason.FAILED:
            return result.error or "the engine gave no cause"
        if result.stop == StopReason.CANCELLED:
            return "the engine cancelled it though nobody had asked"
        if result.policy != self.policy:
            return f"the engine drew with policy {result.policy}, not {self.policy}"
        num_tokens, num_logprobs = len(result.tokens), len(result.logprobs)
        if num_tokens != num_logprobs:
            return f"the engine gave {num_tokens} tokens and {num_logprobs} log-probabilities"
        if result.stop == StopReason.BUDGET and len(self.tokens) + num_tokens >= self.sampling.max_new_tokens:
            return f"the engine went on past max_new_tokens = {self.sampling.max_new_tokens}"
        return ""

    def append(self, result: ChunkResult) -> None:
        if not self.tokens:
            self.cached_tokens = result.cached_tokens
        self.tokens += result.tokens
        self.logprobs += result.logprobs
        if self.on_chunk is not None:
            self.on_chunk(result)

    def segment(self, stop: StopReason) -> Segment:
        """The finished generation, stamped with the policy that drew it."""
        return Segment(tuple(self.tokens), tuple(self.logprobs), self.policy, stop)
