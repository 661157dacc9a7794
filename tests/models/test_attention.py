"""Attention equals torch's own, and a query's bits depend on what it sees alone."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from plait.models.attention import PaddedAttention, attend, causal_mask, fold_queries, unfold_queries
from plait.models.kernels import has_onednn

DTYPES = st.sampled_from([torch.float32, torch.bfloat16])
KV_HEADS, GROUP = 2, 3


def random(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@given(batch=st.integers(1, 4), length=st.integers(1, 5), kv_heads=st.integers(1, 3), group=st.integers(1, 3))
def test_unfold_undoes_fold(batch: int, length: int, kv_heads: int, group: int) -> None:
    q = random(batch * length, kv_heads * group, 4)
    assert torch.equal(unfold_queries(fold_queries(q, batch, kv_heads), length), q.flatten(1))


def test_folded_queries_meet_the_keys_of_their_group() -> None:
    q = torch.arange(6.0)[None, :, None].expand(2, 6, 1)
    assert fold_queries(q, 2, 3)[1, :, :, 0].tolist() == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]


def test_causal_mask_shows_a_position_itself_and_what_is_before() -> None:
    mask = causal_mask(torch.tensor([[1, 2]]), 4, group=1, dtype=torch.float32)
    assert (mask == 0).tolist() == [[[[True, True, False, False], [True, True, True, False]]]]
    assert causal_mask(torch.tensor([[3], [0]]), 4, group=5, dtype=torch.float32).shape == (2, 1, 1, 4)
    assert causal_mask(torch.tensor([[0, 1]]), 4, group=5, dtype=torch.float32).shape == (1, 1, 10, 4)


@settings(max_examples=30)
@given(dtype=DTYPES, length=st.integers(1, 150), dim=st.sampled_from([16, 64, 80, 128]), batch=st.integers(1, 3))
def test_equals_scaled_dot_product_attention(dtype: torch.dtype, length: int, dim: int, batch: int) -> None:
    q, k, v = (random(batch * length, heads, dim, dtype=dtype, seed=heads) for heads in (KV_HEADS * GROUP, KV_HEADS, KV_HEADS))
    found = PaddedAttention(batch, length, GROUP, dtype, q.device)(0, q, k, v)
    q, k, v = (x.view(batch, length, -1, dim).transpose(1, 2).double() for x in (q, k, v))
    expected = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True).transpose(1, 2).reshape(batch * length, -1)
    tolerance = 1e-5 if dtype == torch.float32 else 0.05
    torch.testing.assert_close(found.double(), expected, atol=tolerance, rtol=0.01)


@pytest.mark.skipif(not has_onednn(torch.bfloat16), reason="no oneDNN in bfloat16 here: nothing is promised")
@settings(max_examples=40)
@given(
    dtype=DTYPES, seen=st.integers(1, 200), hidden=st.integers(0, 200), others=st.integers(0, 8), dim=st.sampled_from([64, 128]),
    queries=st.integers(1, 4),
)  # fmt: skip
def test_bits_depend_on_visible_keys_alone(dtype: torch.dtype, seen: int, hidden: int, others: int, dim: int, queries: int) -> None:
    """One decoding step over padded keys full of garbage, beside other rows, against the last row of a full pass."""
    torch.set_num_threads(1)
    length = max(seen, queries)
    q, k, v = (random(length, heads, dim, dtype=dtype, seed=heads) for heads in (KV_HEADS * GROUP, KV_HEADS, KV_HEADS))
    expected = PaddedAttention(1, length, GROUP, dtype, q.device)(0, q, k, v)[-queries:]
    keys, values = (
        torch.cat([x.transpose(0, 1), 100 * random(KV_HEADS, hidden, dim, dtype=dtype, seed=9)], dim=1)[None].repeat(
            others + 1, 1, 1, 1
        )
        for x in (k, v)
    )
    positions = torch.arange(length - queries, length)[None].expand(others + 1, -1)
    mask = causal_mask(positions, length + hidden, GROUP, dtype)
    folded = fold_queries(q[-queries:].repeat(others + 1, 1, 1), others + 1, KV_HEADS)
    found = unfold_queries(attend(folded, keys, values, mask, dim**-0.5), queries)
    assert torch.equal(found[-queries:], expected)


def test_gradients_flow_through_padding() -> None:
    q, k, v = (random(5, heads, 8, seed=heads).requires_grad_() for heads in (4, 2, 2))
    mixed = PaddedAttention(1, 5, 2, torch.float32, q.device)(0, q, k, v)
    up = random(*mixed.shape, seed=7)
    found = torch.autograd.grad(mixed, (q, k, v), up)
    q4, k4, v4 = (x[None].transpose(1, 2) for x in (q, k, v))
    plain = F.scaled_dot_product_attention(q4, k4, v4, is_causal=True, enable_gqa=True).transpose(1, 2).reshape(5, -1)
    for ours, theirs in zip(found, torch.autograd.grad(plain, (q, k, v), up), strict=True):
        torch.testing.assert_close(ours, theirs)
