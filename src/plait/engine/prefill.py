"""Computing what the cache lacks of some contexts, straight into the block pool."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from plait.engine.cache import BlockStorage, CacheAttention
from plait.kv.keys import Key
from plait.kv.pool import BlockPool, Match
from plait.models.attention import causal_mask
from plait.models.decoder import Decoder, LoraDelta
from plait.types.chunks import Chunk

KEY_STEP = 32
"""Attention runs over a number of keys that is a multiple of this."""


@dataclass(frozen=True, slots=True)
class PrefillJob:
    """`tokens` are to be in the cache, for `chunk` and its like; `match` tells which are."""

    root: Key
    tokens: tuple[int, ...]
    match: Match
    chunk: Chunk

    @property
    def num_new_tokens(self) -> int:
        return len(self.tokens) - self.match.num_tokens


def round_up(value: int, step: int) -> int:
    return -(-value // step) * step


class Prefiller:
    """Runs jobs as one batch: rows are the new tokens of all jobs, without padding in the linear layers."""

    def __init__(self, decoder: Decoder, pool: BlockPool, storage: BlockStorage) -> None:
        self.decoder, self.pool, self.storage = decoder, pool, storage

    def run(self, jobs: Sequence[PrefillJob], lora: LoraDelta | None) -> None:
        """`lora` is mixed for the new tokens in job order."""
        config = self.decoder.config
        num_keys = round_up(max(len(job.tokens) for job in jobs), KEY_STEP)
        shape = (config.num_layers, len(jobs), 2 * config.num_kv_heads, num_keys, config.head_dim)
        data = torch.zeros(shape, dtype=self.decoder.dtype, device=self.decoder.device)
        for row, job in enumerate(jobs):
            self.storage.load(job.match.pieces, data[:, row])
        self._forward(jobs, data, lora)
        for row, job in enumerate(jobs):
            pieces, _ = self.pool.store(job.root, job.tokens)
            self.storage.save(pieces, data[:, row])

    def _forward(self, jobs: Sequence[PrefillJob], data: Tensor, lora: LoraDelta | None) -> None:
        config, device = self.decoder.config, data.device
        length = max(job.num_new_tokens for job in jobs)
        tokens, rows, positions, valid = [], [], [], []
        padded = torch.zeros(len(jobs), length, dtype=torch.long, device=device)
        for row, job in enumerate(jobs):
            start, count = job.match.num_tokens, job.num_new_tokens
            tokens += job.tokens[start:]
            rows += [row] * count
            positions += range(start, len(job.tokens))
            valid += range(row * length, row * length + count)
            padded[row, :count] = torch.arange(start, len(job.tokens), device=device)
        mask = causal_mask(padded, data.shape[3], config.num_heads // config.num_kv_heads, self.decoder.dtype)
        tokens_R, rows_R, positions_R, valid_R = (torch.tensor(v, device=device) for v in (tokens, rows, positions, valid))
        attention = CacheAttention(data, rows_R, positions_R, mask, len(jobs), length, valid_R)
        self.decoder.forward(tokens_R, positions_R, attention, lora)
