"""One training sequence, in the form the Tinker API gives it."""

import msgspec


class Datum(msgspec.Struct, frozen=True):
    """Inputs and per-position loss inputs, all of length T (already shifted: position t predicts `target_tokens[t]`).

    `weights` of zero mean that a position does not count. `logprobs` are the sampler's; `advantages` per token.
    A loss that does not use a field leaves it empty. `temperature` is what the targets were drawn at.
    """

    tokens: tuple[int, ...]
    target_tokens: tuple[int, ...]
    weights: tuple[float, ...] = ()
    logprobs: tuple[float, ...] = ()
    advantages: tuple[float, ...] = ()
    temperature: float = 1.0
    sequence_ratio_mask: tuple[float, ...] = ()
    """gspo: the positions over which the sequence's ratio is taken; empty: all of them."""
