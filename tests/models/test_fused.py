"""One node each: the bits of the plain operations, and the gradients of plain ones in float64."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from plait.models.fused import rms_norm, swiglu

EPSILON = 1e-5


def random(*shape: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def plain_norm(x: Tensor, weight: Tensor) -> Tensor:
    return F.rms_norm(x, weight.shape, weight, EPSILON)


def plain_swiglu(x: Tensor) -> Tensor:
    gate, up = x.chunk(2, dim=-1)
    return F.silu(gate) * up


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("shape", [(7, 96), (5, 3, 64), (130, 576)])
def test_rms_norm(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    x, weight, up = (random(*s, dtype=dtype, seed=seed) for seed, s in enumerate((shape, shape[-1:], shape)))
    assert torch.equal(rms_norm(x, weight, EPSILON), plain_norm(x, weight))
    leaf, exact = x.clone().requires_grad_(), x.double().requires_grad_()
    normed = rms_norm(leaf, weight, EPSILON)
    assert torch.equal(normed, plain_norm(x, weight))
    (found,) = torch.autograd.grad(normed, leaf, up)
    (expected,) = torch.autograd.grad(plain_norm(exact, weight.double()), exact, up.double())
    assert found.dtype == dtype
    assert_near(found, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_swiglu(dtype: torch.dtype) -> None:
    x, up = random(130, 192, dtype=dtype), random(130, 96, dtype=dtype, seed=1)
    assert torch.equal(swiglu(x), plain_swiglu(x))
    leaf, exact = x.clone().requires_grad_(), x.double().requires_grad_()
    mixed = swiglu(leaf)
    assert torch.equal(mixed, plain_swiglu(x))
    (found,) = torch.autograd.grad(mixed, leaf, up)
    (expected,) = torch.autograd.grad(plain_swiglu(exact), exact, up.double())
    assert_near(found, expected)


def test_gradients_of_a_norm_may_be_asked_for_twice() -> None:
    x, weight = random(4, 8, dtype=torch.float32).requires_grad_(), random(8, dtype=torch.float32)
    y = rms_norm(x, weight, EPSILON).sum()
    first, second = (torch.autograd.grad(y, x, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(first, second)


def assert_near(found: Tensor, expected: Tensor) -> None:
    rtol, atol = (0.02, 0.02) if found.dtype == torch.bfloat16 else (1e-4, 1e-5)
    torch.testing.assert_close(found.double(), expected, rtol=rtol, atol=atol)
