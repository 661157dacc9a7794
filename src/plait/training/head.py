"""Log-probabilities where a loss needs them, without ever holding all logits.

Rows go through the unembedding in chunks; in the backward pass a chunk's logits are computed again. The operations are the
sampler's, so a token has the log-probability it was drawn with.
"""

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from plait.models.decoder import Decoder, LoraDelta
from plait.models.logprobs import token_logprobs

CHUNK_ROWS = 256
"""Rows whose logits exist at one time."""


def chunked_logprobs(
    decoder: Decoder, lora: LoraDelta | None, hidden_NE: Tensor, targets_N: Tensor, temperatures_N: Tensor
) -> Tensor:
    """Log-probability [N] in nats of each row's target at its own temperature (above zero)."""

    def chunk(hidden: Tensor, targets: Tensor, temperatures: Tensor) -> Tensor:
        return token_logprobs(decoder.logits(hidden, lora), targets, temperatures[:, None])

    if len(hidden_NE) == 0:
        return hidden_NE.new_zeros(0, dtype=torch.float32)
    parts = zip(hidden_NE.split(CHUNK_ROWS), targets_N.split(CHUNK_ROWS), temperatures_N.split(CHUNK_ROWS), strict=True)
    if not torch.is_grad_enabled():
        return torch.cat([chunk(*part) for part in parts])
    return torch.cat([checkpoint(chunk, *part, use_reentrant=False, preserve_rng_state=False) for part in parts])
