"""The self-test grants what holds here, and notices each way in which it may fail to hold."""

from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from plait.models import attention, decoder, float32_products, invariance, kept_weights, kernels
from plait.models.invariance import machine_self_test, random_weights, self_test
from plait.models.tiny import tiny_config

HAS_ONEDNN = kernels.has_onednn(torch.bfloat16)
pytestmark = pytest.mark.skipif(not HAS_ONEDNN, reason="no oneDNN in bfloat16 here: nothing is promised")


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_this_machine_is_granted_invariance(dtype: torch.dtype) -> None:
    report = machine_self_test(dtype)
    assert report.granted, report.detail
    assert "bit for bit" in report.detail
    assert torch.get_num_threads() == 1


def test_fused_attention_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fused(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, mask, scale=scale)

    monkeypatch.setattr(attention, "attend", fused)
    monkeypatch.setattr(invariance, "attend", fused)
    report = machine_self_test(torch.bfloat16)
    assert not report.granted
    assert "differ from a full pass" in report.detail


def test_spans_of_one_length_that_differ_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a draft of six tokens makes, and nothing else in the test."""
    real, queries_of_seven = invariance.attend, 7 * 3
    monkeypatch.setattr(invariance, "attend", lambda q, *rest: real(q, *rest) * (1.01 if q.shape[2] == queries_of_seven else 1))
    report = machine_self_test(torch.bfloat16)
    assert not report.granted
    assert "2 rows of 7 new tokens beside as many of one differ" in report.detail


def test_kernels_for_few_rows_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder, "make_linear", lambda weight, bias, prepack, budget: lambda x: F.linear(x, weight, bias))
    report = machine_self_test(torch.float32)
    assert not report.granted


def test_adapters_that_mix_badly_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(invariance, "grouped_product", lambda x, weight: (x.double() @ weight.double()).float())
    report = machine_self_test(torch.float32)
    assert not report.granted
    assert "in a mix" in report.detail


@pytest.mark.skipif(not (HAS_ONEDNN and float32_products.has_same_bits()), reason="float32 products are not taken here")
@pytest.mark.parametrize("is_kept", [False, True])
def test_many_rows_that_multiply_otherwise_are_noticed(is_kept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(float32_products, "are_faster", lambda: True)
    assert machine_self_test(torch.bfloat16).granted
    assert invariance.MANY_SEQUENCES * invariance.TEST_TOKENS >= float32_products.MIN_ROWS
    monkeypatch.setattr(float32_products, "swapped", lambda x: x.float())
    monkeypatch.setattr(kept_weights.Budget, "take", lambda *_: is_kept)
    monkeypatch.setattr(kept_weights, "least_rows", lambda: 32)
    report = machine_self_test(torch.bfloat16)
    assert not report.granted
    assert ("33 rows of 1 new tokens" if is_kept else "160 rows") in report.detail


def test_threads_that_change_bits_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = invariance._full_pass

    def threaded(*arguments: object) -> tuple[Tensor, Tensor]:
        hidden, logprobs = real(*arguments)  # type: ignore[arg-type]
        return hidden, logprobs + (1e-6 if torch.get_num_threads() > 1 else 0)

    monkeypatch.setattr(invariance, "_full_pass", threaded)
    report = machine_self_test(torch.float32)
    assert not report.granted
    assert "thread" in report.detail
    assert torch.get_num_threads() == 1


def test_accelerators_are_not_granted_it() -> None:
    report = self_test(tiny_config(), {name: w.to("meta") for name, w in random_weights(tiny_config(), torch.float32).items()})
    assert not report.granted
    assert "CPU" in report.detail
