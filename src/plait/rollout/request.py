"""A generation that somebody waits for."""

from dataclasses import dataclass, field

from plait.types.chunks import Chunk
from plait.types.policy import AdapterRef, PolicyVersion
from plait.types.sampling import SamplingParams


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
    logprobs: list[float] = field(default_factory=list)

    def next_chunk(self, chunk_tokens: int) -> Chunk:
        """The chunk that goes on from what has been drawn; the limits of the whole request hold across cuts."""
        return Chunk(
            request_id=self.request_id,
            policy=self.policy,
            context_tokens=self.context_tokens + tuple(self.tokens),
            budget_tokens=min(chunk_tokens, self.sampling.max_new_tokens - len(self.tokens)),
            sampling=self.sampling,
            adapter=self.adapter,
            generated_tokens=len(self.tokens),
            keep_cache=self.keep_cache,
        )
