"""Blocks go out of a slot and come back bit by bit."""

import pytest
import torch

from plait.engine.kv_blocks import BlockCodec
from plait.kv.chain import Link
from plait.models.tiny import tiny_config

CONFIG = tiny_config()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("num_tokens", [1, 15, 16])
def test_bits_come_back(dtype: torch.dtype, num_tokens: int) -> None:
    codec = BlockCodec(CONFIG, 16, dtype)
    slots = torch.randn(CONFIG.num_layers, 2, 3, CONFIG.num_kv_heads, 64, CONFIG.head_dim).to(dtype)
    slots[0, 0, 1, 0, 20, 0] = torch.nan
    link = Link(b"k" * 16, b"p" * 16, 16, num_tokens)
    payload = bytearray(codec.pack(link, slots[:, :, 1]))
    assert len(payload) == codec.payload_bytes == CONFIG.cache_bytes_per_token(dtype.itemsize) * 16
    found = torch.zeros_like(slots[:, :, 0])
    codec.unpack(link, payload, found)
    wanted = torch.zeros_like(found)
    wanted[..., 16 : 16 + num_tokens, :] = slots[:, :, 1, :, 16 : 16 + num_tokens]
    assert torch.equal(found.view(torch.uint8), wanted.view(torch.uint8))


def test_what_lies_beyond_a_block_is_not_stored() -> None:
    """A slot's tokens beyond the block may be anybody's."""
    codec = BlockCodec(CONFIG, 16, torch.float32)
    slot = torch.ones(CONFIG.num_layers, 2, CONFIG.num_kv_heads, 64, CONFIG.head_dim)
    payload = bytearray(codec.pack(Link(b"k" * 16, b"p" * 16, 0, 3), slot))
    assert torch.frombuffer(payload, dtype=torch.float32).sum() == 3 * slot[..., 0, :].numel()
