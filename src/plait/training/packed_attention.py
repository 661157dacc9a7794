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
    """The `Attention` of one micro-batch; index tensors and masks are made once for all layers.

    Rows are split once for all groups: a slice for each would leave a full-size gradient on the way back. Rows behind the last
    group fill up, and are mixed with nothing.
    """

    def __init__(self, batch: PackedBatch, heads_per_kv_head: int, dtype: torch.dtype, device: torch.device) -> None:
        self._groups = [_GroupAttention(group, heads_per_kv_head, dtype, device) for group in batch.groups]
        self._sizes = [rows for group in batch.groups for rows in (group.num_prefix_tokens, sum(group.suffix_lengths))]

    def __call__(self, layer: int, q_RHD: Tensor, k_RKD: Tensor, v_RKD: Tensor) -> Tensor:
        num_fillers = len(q_RHD) - sum(self._sizes)
        *parts, (fillers, _, _) = zip(*(x.split([*self._sizes, num_fillers]) for x in (q_RHD, k_RKD, v_RKD)), strict=True)
        mixed = (group(*given) for group, *given in zip(self._groups, parts[::2], parts[1::2], strict=True))
        return torch.cat([*(part for pair in mixed for part in pair), torch.zeros_like(fillers).flatten(1)])


_Rows = tuple[Tensor, Tensor, Tensor]
"""Queries, keys and values of some rows."""


class _GroupAttention:
    """One shared prefix of P rows and N suffixes of at most L rows."""

    def __init__(self, group: PackedGroup, heads_per_kv_head: int, dtype: torch.dtype, device: torch.device) -> None:
        prefix, longest = group.num_prefix_tokens, max(group.suffix_lengths)
        self.num_suffixes, self.longest = len(group.members), longest
        positions = torch.arange(prefix + longest, device=device)[None]
        self.prefix_mask = causal_mask(positions[:, :prefix], prefix, heads_per_kv_head, dtype) if prefix else None
        self.suffix_mask = causal_mask(positions[:, prefix:], prefix + longest, heads_per_kv_head, dtype)
        self.is_ragged = min(group.suffix_lengths) < longest
        self.spread_M, self.picked_R = _rectangle(group, device)

    def __call__(self, prefix: _Rows, suffixes: _Rows) -> list[Tensor]:
        """Mixed rows of the prefix, if there is one, and of the suffixes."""
        q_MHD, k_MKD, v_MKD = (self._spread(x) for x in suffixes)
        k, v = _sequences(k_MKD, self.num_suffixes), _sequences(v_MKD, self.num_suffixes)
        if self.prefix_mask is None:
            return [self._mix_suffixes(q_MHD, k, v)]
        shared_k, shared_v = (_sequences(x, 1) for x in prefix[1:])
        mixed = _attend(fold_queries(prefix[0], 1, shared_k.shape[1]), shared_k, shared_v, self.prefix_mask)
        k, v = (torch.cat([x.expand(self.num_suffixes, -1, -1, -1), own], 2) for x, own in ((shared_k, k), (shared_v, v)))
        return [unfold_queries(mixed, len(prefix[0])), self._mix_suffixes(q_MHD, k, v)]

    def _spread(self, x_RHD: Tensor) -> Tensor:
        return x_RHD.index_select(0, self.spread_M) if self.is_ragged else x_RHD

    def _mix_suffixes(self, q_MHD: Tensor, k_NKSD: Tensor, v_NKSD: Tensor) -> Tensor:
        q = fold_queries(q_MHD, self.num_suffixes, k_NKSD.shape[1])
        mixed_MF = unfold_queries(_attend(q, k_NKSD, v_NKSD, self.suffix_mask), self.longest)
        return mixed_MF.index_select(0, self.picked_R) if self.is_ragged else mixed_MF


def _sequences(x_RKD: Tensor, num_sequences: int) -> Tensor:
    """[B * L, K, D] -> [B, K, L, D]."""
    rows, kv_heads, dim = x_RKD.shape
    return x_RKD.reshape(num_sequences, rows // num_sequences, kv_heads, dim).transpose(1, 2)


def _rectangle(group: PackedGroup, device: torch.device) -> tuple[Tensor, Tensor]:
    """Which of the group's suffix rows fill the rectangle of suffixes [N * L], and where in it they stand."""
    longest = max(group.suffix_lengths)
    spread: list[int] = []
    picked: list[int] = []
    for index, length in enumerate(group.suffix_lengths):
        start = len(picked)
        spread += [*range(start, start + length), *([start] * (longest - length))]
        picked += range(index * longest, index * longest + length)
    return torch.tensor(spread, device=device), torch.tensor(picked, device=device)


def _attend(q_BKMD: Tensor, k_BKSD: Tensor, v_BKSD: Tensor, mask: Tensor) -> Tensor:
    scale = q_BKMD.shape[-1] ** -0.5
    num_scores = q_BKMD.shape[:3].numel() * k_BKSD.shape[2]
    if q_BKMD.requires_grad and num_scores > MAX_KEPT_SCORES:
        return checkpoint(attend, q_BKMD, k_BKSD, v_BKSD, mask, scale, use_reentrant=False, preserve_rng_state=False)
    return attend(q_BKMD, k_BKSD, v_BKSD, mask, scale)
