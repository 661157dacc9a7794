"""How tokens are drawn, and why drawing stopped."""

from enum import StrEnum

import msgspec


class StopReason(StrEnum):
    """Why a generation or an episode ended."""

    STOP_TOKEN = "stop_token"
    """A stop token was drawn; it is part of the returned tokens."""
    STOP_STRING = "stop_string"
    """The decoded text came to contain a stop string; its tokens are part of the returned tokens."""
    LENGTH = "length"
    """`max_new_tokens` were drawn."""
    CONTEXT = "context"
    """The model's context is full."""
    BUDGET = "budget"
    """Only of a chunk: its token budget is spent and the request goes on later."""
    CANCELLED = "cancelled"
    """Somebody asked for it to end."""
    FAILED = "failed"
    """The request could not be served; `error` says why."""


class SamplingParams(msgspec.Struct, frozen=True):
    """Distribution and limits of one generation.

    `temperature` 0 is greedy, with log-probabilities reported at temperature 1. `top_p` 1 and `top_k` 0 are off.
    """

    max_new_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    stop_token_ids: tuple[int, ...] = ()
    stop_strings: tuple[str, ...] = ()
    seed: int = 0
    """Keys the noise together with each token's absolute position; 63 bits, from `types.seeds`."""
