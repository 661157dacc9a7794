"""One generation while it is being computed."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from plait.engine.stops import StopRule
from plait.kv.keys import Key
from plait.lora.mix import FusedAdapter
from plait.models.decoder import Decoder
from plait.types.chunks import Chunk, ChunkResult
from plait.types.sampling import StopReason


@dataclass(slots=True, eq=False)
class Row:
    """`tokens` is the whole context and grows; the slot holds the first `num_computed` of them.

    A row is ready to draw when all but its last token are in the slot.
    """

    number: int
    """Rows are numbered as they start."""
    chunk: Chunk
    decoder: Decoder
    """The shared base, or the policy's own model."""
    adapter: FusedAdapter | None
    root: Key
    rule: StopRule
    longest_tokens: int
    """Length of `tokens` when the chunk ends, at most."""
    tokens: list[int]
    num_computed: int = 0
    cached_tokens: int = 0
    stored_end: Key | None = None
    """The last block of what an earlier chunk of this generation stored, if it was found."""
    logprobs: list[float] = field(default_factory=list)
    num_drafted: int = 0
    """Draft tokens verified in the latest step; room for as many more is kept."""
    may_draft: bool = True
    """False after a draft that gave something that is not a number."""

    @property
    def generation(self) -> str:
        return self.chunk.generation or self.chunk.request_id

    @property
    def is_ready(self) -> bool:
        return self.num_computed == len(self.tokens) - 1

    @property
    def slot_tokens(self) -> int:
        """Length of the slot that the next step needs."""
        return min(len(self.tokens) + self.num_drafted, self.longest_tokens)

    @property
    def prompt_tokens(self) -> int:
        """Tokens before the first that was drawn for this generation, in this chunk or an earlier one."""
        return len(self.chunk.context_tokens) - self.chunk.generated_tokens

    def append(self, token: int, logprob: float) -> StopReason | None:
        """Take the drawn token; the reason if the chunk ends with it."""
        self.num_computed += 1
        self.tokens.append(token)
        self.logprobs.append(logprob)
        reason = self.rule.after(token, len(self.tokens))
        if reason is None and len(self.tokens) >= self.longest_tokens:
            return StopReason.BUDGET
        return reason

    def end_stretch(self) -> None:
        """From now on the budget holds; where that is past, the chunk ends with its next token."""
        budget_end = len(self.chunk.context_tokens) + self.chunk.budget_tokens
        self.longest_tokens = min(self.longest_tokens, max(budget_end, len(self.tokens) + 1))

    def append_all(self, tokens: Sequence[int], logprobs: Sequence[float]) -> StopReason | None:
        """Take tokens up to the one that the chunk ends with, if it does."""
        for token, logprob in zip(tokens, logprobs, strict=True):
            reason = self.append(token, logprob)
            if reason is not None:
                return reason
        return None

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


def by_decoder(rows: Sequence[Row], places: Iterable[int]) -> dict[Decoder, list[int]]:
    """The places of the rows that each decoder computes, in the order given."""
    found: dict[Decoder, list[int]] = {}
    for place in places:
        found.setdefault(rows[place].decoder, []).append(place)
    return found
