"""Rows that fill up a micro-batch change nothing for the others."""

import torch

from plait.training.packed_attention import PackedAttention
from plait.training.packing import pack
from plait.types.datum import Datum


def test_fillers_are_mixed_with_nothing() -> None:
    datums = [Datum(tokens=(1, 2, 3, *rest), target_tokens=(0,) * (3 + len(rest))) for rest in ((4, 5), (6,), (7, 8, 9))]
    (batch,) = pack(datums, 64)
    num_rows = len(batch.tokens_R)
    attention = PackedAttention(batch, 2, torch.float32, torch.device("cpu"))
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(num_rows + 3, heads, 16, generator=generator) for heads in (4, 2, 2))
    mixed = attention(0, q, k, v)
    assert torch.equal(mixed[:num_rows], attention(0, q[:num_rows], k[:num_rows], v[:num_rows]))
    assert not mixed[num_rows:].any()
