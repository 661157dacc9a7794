"""Blocks of a slot as bytes, and back."""

import math

import torch
from torch import Tensor

from plait.kv.block_record import Payload
from plait.kv.chain import Link
from plait.types.model import ModelConfig


class BlockCodec:
    """A payload is [layers, 2, K, block_tokens, D] in the decoder's dtype, zeros beyond the block's tokens."""

    def __init__(self, config: ModelConfig, block_tokens: int, dtype: torch.dtype) -> None:
        self._shape = (config.num_layers, 2, config.num_kv_heads, block_tokens, config.head_dim)
        self._dtype = dtype
        self.payload_bytes = math.prod(self._shape) * dtype.itemsize

    def pack(self, link: Link, slot: Tensor) -> Payload:
        block = torch.zeros(self._shape, dtype=self._dtype)
        block[..., : link.num_tokens, :] = slot[..., link.start : link.end, :]
        return memoryview(block.view(torch.uint8).numpy().data).cast("B")

    def unpack(self, link: Link, payload: Payload, slot: Tensor) -> None:
        block = torch.frombuffer(payload, dtype=self._dtype).view(self._shape)
        slot[..., link.start : link.end, :] = block[..., : link.num_tokens, :]
