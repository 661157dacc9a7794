"""What this engine can never serve, told before anything is computed. Torch-free and pure."""

import math
from dataclasses import dataclass

from plait.types.chunks import Chunk
from plait.types.sampling import SamplingParams

MIN_TEMPERATURE = 1e-3
"""Below this, logits divided by the temperature lose their last digits: 0 is greedy and exact."""
MAX_SEED = 2**64 - 1


@dataclass(frozen=True, slots=True)
class EngineLimits:
    vocab_size: int
    max_context_tokens: int
    slot_tokens: int
    has_tokenizer: bool

    def longest_tokens(self, chunk: Chunk) -> int:
        """Tokens of context and answer when the chunk ends, at most."""
        return min(len(chunk.context_tokens) + chunk.budget_tokens, self.max_context_tokens)

    def stretched_tokens(self, chunk: Chunk) -> int:
        """The same, with as much of the chunk's stretch as fits an empty engine."""
        stretched = len(chunk.context_tokens) + chunk.budget_tokens + chunk.stretch_tokens
        return min(stretched, self.max_context_tokens, self.slot_tokens)

    def problem(self, chunk: Chunk) -> str:
        """Why the chunk is hopeless, naming field and value; empty if it is not."""
        return self._context_problem(chunk) or self._identity_problem(chunk) or self._sampling_problem(chunk.sampling)

    def _context_problem(self, chunk: Chunk) -> str:
        num_tokens = len(chunk.context_tokens)
        if num_tokens < 1:
            return "context_tokens is empty: give at least one token"
        wrong = next((token for token in chunk.context_tokens if not 0 <= token < self.vocab_size), None)
        if wrong is not None:
            return f"context_tokens holds the id {wrong}: the vocabulary is 0..{self.vocab_size - 1}"
        if num_tokens >= self.max_context_tokens:
            return f"context_tokens has {num_tokens} tokens and max_context_tokens is {self.max_context_tokens}: shorten it"
        if chunk.budget_tokens < 1:
            return f"budget_tokens is {chunk.budget_tokens}: it must be at least 1"
        longest = self.longest_tokens(chunk)
        if longest > self.slot_tokens:
            return f"the chunk needs {longest} cached tokens and slot_tokens is {self.slot_tokens}: lower budget_tokens"
        return ""

    def _identity_problem(self, chunk: Chunk) -> str:
        generated, most = chunk.generated_tokens, chunk.sampling.max_new_tokens
        if not 0 <= generated < len(chunk.context_tokens):
            return f"generated_tokens is {generated} of {len(chunk.context_tokens)} context_tokens: some must be the prompt's"
        if generated >= most:
            return f"sampling.max_new_tokens is {most} and generated_tokens is already {generated}: nothing is left to draw"
        if chunk.adapter is not None and chunk.adapter.policy != chunk.policy:
            return f"policy is {chunk.policy} but adapter.policy is {chunk.adapter.policy}: they must be the same"
        return ""

    def _sampling_problem(self, params: SamplingParams) -> str:
        if params.temperature != 0 and not MIN_TEMPERATURE <= params.temperature < math.inf:
            return f"sampling.temperature is {params.temperature}: it must be 0 (greedy) or at least {MIN_TEMPERATURE}"
        if not 0 < params.top_p <= 1:
            return f"sampling.top_p is {params.top_p}: it must be above 0 and at most 1 (off)"
        if params.top_k < 0:
            return f"sampling.top_k is {params.top_k}: it must be at least 0 (off)"
        if not 0 <= params.seed <= MAX_SEED:
            return f"sampling.seed is {params.seed}: it must lie in 0..2^64 - 1"
        if "" in params.stop_strings:
            return "sampling.stop_strings holds an empty string: remove it"
        if params.stop_strings and not self.has_tokenizer:
            return f"sampling.stop_strings is {params.stop_strings}, and this engine has no tokenizer: use stop_token_ids"
        return ""
