"""What a client says of where the tokens of its data come from. Pure.

Spans of one datum tile its target positions: each is in exactly one, and where a span lies follows from those before it.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate

import msgspec

from plait.types.errors import PlaitError


class ProvenanceError(PlaitError):
    """A datum claims what is not so, or not what strict mode asks for."""


class Span(msgspec.Struct, frozen=True):
    """A run of `length` positions that are a sequence's from `offset` on: its sampled tokens, or its prompt's."""

    sequence_id: str
    offset: int
    length: int
    is_sampled: bool


class DatumClaim(msgspec.Struct, frozen=True):
    """A datum of T positions. `spans` (`loss_fn_input_spans`) tile them, or there are none."""

    target_tokens: Sequence[int] | None
    """None: there are several at each position (rank 2), which are not compared."""
    trains: Sequence[bool]
    """Whether a position can move the weights: its advantage or weight is not zero."""
    spans: tuple[Span, ...] = ()


def placed_spans(index: int, claim: DatumClaim) -> Iterator[tuple[str, Span, int, int]]:
    """(how an error names it, span, its first position, how many of its positions train), once the tiling is checked."""
    num_positions = len(claim.trains)
    if claim.target_tokens is not None and len(claim.target_tokens) != num_positions:
        raise ValueError(f"datum {index}: {num_positions} of trains and {len(claim.target_tokens)} target_tokens")
    if not claim.spans:
        return
    num_training = list(accumulate(map(int, claim.trains), initial=0))
    start = 0
    for number, span in enumerate(claim.spans):
        place = f"datum {index}, loss_fn_input_spans[{number}]"
        if span.offset < 0 or span.length < 0:
            raise ProvenanceError(f"{place}: offset {span.offset} or length {span.length} is negative.", "Give 0 or more.")
        end = start + span.length
        if end > num_positions:
            raise ProvenanceError(f"{place} ends at position {end} of {num_positions}.", "Spans must tile the targets.")
        yield place, span, start, num_training[end] - num_training[start]
        start = end
    if start != num_positions:
        message = f"datum {index}: loss_fn_input_spans cover {start} of {num_positions} positions."
        raise ProvenanceError(message, "Spans must tile the targets.")
