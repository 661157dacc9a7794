"""When a generation is over."""

from collections.abc import Callable, Sequence

from plait.types.sampling import SamplingParams, StopReason

Decode = Callable[[Sequence[int]], str]

MAX_TAIL_TOKENS = 64
"""Tokens looked back over for a stop string that starts in an earlier token."""


class StopRule:
    """Judges one generation token by token, across the cuts between its chunks."""

    def __init__(self, params: SamplingParams, generated: Sequence[int], max_context_tokens: int, decode: Decode | None) -> None:
        self.params, self.decode = params, decode
        self.generated = list(generated)
        self.max_context_tokens = max_context_tokens

    def after(self, token: int, num_context_tokens: int) -> StopReason | None:
        """Why the generation ends with `token`, if it does; `num_context_tokens` includes it."""
        self.generated.append(token)
        if token in self.params.stop_token_ids:
            return StopReason.STOP_TOKEN
        if self.params.stop_strings and self._has_stop_string():
            return StopReason.STOP_STRING
        if len(self.generated) >= self.params.max_new_tokens:
            return StopReason.LENGTH
        return StopReason.CONTEXT if num_context_tokens >= self.max_context_tokens else None

    def _has_stop_string(self) -> bool:
        if self.decode is None:
            raise ValueError("stop strings need a tokenizer")
        text = self.decode(self.generated[-MAX_TAIL_TOKENS:])
        return any(stop in text for stop in self.params.stop_strings)
