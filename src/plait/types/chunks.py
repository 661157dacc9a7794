"""What the engine takes and gives: chunks of generations."""

import msgspec

from plait.types.policy import AdapterRef, PolicyVersion
from plait.types.sampling import SamplingParams, StopReason


class PullFrom(msgspec.Struct, frozen=True):
    """Where the controller takes the beginning of a context to lie, of which an engine has less at hand. It may be wrong."""

    tier: str
    """The disk or the store between nodes, by `kv.block_log`'s names."""
    num_tokens: int
    """From the first on."""


NOTHING_BELOW = PullFrom("", 0)
"""As far as is known there is no more of it than an engine has at hand."""


class Chunk(msgspec.Struct, frozen=True, tag="chunk"):
    """A request to go on with one generation for at most `budget_tokens` new tokens.

    `context_tokens` is everything before the next token (prompt, earlier turns, tokens of earlier chunks);
    the last `generated_tokens` of it were drawn for this generation and count against `max_new_tokens`.
    What the cache holds of it is not computed again.
    """

    request_id: str
    policy: PolicyVersion
    context_tokens: tuple[int, ...]
    budget_tokens: int
    sampling: SamplingParams
    adapter: AdapterRef | None = None
    """None is the frozen base itself."""
    generated_tokens: int = 0
    keep_cache: bool = False
    """Store the cache at the end also when the generation is finished, for a later turn."""
    group: str = ""
    """Generations of one prompt under one policy version share it. Empty: this one is alone."""
    generation: str = ""
    """What the chunks of one generation have in common, by which drafts are learnt from them. Empty: `request_id`."""
    stretch_tokens: int = 0
    """So many more than `budget_tokens` may be drawn, until the engine is told that stretches end."""
    pull: PullFrom | None = None
    """What to bring up before the chunk starts, while others decode. None: nobody knows, so the engine looks."""


class ChunkResult(msgspec.Struct, frozen=True, tag="chunk_result"):
    """The end of a chunk. `stop` is BUDGET when the generation is to go on.

    `logprobs[i]` is the natural-log probability of `tokens[i]` under the distribution it was drawn from.
    `cache_handle` names the stored cache (empty: nothing was stored).
    """

    request_id: str
    policy: PolicyVersion
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    stop: StopReason
    cache_handle: str = ""
    cached_tokens: int = 0
    """Context tokens that came from the cache."""
    error: str = ""
