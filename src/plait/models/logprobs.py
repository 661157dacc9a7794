"""Log-probabilities, computed the same way by the sampler and by the trainer."""

import torch
from torch import Tensor


def scaled_logprobs(logits_RV: Tensor, temperature_R1: Tensor | float) -> Tensor:
    """Log-probabilities [R, V] in float32 of the distribution at `temperature_R1` (above zero)."""
    return torch.log_softmax(logits_RV.float() / temperature_R1, dim=-1)


def token_logprobs(logits_RV: Tensor, targets_R: Tensor, temperature_R1: Tensor | float = 1.0) -> Tensor:
    """Log-probability [R] in nats of each row's target token."""
    return scaled_logprobs(logits_RV, temperature_R1).gather(1, targets_R[:, None])[:, 0]
