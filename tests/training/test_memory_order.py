"""Tensors that go through row-major bytes and come back as they lay."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from plait.training.memory_order import laid_as, laid_flat, memory_order


@given(shape=st.lists(st.integers(1, 4), max_size=4), seed=st.integers(0, 1000))
def test_a_dense_tensor_comes_back_with_its_values_and_strides(shape: list[int], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    dims = torch.randperm(len(shape), generator=generator).tolist()
    tensor = torch.randn(shape, generator=generator).permute(dims)
    flat = laid_flat(tensor)
    assert flat.is_contiguous()
    back = laid_as(flat.contiguous().clone(), memory_order(tensor))
    assert torch.equal(back, tensor)
    assert laid_flat(back).is_contiguous()
