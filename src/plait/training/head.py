"""Log-probabilities where a loss needs them, without ever holding all logits.

Rows go through the unembedding in chunks. The operations are the sampler's, so a token has the log-probability it was drawn with.
A log-probability's derivative in its own row is known as soon as the logits are, whatever loss comes after: so it is taken at once,
and the logits are neither kept nor computed again. Only weights of the unembedding that are trained, its own or an adapter's, need
the logits backwards.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from plait.lora.mix import SingleLora
from plait.models.decoder import UNEMBED, Decoder
from plait.models.kernels import back_product
from plait.models.logprobs import scaled_logprobs, token_logprobs

CHUNK_ROWS = 256
"""Rows whose logits exist at one time where they are computed again."""

PRODUCT_ROWS = 1024
"""Rows whose logits exist at one time, in the model's dtype, where they are not: a product of many rows is faster."""

SOFTMAX_ROWS = 128
"""Of these, rows that are in float32 at one time."""


def chunked_logprobs(
    decoder: Decoder, lora: SingleLora | None, hidden_NE: Tensor, targets_N: Tensor, temperatures_N: Tensor
) -> Tensor:
    """Log-probability [N] in nats of each row's target at its own temperature (above zero)."""
    if len(hidden_NE) == 0:
        return hidden_NE.new_zeros(0, dtype=torch.float32)
    is_frozen = not decoder.trains_weights and (lora is None or (UNEMBED, 0) not in lora.adapter.sites)
    if hidden_NE.requires_grad and is_frozen:
        logprobs_N: Tensor = _Logprobs.apply(hidden_NE, decoder, targets_N, temperatures_N)
        return logprobs_N

    def chunk(hidden: Tensor, targets: Tensor, temperatures: Tensor) -> Tensor:
        return token_logprobs(decoder.logits(hidden, lora), targets, temperatures[:, None])

    parts = zip(hidden_NE.split(CHUNK_ROWS), targets_N.split(CHUNK_ROWS), temperatures_N.split(CHUNK_ROWS), strict=True)
    if not torch.is_grad_enabled():
        return torch.cat([chunk(*part) for part in parts])
    return torch.cat([checkpoint(chunk, *part, use_reentrant=False, preserve_rng_state=False) for part in parts])


class _Logprobs(torch.autograd.Function):
    """Of the base's unembedding. Keeps the derivative of each row's log-probability in its hidden state."""

    @staticmethod
    def forward(ctx: Any, hidden_NE: Tensor, decoder: Decoder, targets_N: Tensor, temperatures_N: Tensor) -> Tensor:
        parts = zip(*(x.split(PRODUCT_ROWS) for x in (hidden_NE, targets_N, temperatures_N)), strict=True)
        multiply_back = back_product(decoder.unembedding)
        logprobs, derivatives = zip(*(_logprobs_and_derivatives(decoder, multiply_back, *part) for part in parts), strict=True)
        ctx.save_for_backward(torch.cat(derivatives))
        return torch.cat(logprobs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        (derivatives_NE,) = ctx.saved_tensors
        return (derivatives_NE * gradients[0][:, None]).to(derivatives_NE.dtype), None, None, None


def _logprobs_and_derivatives(
    decoder: Decoder, multiply_back: Callable[[Tensor], Tensor], hidden_NE: Tensor, targets_N: Tensor, temperatures_N: Tensor
) -> tuple[Tensor, Tensor]:
    """Log-probabilities [N], and the derivative of each in its own row of hidden states, [N, E]."""
    logits_NV = decoder.logits(hidden_NE)
    parts = zip(*(x.split(SOFTMAX_ROWS) for x in (logits_NV, targets_N[:, None], temperatures_N[:, None])), strict=True)
    logprobs, errors = zip(*(_logprobs_and_errors(multiply_back, *part) for part in parts), strict=True)
    return torch.cat(logprobs), (torch.cat(errors) / -temperatures_N[:, None]).to(hidden_NE.dtype)


def _logprobs_and_errors(
    multiply_back: Callable[[Tensor], Tensor], logits_CV: Tensor, targets_C1: Tensor, temperatures_C1: Tensor
) -> tuple[Tensor, Tensor]:
    """Log-probabilities [C] of the targets, and in hidden states, [C, E], the probability of each token less what it should be."""
    logprobs_CV = scaled_logprobs(logits_CV, temperatures_C1)
    logprobs_C = logprobs_CV.gather(1, targets_C1)[:, 0]
    errors_CV = logprobs_CV.exp_().scatter_add_(1, targets_C1, logprobs_CV.new_full(targets_C1.shape, -1.0))
    return logprobs_C, multiply_back(errors_CV)
