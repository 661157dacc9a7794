"""Grouped-query attention in plain operations, the same on every path.

Fused attention kernels round differently by length and batch (bfloat16 log-probabilities off by up to 0.33 nats), so
rollout and training share these three unfused operations. Shapes: B sequences, K key-value heads, G query heads for each,
M = G x L folded queries, S keys, D values a head.
"""

from functools import reduce
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

QUERY_MULTIPLE = 4
"""In float32, folded queries are padded to a multiple of this; to twice that for heads wider than `NARROW_HEAD`: MKL has kernels of
other rounding for fewer queries, the more so the wider the head."""

NARROW_HEAD = 64

MIN_KEYS = 16
"""Keys are padded to this number: torch adds up a softmax over fewer values than a vector has lanes in another order."""

VALUE_CHUNK = 128
"""In float32, the product with the values is summed over chunks of so many keys."""


class Attention(Protocol):
    """What a decoder layer asks for: mix rows through keys and values, wherever those are kept."""

    def __call__(self, layer: int, q_RHD: Tensor, k_RKD: Tensor, v_RKD: Tensor) -> Tensor:
        """Return the mixed rows, [R, H * D]."""
        ...


def fold_queries(q_RHD: Tensor, num_sequences: int, num_kv_heads: int) -> Tensor:
    """[B * L, H, D] -> [B, K, G * L, D], so that a group's queries meet their keys in one product."""
    rows, heads, dim = q_RHD.shape
    length, group = rows // num_sequences, heads // num_kv_heads
    q = q_RHD.view(num_sequences, length, num_kv_heads, group, dim).permute(0, 2, 3, 1, 4)
    return q.reshape(num_sequences, num_kv_heads, group * length, dim)


def unfold_queries(o_BKMD: Tensor, length: int) -> Tensor:
    """[B, K, G * L, D] -> [B * L, H * D]; the inverse of `fold_queries`."""
    batch, kv_heads, folded, dim = o_BKMD.shape
    o = o_BKMD.view(batch, kv_heads, folded // length, length, dim).permute(0, 3, 1, 2, 4)
    return o.reshape(batch * length, kv_heads * (folded // length) * dim)


def causal_mask(positions_BL: Tensor, num_keys: int, group: int, dtype: torch.dtype) -> Tensor:
    """Additive mask [B, 1, G * L, S] (G * L is 1 when L is 1): key j is visible to position p if j <= p."""
    keys = torch.arange(num_keys, device=positions_BL.device)
    hidden = keys > positions_BL[..., None]
    mask = torch.zeros(hidden.shape, dtype=dtype, device=hidden.device).masked_fill_(hidden, float("-inf"))[:, None]
    return mask if positions_BL.shape[1] == 1 else mask.repeat(1, 1, group, 1)


def attend(q_BKMD: Tensor, k_BKSD: Tensor, v_BKSD: Tensor, mask_B1MS: Tensor, scale: float) -> Tensor:
    """Softmax attention, [B, K, M, D]. Every key that the mask hides must hold finite values."""
    missing = MIN_KEYS - k_BKSD.shape[2]
    if missing > 0:
        k_BKSD, v_BKSD = F.pad(k_BKSD, (0, 0, 0, missing)), F.pad(v_BKSD, (0, 0, 0, missing))
        mask_B1MS = F.pad(mask_B1MS, (0, missing), value=float("-inf"))
    if q_BKMD.dtype == torch.float32 and q_BKMD.device.type == "cpu":
        return _attend_float32(q_BKMD, k_BKSD, v_BKSD, mask_B1MS, scale)
    scores = torch.matmul(q_BKMD, k_BKSD.transpose(2, 3)).mul_(scale).add_(mask_B1MS)
    return torch.matmul(torch.softmax(scores.float(), dim=-1).to(q_BKMD.dtype), v_BKSD)


def _attend_float32(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float) -> Tensor:
    num_queries, num_keys = q.shape[2], k.shape[2]
    missing = -num_queries % (QUERY_MULTIPLE if q.shape[3] <= NARROW_HEAD else 2 * QUERY_MULTIPLE)
    if missing:
        q = F.pad(q, (0, 0, 0, missing))
        mask = F.pad(mask, (0, 0, 0, missing)) if mask.shape[2] > 1 else mask
    weights = torch.softmax(torch.matmul(q, k.transpose(2, 3)).mul_(scale).add_(mask), dim=-1)
    parts = [
        torch.matmul(weights[..., start : start + VALUE_CHUNK], v[:, :, start : start + VALUE_CHUNK])
        for start in range(0, num_keys, VALUE_CHUNK)
    ]
    return reduce(torch.add, parts)[:, :, :num_queries]


class PaddedAttention:
    """Causal attention within B sequences of one length and no cache: the plain form, for oracles and scoring."""

    def __init__(self, num_sequences: int, length: int, group: int, dtype: torch.dtype, device: torch.device) -> None:
        self.num_sequences, self.length = num_sequences, length
        positions = torch.arange(length, device=device)[None]
        self.mask = causal_mask(positions, length, group, dtype)

    def __call__(self, layer: int, q_RHD: Tensor, k_RKD: Tensor, v_RKD: Tensor) -> Tensor:
        kv_heads, dim = k_RKD.shape[1:]
        q = fold_queries(q_RHD, self.num_sequences, kv_heads)
        k = k_RKD.view(self.num_sequences, self.length, kv_heads, dim).transpose(1, 2)
        v = v_RKD.view(self.num_sequences, self.length, kv_heads, dim).transpose(1, 2)
        return unfold_queries(attend(q, k, v, self.mask, dim**-0.5), self.length)
