"""Log-probabilities, computed the same way by the sampler and by the trainer."""

from typing import Any

import torch
from torch import Tensor


def scaled_logprobs(logits_RV: Tensor, temperature_R1: Tensor | float) -> Tensor:
    """Log-probabilities [R, V] in float32 of the distribution at `temperature_R1` (above zero)."""
    logits_RV = logits_RV.float()
    is_one = bool((temperature_R1 == 1).all()) if isinstance(temperature_R1, Tensor) else temperature_R1 == 1
    return torch.log_softmax(logits_RV if is_one else logits_RV / temperature_R1, dim=-1)


def token_logprobs(logits_RV: Tensor, targets_R: Tensor, temperature_R1: Tensor | float = 1.0) -> Tensor:
    """Log-probability [R] in nats of each row's target token. Differentiable in the logits."""
    logprobs_R: Tensor = _TokenLogprobs.apply(logits_RV, targets_R[:, None], temperature_R1)
    return logprobs_R


class _TokenLogprobs(torch.autograd.Function):
    """One node with one pass over the vocabulary on the way back, where autograd's own would make four."""

    @staticmethod
    def forward(ctx: Any, logits_RV: Tensor, targets_R1: Tensor, temperature_R1: Tensor | float) -> Tensor:
        logprobs_RV = scaled_logprobs(logits_RV, temperature_R1)
        ctx.save_for_backward(logprobs_RV, targets_R1)
        ctx.temperature_R1, ctx.dtype = temperature_R1, logits_RV.dtype
        return logprobs_RV.gather(1, targets_R1)[:, 0]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        logprobs_RV, targets_R1 = ctx.saved_tensors
        gradient_RV = logits_gradient_(logprobs_RV.clone(), targets_R1, gradients[0][:, None] / ctx.temperature_R1)
        return gradient_RV.to(ctx.dtype), None, None


def logits_gradient_(logprobs_RV: Tensor, targets_R1: Tensor, factor_R1: Tensor) -> Tensor:
    """Gradient in the scaled logits of the sum of factor x log-probability of the target; takes the log-probabilities' place."""
    return logprobs_RV.exp_().mul_(-factor_R1).scatter_add_(1, targets_R1, factor_R1)
