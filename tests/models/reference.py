"""Logits of this package's decoder and of transformers' on the same folder."""

from pathlib import Path

import torch
from torch import Tensor

from plait.models.attention import PaddedAttention
from plait.models.decoder import Decoder, LoraDelta
from plait.models.weights import load_model


def load_decoder(folder: Path) -> Decoder:
    config, weights = load_model(folder, torch.float32, "cpu")
    return Decoder(config, weights)


def decoder_logits(decoder: Decoder, tokens_BL: Tensor, lora: LoraDelta | None = None) -> Tensor:
    """[B, L, V]."""
    batch, length = tokens_BL.shape
    group = decoder.config.num_heads // decoder.config.num_kv_heads
    attention = PaddedAttention(batch, length, group, decoder.dtype, decoder.device)
    positions = torch.arange(length).repeat(batch)
    with torch.no_grad():
        hidden = decoder.forward(tokens_BL.reshape(-1), positions, attention, lora)
        return decoder.logits(hidden, lora).view(batch, length, -1)


def random_tokens(vocab_size: int, batch: int = 2, length: int = 40, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, vocab_size, (batch, length), generator=generator)
