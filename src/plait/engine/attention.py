"""Attention of new tokens over slots: one token in each of many rows (decode), or a span of tokens in each of a few (prefill)."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from plait.engine.cache import KEY_STEP, round_up
from plait.models.attention import attend, causal_mask, fold_queries, unfold_queries


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
        keys, values = cache[:, self.rows, :, : self.num_keys].contiguous()
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
    """Row by row, since rows bring different numbers of tokens: nothing is padded but the keys."""

    def __init__(self, data: Tensor, spans: Sequence[Span], group: int) -> None:
        self.data, self.spans, self.sizes = data, spans, [span.count for span in spans]
        device = data.device
        rows_R = torch.tensor([span.row for span in spans], device=device).repeat_interleave(
            torch.tensor(self.sizes, device=device)
        )
        positions = [torch.arange(span.start, span.end, device=device) for span in spans]
        self.positions_R = torch.cat(positions)
        self.writer = SlotWriter(rows_R, self.positions_R, data.shape[3])
        keys = [padded_keys(span.end, data.shape[4]) for span in spans]
        self.masks = [causal_mask(p[None], n, group, data.dtype) for p, n in zip(positions, keys, strict=True)]

    def __call__(self, layer: int, q_RHD: Tensor, k_RKD: Tensor, v_RKD: Tensor) -> Tensor:
        cache = self.data[layer]
        self.writer.write(cache, k_RKD, v_RKD)
        mixed = [self._attend(cache, *item) for item in zip(self.spans, self.masks, q_RHD.split(self.sizes), strict=True)]
        return torch.cat(mixed)

    def _attend(self, cache: Tensor, span: Span, mask: Tensor, q_LHD: Tensor) -> Tensor:
        keys, values = cache[:, span.row : span.row + 1, :, : mask.shape[-1]].contiguous()
        queries = fold_queries(q_LHD, 1, cache.shape[2])
        return unfold_queries(attend(queries, keys, values, mask, q_LHD.shape[-1] ** -0.5), span.count)
