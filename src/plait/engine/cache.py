"""Key-value tensors: slots for the rows being computed, blocks for what is stored.

A slot is one row's padded run of tokens. Blocks are copied into a slot when a row starts and out of it when a row is to go on
later: copying a prompt once beats gathering pages in every layer of every step.

A slot holds what its own row computed and zeros elsewhere: attention multiplies masked values by zero, so the remains of another
tenant's row, if they are not finite, would spoil the sums.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from plait.kv.pool import Piece
from plait.types.model import ModelConfig

KEY_STEP = 32
"""Slots hold a multiple of so many tokens, where memory allows."""


class SlotCache:
    """`data` is [layers, 2, rows, K, tokens, D]: keys, then values.

    All slots are as long as the longest row is now, and packed: a product over part of a longer slot copies it first (bfloat16
    on CPU; 2.4 times the time at 160 of 256 tokens), so it pays to lay out anew once in `KEY_STEP` decode steps.
    """

    def __init__(self, config: ModelConfig, max_rows: int, slot_tokens: int, dtype: torch.dtype, device: torch.device) -> None:
        self.max_rows, self.slot_tokens = max_rows, slot_tokens
        self._token_shape = (config.num_kv_heads, config.head_dim)
        self._memory = torch.zeros(config.num_layers, 2, slot_tokens * math.prod(self._token_shape), dtype=dtype, device=device)
        self.data = self._view(0, 0)

    @property
    def num_bytes(self) -> int:
        return self._memory.nbytes

    def give_up(self) -> None:
        """Free the memory while there are no rows; the meta device has shapes alone."""
        self._memory = self._memory.to("meta")
        self.data = self._view(0, 0)

    def take_back(self, device: torch.device) -> None:
        self._memory = torch.zeros_like(self._memory, device=device)
        self.data = self._view(0, 0)

    def _view(self, num_rows: int, tokens: int) -> Tensor:
        heads, dim = self._token_shape
        used = self._memory[:, :, : num_rows * heads * tokens * dim]
        return used.view(*used.shape[:2], num_rows, heads, tokens, dim)

    def fits(self, num_rows: int, longest_tokens: int) -> bool:
        """Whether so many rows, padded to the longest, stay within the memory granted."""
        return num_rows <= self.max_rows and num_rows * longest_tokens <= self.slot_tokens

    def resize(self, num_rows: int, longest_tokens: int) -> None:
        """Lay out slots for rows that fit. What the first ones hold is kept; a new one must be cleared."""
        tokens = min(round_up(longest_tokens, KEY_STEP), self.slot_tokens // num_rows)
        kept_rows, kept_tokens = min(num_rows, self.data.shape[2]), min(tokens, self.data.shape[4])
        old, self.data = self.data, self._view(num_rows, tokens)
        if tokens == old.shape[4]:
            return
        for before, after in zip(old.flatten(0, 1), self.data.flatten(0, 1), strict=True):
            kept = before[:kept_rows, :, :kept_tokens].clone()
            after[:kept_rows, :, :kept_tokens] = kept
            after[:kept_rows, :, kept_tokens:] = 0

    def row(self, index: int) -> Tensor:
        """One slot, [layers, 2, K, tokens, D]."""
        return self.data[:, :, index]

    def copy(self, source: int, target: int) -> None:
        self.row(target).copy_(self.row(source))

    def clear(self, index: int) -> None:
        self.row(index).zero_()


def round_up(value: int, step: int) -> int:
    return -(-value // step) * step


class BlockStorage:
    """The tensors of a `BlockPool`, [blocks, layers, 2, K, block_tokens, D]."""

    def __init__(self, config: ModelConfig, num_blocks: int, block_tokens: int, dtype: torch.dtype, device: torch.device) -> None:
        shape = (num_blocks, config.num_layers, 2, config.num_kv_heads, block_tokens, config.head_dim)
        self.data = torch.zeros(shape, dtype=dtype, device=device)

    @property
    def num_bytes(self) -> int:
        return self.data.nbytes

    def give_up(self, indices: Sequence[int]) -> Tensor:
        """Free the memory; what the blocks of these indices hold, [blocks, ...]."""
        kept, self.data = self.data[list(indices)], self.data.to("meta")
        return kept

    def take_back(self, device: torch.device) -> None:
        """All blocks are empty."""
        self.data = torch.zeros_like(self.data, device=device)

    def fill(self, indices: Sequence[int], kept: Tensor) -> None:
        self.data[list(indices)] = kept

    def load(self, pieces: Sequence[Piece], slot: Tensor) -> None:
        """Copy pieces to their positions in a slot."""
        for piece in pieces:
            slot[..., piece.start : piece.start + piece.num_tokens, :] = self.data[piece.index, ..., : piece.num_tokens, :]

    def save(self, pieces: Sequence[Piece], slot: Tensor) -> None:
        """Fill pieces from a slot."""
        for piece in pieces:
            self.data[piece.index, ..., : piece.num_tokens, :] = slot[..., piece.start : piece.start + piece.num_tokens, :]
