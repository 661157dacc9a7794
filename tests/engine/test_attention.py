"""Spans computed together have the bits of a full pass over each sequence alone, whatever else is in the batch."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.engine.attention import PrefillAttention, Span
from plait.models.attention import PaddedAttention
from plait.models.kernels import has_onednn

SLOT_TOKENS, LAYERS = 160, 1
CPU = torch.device("cpu")


@pytest.mark.skipif(not has_onednn(torch.bfloat16), reason="no oneDNN in bfloat16 here: nothing is promised")
@settings(max_examples=40, deadline=None)
@given(
    ends=st.lists(st.tuples(st.integers(1, SLOT_TOKENS), st.integers(0, SLOT_TOKENS)), min_size=1, max_size=6),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
    heads=st.sampled_from([(3, 3, 64), (2, 7, 64), (4, 2, 128)]),
    seed=st.integers(0, 99),
)
def test_spans_have_the_bits_of_a_full_pass(
    ends: list[tuple[int, int]], dtype: torch.dtype, heads: tuple[int, int, int], seed: int
) -> None:
    torch.set_num_threads(1)
    kv_heads, group, dim = heads
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randperm(len(ends) + 1, generator=generator).tolist()[: len(ends)]
    spans = [Span(row, min(start, end - 1), end - min(start, end - 1)) for row, (end, start) in zip(rows, ends, strict=True)]
    data = torch.zeros(LAYERS, 2, len(ends) + 1, kv_heads, SLOT_TOKENS, dim, dtype=dtype)
    inputs, expected = [], []
    for span in spans:
        q, k, v = (torch.randn(span.end, n, dim, generator=generator).to(dtype) for n in (kv_heads * group, kv_heads, kv_heads))
        expected.append(PaddedAttention(1, span.end, group, dtype, CPU)(0, q, k, v)[span.start :])
        data[0, 0, span.row, :, : span.start] = k[: span.start].transpose(0, 1)
        data[0, 1, span.row, :, : span.start] = v[: span.start].transpose(0, 1)
        inputs.append([x[span.start :] for x in (q, k, v)])
    attention = PrefillAttention(data, spans, group)
    found = attention(0, *(torch.cat(parts) for parts in zip(*inputs, strict=True)))
    assert torch.equal(found, torch.cat(expected))


def test_alike_spans_are_one_product() -> None:
    data = torch.zeros(LAYERS, 2, 8, 1, SLOT_TOKENS, 16)
    spans = [Span(row, 0, 10 + row % 4) for row in range(7)] + [Span(7, 100, 10)]
    assert [len(group.rows_B) for group in PrefillAttention(data, spans, 2).groups] == [7, 1]
