"""Attention of new tokens over slots: one token in each of many rows (decode), or a span of tokens in each of a few (prefill)."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from plait.engine.cache import KEY_STEP, round_up
from plait.models.attention import attend, causal_mask, fold_queries, unfold_queries

SPAN_STEP = 16
"""Spans are padded to a multiple of this many tokens; those of one length then are taken together."""


def padded_keys(num_tokens: int, row_tokens: int) -> int:
    """How many cached tokens to attend over: a whole number of steps, or the whole slot."""
    return min(round_up(num_tokens, KEY_STEP), row_tokens)


class SlotWriter:
    """Puts the keys and values of new tokens r into slot `rows_R[r]` at position `positions_R[r]`."""

    def __init__(self, rows_R: Tensor, positions_R: Tensor, num_kv_heads: int) -> None:
        heads_1K = torch.arange(num_kv_heads, device=rows_R.device)[None]
        self.where = (rows_R[:, None], heads_1K, positions_R[:, None])

    def write(self, cache: Tensor, k_RKD: Tensor, v_RKD: Tensor) -> None:
        keys, values = cache
        keys[self.where], values[self.where] = k_RKD, v_RKD


class DecodeAttention:
    """One new token for each of some rows: `rows` names them, as a slice where they have no holes."""

    def __init__(self, data: Tensor, rows: slice | Tensor, rows_R: Tensor, positions_R: Tensor, num_keys: int) -> None:
        self.data, self.rows, self.num_keys = data, rows, num_keys
        self.writer = SlotWriter(rows_R, positions_R, data.shape[3])
        self.mask = causal_mask(positions_R[:, None], num_keys, 1, data.dtype)

    def __call__(self, layer: int, q_RHD: Tensor, k_RKD: Tensor, v_RKD: Tensor) -> Tensor:
        cache = self.data[layer]
        self.writer.write(cache, k_RKD, v_RKD)
        keys, values = (part[self.rows, :, : self.num_keys].contiguous() for part in cache)  # together they would be copied
        queries = fold_queries(q_RHD, len(q_RHD), k_RKD.shape[1])
        return unfold_queries(attend(queries, keys, values, self.mask, q_RHD.shape[-1] ** -0.5), 1)


@dataclass(frozen=True, slots=True)
class Span:
    """New tokens of one row: `count` of them from position `start` on."""

    row: int
    start: int
    count: int

    @property
    def end(self) -> int:
        return self.start + self.count


class PrefillAttention:
    """Spans of about one length that see about as many keys are taken together."""

    def __init__(self, data: Tensor, spans: Sequence[Span], group: int) -> None:
        self.data = data
        counts, device = [span.count for span in spans], data.device
        rows_R = torch.tensor([span.row for span in spans], device=device).repeat_interleave(torch.tensor(counts, device=device))
        self.positions_R = torch.cat([torch.arange(span.start, span.end, device=device) for span in spans])
        self.writer = SlotWriter(rows_R, self.positions_R, data.shape[3])
        firsts = [0, *accumulate(counts)]
        alike: dict[tuple[int, int], list[int]] = {}
        for index, span in enumerate(spans):
            alike.setdefault((round_up(span.count, SPAN_STEP), padded_keys(span.end, data.shape[4])), []).append(index)
        self.groups = [
            _SpanGroup([spans[i] for i in chosen], [firsts[i] for i in chosen], length, num_keys, group, data)
            for (length, num_keys), chosen in alike.items()
        ]

    def __call__(self, layer: int, q_RHD: Tensor, k_RKD: Tensor, v_RKD: Tensor) -> Tensor:
        cache = self.data[layer]
        self.writer.write(cache, k_RKD, v_RKD)
        mixed = q_RHD.new_empty(q_RHD.shape[0], q_RHD.shape[1] * q_RHD.shape[2])
        for group in self.groups:
            group.mix(cache, q_RHD, mixed)
        return mixed


class _SpanGroup:
    """B spans over as many keys each; queries are padded to L by the span's last."""

    def __init__(self, spans: Sequence[Span], firsts: Sequence[int], length: int, num_keys: int, group: int, data: Tensor) -> None:
        """`firsts` are where the spans' tokens begin among all rows."""
        device, self.length, self.num_keys = data.device, length, num_keys
        counts_B1 = torch.tensor([span.count for span in spans], device=device)[:, None]
        steps_1L = torch.arange(length, device=device)[None]
        places_BL = torch.minimum(steps_1L, counts_B1 - 1)
        self.rows_B = torch.tensor([span.row for span in spans], device=device)
        self.gather_T = (places_BL + torch.tensor(firsts, device=device)[:, None]).flatten()
        self.is_token_T = (steps_1L < counts_B1).flatten().nonzero()[:, 0]
        positions_BL = places_BL + torch.tensor([span.start for span in spans], device=device)[:, None]
        self.mask = causal_mask(positions_BL, num_keys, group, data.dtype)

    def mix(self, cache: Tensor, q_RHD: Tensor, mixed_RQ: Tensor) -> None:
        keys, values = (part[self.rows_B, :, : self.num_keys] for part in cache)
        queries = fold_queries(q_RHD[self.gather_T], len(self.rows_B), cache.shape[2])
        found = unfold_queries(attend(queries, keys, values, self.mask, q_RHD.shape[-1] ** -0.5), self.length)
        mixed_RQ[self.gather_T[self.is_token_T]] = found[self.is_token_T]
