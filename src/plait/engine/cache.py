"""Key-value tensors: slots for the rows being decoded, blocks for what is stored.

Layout: keys and values side by side as 2K heads. A slot is one row's padded run of tokens; blocks are copied into a slot when a
row starts and out of it when a row is to go on later. Copying a prompt once beats gathering pages in every layer of every step.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from plait.kv.pool import Piece
from plait.models.attention import attend, fold_queries, unfold_queries
from plait.types.model import ModelConfig

SLOT_STEP_TOKENS = 128
"""Slots grow by so many tokens."""


class SlotCache:
    """Rows 0..num_rows-1 are in use, without holes. `data` is [layers, rows, 2K, tokens, D]."""

    def __init__(self, config: ModelConfig, max_rows: int, slot_tokens: int, dtype: torch.dtype, device: torch.device) -> None:
        self.config, self.max_rows, self.slot_tokens = config, max_rows, slot_tokens
        self.data = torch.zeros(config.num_layers, 0, 2 * config.num_kv_heads, 0, config.head_dim, dtype=dtype, device=device)

    @property
    def row_tokens(self) -> int:
        return self.data.shape[3]

    def fits(self, num_rows: int, longest_tokens: int) -> bool:
        """Whether so many rows, padded to the longest, stay within the memory granted."""
        return num_rows <= self.max_rows and num_rows * longest_tokens <= self.slot_tokens

    def reserve(self, num_rows: int, longest_tokens: int) -> None:
        """Make room; what rows hold is kept."""
        rows, tokens = self.data.shape[1], self.row_tokens
        if num_rows <= rows and longest_tokens <= tokens:
            return
        step = SLOT_STEP_TOKENS
        new_tokens = max(-(-longest_tokens // step) * step, tokens if num_rows * tokens <= self.slot_tokens else 0)
        new_rows = max(num_rows, min(self.max_rows, self.slot_tokens // new_tokens))
        shape = list(self.data.shape)
        shape[1], shape[3] = new_rows, new_tokens
        grown = torch.zeros(shape, dtype=self.data.dtype, device=self.data.device)
        kept_rows, kept_tokens = min(rows, new_rows), min(tokens, new_tokens)
        grown[:, :kept_rows, :, :kept_tokens] = self.data[:, :kept_rows, :, :kept_tokens]
        self.data = grown

    def move(self, source: int, target: int, num_tokens: int) -> None:
        self.data[:, target, :, :num_tokens] = self.data[:, source, :, :num_tokens]


class BlockStorage:
    """The tensors of a `BlockPool`: [blocks, layers, 2K, block_tokens, D]."""

    def __init__(self, config: ModelConfig, num_blocks: int, block_tokens: int, dtype: torch.dtype, device: torch.device) -> None:
        shape = (num_blocks, config.num_layers, 2 * config.num_kv_heads, block_tokens, config.head_dim)
        self.data = torch.zeros(shape, dtype=dtype, device=device)

    def load(self, pieces: Sequence[Piece], run: Tensor) -> None:
        """Copy pieces to their positions in a run [layers, 2K, tokens, D]."""
        for piece in pieces:
            run[:, :, piece.start : piece.start + piece.num_tokens] = self.data[piece.index, :, :, : piece.num_tokens]

    def save(self, pieces: Sequence[Piece], run: Tensor) -> None:
        """Fill pieces from a run [layers, 2K, tokens, D]."""
        for piece in pieces:
            self.data[piece.index, :, :, : piece.num_tokens] = run[:, :, piece.start : piece.start + piece.num_tokens]


class CacheAttention:
    """Attention of new tokens in the first rows of a run of slots, over `num_keys` cached tokens.

    Token r belongs to row `rows_R[r]` at position `positions_R[r]`. `mask` is over [rows, 1, G * length, num_keys]. Where rows
    bring different numbers of tokens, `valid_R` places them among rows x length padded queries; nothing padded is ever stored.
    """

    def __init__(
        self, data: Tensor, rows_R: Tensor, positions_R: Tensor, mask: Tensor, num_rows: int, length: int, valid_R: Tensor | None = None
    ) -> None:
        self.data, self.mask, self.num_rows, self.length, self.valid_R = data, mask, num_rows, length, valid_R
        self.num_keys = mask.shape[-1]
        self.rows_R1, self.positions_R1 = rows_R[:, None], positions_R[:, None]
        self.heads_1K = torch.arange(data.shape[2], device=data.device)[None]

    def __call__(self, layer: int, q_RHD: Tensor, k_RKD: Tensor, v_RKD: Tensor) -> Tensor:
        kv_heads, dim = k_RKD.shape[1:]
        cache = self.data[layer]
        cache[self.rows_R1, self.heads_1K, self.positions_R1] = torch.cat([k_RKD, v_RKD], dim=1)
        keys = cache[: self.num_rows, :kv_heads, : self.num_keys]
        values = cache[: self.num_rows, kv_heads:, : self.num_keys]
        queries = fold_queries(self._padded(q_RHD), self.num_rows, kv_heads)
        rows = unfold_queries(attend(queries, keys, values, self.mask, dim**-0.5), self.length)
        return rows if self.valid_R is None else rows[self.valid_R]

    def _padded(self, q_RHD: Tensor) -> Tensor:
        if self.valid_R is None:
            return q_RHD
        padded = q_RHD.new_zeros(self.num_rows * self.length, *q_RHD.shape[1:])
        padded[self.valid_R] = q_RHD
        return padded
