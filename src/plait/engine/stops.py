"""When a generation is over."""

from collections import deque
from collections.abc import Callable, Sequence

from plait.types.sampling import SamplingParams, StopReason

Decode = Callable[[Sequence[int]], str]

SPARE_TAIL_TOKENS = 4
"""A stop string of n bytes lies in the last n tokens that have text; a few more spare tokenizers that trim the first."""


class StopRule:
    """Judges one generation token by token, across the cuts between its chunks: `generated` is what earlier ones drew.

    Raises ValueError if there are stop strings and no `decode`.
    """

    def __init__(self, params: SamplingParams, generated: Sequence[int], max_context_tokens: int, decode: Decode | None) -> None:
        self.params, self.decode, self.max_context_tokens = params, decode, max_context_tokens
        self.num_generated = len(generated)
        longest_bytes = max((len(stop.encode()) for stop in params.stop_strings), default=0)
        self._tail: deque[int] = deque(maxlen=longest_bytes + SPARE_TAIL_TOKENS)
        if params.stop_strings:
            for token in generated:
                self._read(token)

    def after(self, token: int, num_context_tokens: int) -> StopReason | None:
        """Why the generation ends with `token`, if it does; `num_context_tokens` includes it."""
        self.num_generated += 1
        if token in self.params.stop_token_ids:
            return StopReason.STOP_TOKEN
        if self.params.stop_strings and self._ends_in_stop_string(token):
            return StopReason.STOP_STRING
        if self.num_generated >= self.params.max_new_tokens:
            return StopReason.LENGTH
        return StopReason.CONTEXT if num_context_tokens >= self.max_context_tokens else None

    def _ends_in_stop_string(self, token: int) -> bool:
        text = self._read(token)
        return any(stop in text for stop in self.params.stop_strings)

    def _read(self, token: int) -> str:
        """The text of the last tokens that have any, after `token`."""
        if self.decode is None:
            raise ValueError("stop strings need a tokenizer")
        if self.decode((token,)):
            self._tail.append(token)
        return self.decode(tuple(self._tail))
