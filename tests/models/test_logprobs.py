"""Log-probabilities and their one-node derivative."""

import pytest
import torch
from torch import Tensor

from plait.models.logprobs import scaled_logprobs, token_logprobs


def logits(dtype: torch.dtype = torch.float32) -> Tensor:
    return (5 * torch.randn(6, 300, generator=torch.Generator().manual_seed(0))).to(dtype)


TARGETS = torch.tensor([0, 299, 5, 5, 17, 200])
TEMPERATURES = torch.tensor([0.3, 0.7, 1.0, 1.0, 1.5, 4.0])[:, None]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_token_logprobs_are_entries_of_scaled_logprobs(dtype: torch.dtype) -> None:
    found = token_logprobs(logits(dtype), TARGETS, TEMPERATURES)
    assert found.dtype == torch.float32
    assert torch.equal(found, scaled_logprobs(logits(dtype), TEMPERATURES)[torch.arange(6), TARGETS])
    torch.testing.assert_close(scaled_logprobs(logits(dtype), TEMPERATURES).exp().sum(-1), torch.ones(6))


def test_temperature_one_has_the_bits_of_none() -> None:
    expected = torch.log_softmax(logits(), -1)
    for one in (1.0, torch.ones(6, 1)):
        assert torch.equal(scaled_logprobs(logits(), one), expected)


@pytest.mark.parametrize("temperature", [1.0, 0.7, TEMPERATURES])
def test_gradient_equals_autograd(temperature: Tensor | float) -> None:
    ours, plain = logits().requires_grad_(), logits().requires_grad_()
    up = torch.randn(6, generator=torch.Generator().manual_seed(1))
    (found,) = torch.autograd.grad(token_logprobs(ours, TARGETS, temperature), ours, up)
    reference = (plain / temperature).log_softmax(-1)[torch.arange(6), TARGETS]
    (expected,) = torch.autograd.grad(reference, plain, up)
    torch.testing.assert_close(found, expected)


def test_gradient_has_the_dtype_of_the_logits() -> None:
    x = logits(torch.bfloat16).requires_grad_()
    (found,) = torch.autograd.grad(token_logprobs(x, TARGETS).sum(), x)
    assert found.dtype == torch.bfloat16
