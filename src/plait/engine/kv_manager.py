"""What the engine asks of the cache: fill a row's slot with what is stored of its context, store a slot, free what is stored.

- What is loaded are the bits that were stored, for this very policy and these very tokens; what is not found is computed again.
- A handle names a stored sequence by its last block; "" names nothing.
"""

import torch
from torch import Tensor

from plait.engine.cache import BlockStorage
from plait.engine.row import Row
from plait.kv.keys import Key
from plait.kv.pool import BlockPool
from plait.types.model import ModelConfig

BLOCK_TOKENS = 16
"""Tokens in a block, in every tier."""


class KvManager:
    """A row's slot is [layers, 2, K, tokens, D]; its first `row.num_computed` tokens are the row's."""

    def __init__(self, config: ModelConfig, pool_tokens: int, dtype: torch.dtype, device: torch.device) -> None:
        self.pool = BlockPool(max(1, pool_tokens // BLOCK_TOKENS), BLOCK_TOKENS)
        self.storage = BlockStorage(config, self.pool.num_blocks, BLOCK_TOKENS, dtype, device)

    def expect(self, root: Key, tokens: tuple[int, ...]) -> None:
        """A chunk with this context waits: what lies far away may be fetched meanwhile."""

    def load(self, row: Row, slot: Tensor) -> int:
        """Copy what is stored of a row's context; the number of tokens. The last token is always left to compute."""
        match = self.pool.lookup(row.root, row.chunk.context_tokens[:-1])
        self.storage.load(match.pieces, slot)
        row.stored_end = match.end if row.chunk.generated_tokens else None
        return match.num_tokens

    def store(self, row: Row, slot: Tensor) -> str:
        """Store what is computed of a row that goes on; its handle."""
        pieces, end = self.pool.store(row.root, row.tokens[: row.num_computed])
        self.storage.save(pieces, slot)
        return end.hex() if end else ""

    def finish(self, row: Row, slot: Tensor, is_needed: bool) -> str:
        """Store what a row that ends has computed if it will be needed; free what its earlier chunks stored if not."""
        handle = self.store(row, slot) if is_needed else ""
        if row.stored_end is not None and row.stored_end.hex() != handle:
            self.release(row.stored_end.hex(), row.prompt_tokens)
        return handle

    def release(self, handle: str, keep_tokens: int = 0) -> None:
        """Free a stored sequence beyond its first `keep_tokens` tokens, as far as nobody shares it; fine if it is gone."""
        self.pool.release(bytes.fromhex(handle), keep_tokens)

    def check_idle(self) -> None:
        """Raise AssertionError if something is held although nothing runs."""
        assert self.pool.num_pinned == 0, "a block is still pinned"
        self.pool.check_invariants()
