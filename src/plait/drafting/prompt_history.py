"""Answers to prompts of earlier steps: the same prompt comes again under a later policy, which often writes much the same.

Bounded: the newest `sequences_per_prompt` answers of a prompt, and `max_tokens` tokens in all, where a prompt counts as
`PROMPT_TOKENS` more; the prompt used least recently goes first.
"""

import hashlib
from array import array
from collections.abc import Iterable, Sequence

Answer = Sequence[int]
Owner = tuple[str, str]
"""Tenant and task."""
PROMPT_TOKENS = 8
"""To know of a prompt takes about as much memory as so many tokens."""


def prompt_key(owner: Owner, prompt_tokens: Sequence[int]) -> str:
    """Of a prompt and whose it is, so that nobody drafts from another's answers."""
    packed = repr(owner).encode() + b"\0" + array("I", prompt_tokens).tobytes()
    return hashlib.blake2b(packed, digest_size=16).hexdigest()


class PromptHistory:
    """A prompt is known by a key that its owner makes of task and prompt digest, so that tenants never share a history."""

    def __init__(self, sequences_per_prompt: int = 4, max_tokens: int = 1_000_000) -> None:
        self.sequences_per_prompt, self.max_tokens = sequences_per_prompt, max_tokens
        self.num_tokens = 0
        self._answers: dict[str, tuple[Answer, ...]] = {}

    def record(self, prompt_key: str, answers: Iterable[Answer]) -> None:
        """Keep the answers of the latest step; the longest of them first, as they serve the tail."""
        newest = sorted((answer for answer in answers if answer), key=len, reverse=True)
        kept = (tuple(newest) + self._pop(prompt_key))[: self.sequences_per_prompt]
        if kept:
            self._answers[prompt_key] = kept
        self.num_tokens += sum(map(len, kept))
        while self.num_tokens + PROMPT_TOKENS * len(self._answers) > self.max_tokens:
            self._pop(next(iter(self._answers)))

    def answers(self, prompt_key: str) -> tuple[Answer, ...]:
        """Return what is kept for a prompt, which counts as using it."""
        if prompt_key not in self._answers:
            return ()
        self._answers[prompt_key] = self._answers.pop(prompt_key)
        return self._answers[prompt_key]

    def _pop(self, prompt_key: str) -> tuple[Answer, ...]:
        gone = self._answers.pop(prompt_key, ())
        self.num_tokens -= sum(map(len, gone))
        return gone
