"""Attention for packed rows: each suffix sees its group's prefix, computed once, and itself causally.

Built from the core functions that the engine's decode path uses, on keys in the order of positions, so that a row has the
bits it would have alone. Rows of suffixes of unequal lengths are spread into a rectangle and picked out again; the fillers
are real rows (finite values) behind the last position, where the causal mask hides them.
"""

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from plait.models.attention import attend, causal_mask, fold_queries, unfold_queries
from plait.training.packing import PackedBatch, PackedGroup

MAX_KEPT_SCORES = 1 << 21
"""Scores of one call beyond this number are not kept for the backward pass but computed again: they grow with the square
of the length, and cost little next to the linear layers."""


class PackedAttention:
    """The `Attention` of one micro-batch; index tensors and masks are made once for all layers."""

    def __init__(self, batch: PackedBatch, heads_per_kv_head: int, dtype: torch.dtype, device: torch.device) -> None:
        self._groups = [_GroupAttention(group, heads_per_kv_head, dtype, device) for group in batch.groups]

    def __call__(self, layer: int, q_RHD: Tensor, k_RKD: Tensor, v_RKD: Tensor) -> Tensor:
        return torch.cat([part for group in self._groups for part in group(q_RHD, k_RKD, v_RKD)])


class _GroupAttention:
    """One shared prefix of P rows and N suffixes of at most L rows."""

    def __init__(self, group: PackedGroup, heads_per_kv_head: int, dtype: torch.dtype, device: torch.device) -> None:
        prefix, longest = group.num_prefix_tokens, max(group.suffix_lengths)
        self.prefix = slice(group.first_row, group.first_row + prefix)
        self.num_suffixes, self.longest = len(group.members), longest
        positions = torch.arange(prefix + longest, device=device)[None]
        self.prefix_mask = causal_mask(positions[:, :prefix], prefix, heads_per_kv_head, dtype) if prefix else None
        self.suffix_mask = causal_mask(positions[:, prefix:], prefix + longest, heads_per_kv_head, dtype)
        self.spread_M, self.picked_R = _rectangle(group, device)

    def __call__(self, q_RHD: Tensor, k_RKD: Tensor, v_RKD: Tensor) -> list[Tensor]:
        suffixes = self._suffixes(q_RHD, k_RKD, v_RKD)
        if self.prefix_mask is None:
            return [suffixes]
        q, k, v = q_RHD[self.prefix], k_RKD[self.prefix], v_RKD[self.prefix]
        mixed = _attend(fold_queries(q, 1, k.shape[1]), _sequences(k, 1), _sequences(v, 1), self.prefix_mask)
        return [unfold_queries(mixed, q.shape[0]), suffixes]

    def _suffixes(self, q_RHD: Tensor, k_RKD: Tensor, v_RKD: Tensor) -> Tensor:
        q = fold_queries(q_RHD.index_select(0, self.spread_M), self.num_suffixes, k_RKD.shape[1])
        mixed = _attend(q, self._keys(k_RKD), self._keys(v_RKD), self.suffix_mask)
        return unfold_queries(mixed, self.longest).index_select(0, self.picked_R)

    def _keys(self, x_RKD: Tensor) -> Tensor:
        """Keys or values of prefix and suffix, [N, K, P + L, D]."""
        own = _sequences(x_RKD.index_select(0, self.spread_M), self.num_suffixes)
        if self.prefix_mask is None:
            return own
        shared = _sequences(x_RKD[self.prefix], 1).expand(self.num_suffixes, -1, -1, -1)
        return torch.cat([shared, own], dim=2)


def _sequences(x_RKD: Tensor, num_sequences: int) -> Tensor:
    """[B * L, K, D] -> [B, K, L, D]."""
    rows, kv_heads, dim = x_RKD.shape
    return x_RKD.reshape(num_sequences, rows // num_sequences, kv_heads, dim).transpose(1, 2)


def _rectangle(group: PackedGroup, device: torch.device) -> tuple[Tensor, Tensor]:
    """Rows that fill the rectangle of suffixes [N * L], and where in it the group's suffix rows stand."""
    longest = max(group.suffix_lengths)
    spread: list[int] = []
    picked: list[int] = []
    for index, (start, length) in enumerate(zip(group.suffix_starts, group.suffix_lengths, strict=True)):
        spread += [*range(start, start + length), *([start] * (longest - length))]
        picked += range(index * longest, index * longest + length)
    return torch.tensor(spread, device=device), torch.tensor(picked, device=device)


def _attend(q_BKMD: Tensor, k_BKSD: Tensor, v_BKSD: Tensor, mask: Tensor) -> Tensor:
    scale = q_BKMD.shape[-1] ** -0.5
    num_scores = q_BKMD.shape[:3].numel() * k_BKSD.shape[2]
    if q_BKMD.requires_grad and num_scores > MAX_KEPT_SCORES:
        return checkpoint(attend, q_BKMD, k_BKSD, v_BKSD, mask, scale, use_reentrant=False, preserve_rng_state=False)
    return attend(q_BKMD, k_BKSD, v_BKSD, mask, scale)
