"""bfloat16 products through float32: bits, gradients, and when they are taken."""

from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from plait.models import float32_products, kernels
from plait.models.float32_products import are_faster, has_same_bits, product
from plait.models.kernels import make_linear

pytestmark = pytest.mark.skipif(not kernels.has_onednn(torch.bfloat16), reason="no oneDNN in bfloat16 here")
needs_same_bits = pytest.mark.skipif(
    not (kernels.has_onednn(torch.bfloat16) and has_same_bits()), reason="bfloat16 products are not fused multiply-adds here"
)


@pytest.fixture(autouse=True)
def _asks_afresh() -> Iterator[None]:
    yield
    are_faster.cache_clear()


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).bfloat16()


@needs_same_bits
@settings(max_examples=30, deadline=None)
@given(
    rows=st.integers(1, 40).map(lambda n: 4 * n), inputs=st.integers(1, 400).map(lambda n: 2 * n), outputs=st.integers(2, 300),
    scale=st.sampled_from([1e-6, 1.0, 1e4]),
)  # fmt: skip
def test_bits_are_those_of_the_bfloat16_product(rows: int, inputs: int, outputs: int, scale: float) -> None:
    x, weight = random(rows, inputs) * scale, random(outputs, inputs, seed=1)
    assert torch.equal(product(x, weight), F.linear(x, weight))


def test_a_wide_weight_goes_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    x, weight, up = random(12, 64).requires_grad_(), random(91, 64, seed=1), random(12, 91, seed=2)  # 3 x 30 + 1
    whole = product(x, weight)
    (whole_gradient,) = torch.autograd.grad(whole, x, up)
    monkeypatch.setattr(float32_products, "MAX_CONVERTED", 30 * 64)
    parts = product(x, weight)
    assert torch.equal(parts, whole)
    (gradient,) = torch.autograd.grad(parts, x, up)
    torch.testing.assert_close(gradient, whole_gradient)


def test_gradient_is_right_to_one_rounding() -> None:
    x, weight, up = random(140, 576).requires_grad_(), random(960, 576, seed=1), random(140, 960, seed=2)
    (gradient,) = torch.autograd.grad(product(x, weight), x, up)
    exact = (up.double() @ weight.double()).bfloat16()
    assert (gradient != exact).double().mean() < 0.01
    torch.testing.assert_close(gradient, exact)


def test_gradient_has_the_same_bits_with_one_thread_and_two() -> None:
    x, weight, up = random(320, 576).requires_grad_(), random(3072, 576, seed=1), random(320, 3072, seed=2)
    num_threads = torch.get_num_threads()
    found: list[Tensor] = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        found += torch.autograd.grad(product(x, weight), x, up)
    torch.set_num_threads(num_threads)
    assert torch.equal(*found)


@pytest.mark.parametrize(("rows", "inputs", "faster", "through_float32"), [
    (128, 64, True, True), (125, 64, True, True), (124, 64, True, False), (128, 63, True, False), (128, 64, False, False),
])  # fmt: skip
def test_when_they_are_taken(rows: int, inputs: int, faster: bool, through_float32: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []

    def through_float32_product(x: Tensor, weight: Tensor, kept: object) -> Tensor:
        taken.append(x)
        return F.linear(x, weight)

    monkeypatch.setattr(float32_products, "are_faster", lambda: faster)
    monkeypatch.setattr(float32_products, "product", through_float32_product)
    y = make_linear(random(96, inputs, seed=1), None, prepack=False)(random(rows, inputs))
    assert y.shape == (rows, 96)
    assert bool(taken) is through_float32


def test_other_bits_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(float32_products, "swapped", lambda x: x.float())
    are_faster.cache_clear()
    assert not has_same_bits()
    assert not are_faster()


@needs_same_bits
@pytest.mark.parametrize(("float32_s", "expected"), [(1.0, True), (2.0, False)])
def test_a_small_gain_is_refused(float32_s: float, expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    spent_s = iter([2.1, float32_s])
    monkeypatch.setattr(float32_products, "least_spent_s", lambda multiply: next(spent_s))
    are_faster.cache_clear()
    assert are_faster() is expected
