"""Copies of weights: their bits, when they are made, and from how many rows on they are taken."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from plait.models import float32_products, kept_weights, kernels
from plait.models.decoder import Decoder
from plait.models.invariance import random_weights
from plait.models.kept_weights import Budget, KeptWeight, keep, least_rows
from plait.models.kernels import PackedLinear, PlainLinear, back_product
from plait.models.onednn import onednn
from plait.models.tiny import tiny_config

pytestmark = pytest.mark.skipif(
    not (kernels.has_onednn(torch.bfloat16) and float32_products.has_same_bits()), reason="float32 products are not taken here"
)


@pytest.fixture(autouse=True)
def _taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(float32_products, "are_faster", lambda: True)
    monkeypatch.setattr(kept_weights, "least_rows", lambda: 32)


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).bfloat16()


@settings(max_examples=30, deadline=None)
@given(rows=st.integers(1, 70).map(lambda n: 4 * n), inputs=st.integers(1, 400).map(lambda n: 2 * n), outputs=st.integers(2, 300))
def test_bits_are_those_of_the_bfloat16_product(rows: int, inputs: int, outputs: int) -> None:
    x, weight = random(rows, inputs), random(outputs, inputs, seed=1)
    assert torch.equal(KeptWeight(weight, 32).product(x), onednn(x, weight))


@pytest.mark.parametrize("kind", [PackedLinear, PlainLinear])
@pytest.mark.parametrize("num_rows", [3, 31, 32, 140])
def test_a_copy_changes_no_bit(kind: type[PackedLinear] | type[PlainLinear], num_rows: int) -> None:
    weight, bias, x = random(96, 64), random(96, seed=1), random(num_rows, 64, seed=2)
    with torch.inference_mode():
        assert torch.equal(kind(weight, bias, Budget(1 << 20))(x), kind(weight, bias)(x))


def test_a_copy_changes_no_gradient() -> None:
    weight, x, up = random(96, 64), random(140, 64, seed=1).requires_grad_(), random(140, 96, seed=2)
    (found,), (expected,) = (torch.autograd.grad(PlainLinear(weight, None, budget)(x), x, up) for budget in (Budget(1 << 20), None))
    assert torch.equal(found, expected)


def test_it_is_taken_from_min_rows_on(monkeypatch: pytest.MonkeyPatch) -> None:
    linear = PackedLinear(random(96, 64), None, Budget(1 << 20))
    taken: list[int] = []

    def product(self: KeptWeight, x: Tensor) -> Tensor:
        taken.append(len(x))
        return onednn(x, random(96, 64))

    monkeypatch.setattr(KeptWeight, "product", product)
    for num_rows in (4, 28, 29, 32, 64):
        linear(random(num_rows, 64))
    assert taken == [32, 32, 64]


def test_the_budget_is_kept() -> None:
    budget = Budget(4 * 96 * 64 + 100)
    assert keep(random(96, 64), budget) is not None
    assert keep(random(96, 64), budget) is None
    assert keep(random(5, 4), budget) is not None
    assert budget.left_bytes == 20
    assert keep(random(5, 4), None) is None


@pytest.mark.parametrize("weight", [random(96, 63), random(1, 64), random(96, 64).float()])
def test_what_does_not_fit_is_not_kept(weight: Tensor) -> None:
    assert keep(weight, Budget(1 << 20)) is None


def test_none_where_bfloat16_is_the_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(float32_products, "are_faster", lambda: False)
    assert keep(random(96, 64), Budget(1 << 20)) is None


def test_a_decoder_keeps_within_its_budget() -> None:
    config = tiny_config()
    weights = random_weights(config, torch.bfloat16)
    without, with_copies = Decoder(config, weights, prepack=True, float32_bytes=0), Decoder(config, weights, prepack=True)
    assert isinstance(without.unembedding, PackedLinear)
    assert without.unembedding.kept is None
    assert isinstance(with_copies.unembedding, PackedLinear)
    assert with_copies.unembedding.kept is not None


@pytest.mark.parametrize(
    ("slower", "expected"), [({16}, 32), ({16, 32}, 64), (set(), 16), ({32}, 64), ({16, 32, 64, 128}, float32_products.MIN_ROWS)]
)
def test_least_rows(slower: set[int], expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(kept_weights, "_is_faster", lambda rows: rows not in slower)
    least_rows.cache_clear()
    assert least_rows() == expected
    least_rows.cache_clear()


def test_back_product() -> None:
    weight, gradient = random(96, 64), random(20, 96, seed=1).float()
    expected = gradient.double() @ weight.double()
    torch.testing.assert_close(back_product(PlainLinear(weight))(gradient).double(), expected, rtol=1e-4, atol=1e-4)
    chunked = kernels.ChunkedLinear(weight.float())
    torch.testing.assert_close(back_product(chunked)(gradient).double(), expected, rtol=1e-4, atol=1e-4)
    with pytest.raises(AssertionError):
        back_product(PackedLinear(weight))


def test_back_product_in_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(float32_products, "are_faster", lambda: False)
    weight, gradient = random(96, 64), random(20, 96, seed=1)
    found = back_product(PlainLinear(weight))(gradient.float())
    torch.testing.assert_close(found, gradient @ weight)
