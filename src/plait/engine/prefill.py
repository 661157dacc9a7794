"""Computing what the cache lacks of some contexts, a bounded number of tokens at a time."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from plait.engine.attention import PrefillAttention, Span
from plait.engine.row import Row
from plait.kv.keys import Key
from plait.models.decoder import Decoder, LoraDelta


@dataclass(frozen=True, slots=True)
class PrefillPlan:
    """What to compute now, and which rows (`followers`) wait for the row that computes the same context."""

    spans: tuple[Span, ...]
    followers: tuple[tuple[int, int], ...]
    """(follower, leader)"""

    @property
    def num_tokens(self) -> int:
        return sum(span.count for span in self.spans)


def plan_prefill(rows: Sequence[Row], max_tokens: int) -> PrefillPlan:
    """The next tokens of rows that lack some, first come first served, up to `max_tokens` in all. Pure.

    Of rows with one context under one policy only the first computes.
    """
    leaders: dict[tuple[Key, tuple[int, ...]], int] = {}
    spans: list[Span] = []
    followers: list[tuple[int, int]] = []
    lacking = [(row.number, index) for index, row in enumerate(rows) if not row.is_ready]
    for _, index in sorted(lacking):
        row = rows[index]
        leader = leaders.setdefault((row.root, row.chunk.context_tokens), index)
        count = min(len(row.tokens) - 1 - row.num_computed, max_tokens)
        if leader != index:
            followers.append((index, leader))
        elif count > 0:
            spans.append(Span(index, row.num_computed, count))
            max_tokens -= count
    spans.sort(key=lambda span: rows[span.row].chunk.policy)  # tokens of one adapter lie side by side
    return PrefillPlan(tuple(spans), tuple(followers))


def prefill(decoder: Decoder, data: Tensor, rows: Sequence[Row], spans: Sequence[Span], lora: LoraDelta | None) -> None:
    """Fill slots for the spans; `lora` is mixed for their tokens in order."""
    config = decoder.config
    tokens = [token for span in spans for token in rows[span.row].tokens[span.start : span.end]]
    attention = PrefillAttention(data, spans, config.num_heads // config.num_kv_heads)
    tokens_R = attention.positions_R.new_tensor(tokens)
    decoder.forward(tokens_R, attention.positions_R, attention, lora)
