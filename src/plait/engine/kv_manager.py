"""What the engine asks of the cache: fill a row's slot with what is stored of its context, store a slot, free what is stored.

- What is loaded are the bits that were stored, for this very policy and these very tokens; what is not found is computed again.
- Without lower tiers the device's pool is all there is. With them a row goes on wherever they reach, without computing its
  context again.
- What has to come from another node, or from the disk if the controller says so, is pulled from the moment a chunk is submitted:
  the chunk starts when it is here, or late.
- A handle names a stored sequence: its last block, the number of tokens of its prompt, and when it was stored. "" names nothing.
"""

import torch
from torch import Tensor

from plait.engine.cache import BlockStorage
from plait.engine.kv_blocks import BlockCodec
from plait.engine.row import Row
from plait.kv.block_log import DEVICE, STORE, BlockLog
from plait.kv.chain import Link, chain
from plait.kv.counters import KvCounters, TierCounters
from plait.kv.host_tier import clock_us
from plait.kv.keys import Key
from plait.kv.pool import BLOCK_TOKENS, BlockPool, Match
from plait.kv.pulls import Pull
from plait.kv.segment import Rank
from plait.kv.tiers import LowerTiers
from plait.types.chunks import Chunk
from plait.types.model import ModelConfig

MOMENT_S = 0.05


class KvManager:
    """A row's slot is [layers, 2, K, tokens, D]; its first `row.num_computed` tokens are the row's."""

    def __init__(self, config: ModelConfig, pool_tokens: int, dtype: torch.dtype, device: torch.device) -> None:
        self.pool = BlockPool(max(1, pool_tokens // BLOCK_TOKENS), BLOCK_TOKENS)
        self.storage = BlockStorage(config, self.pool.num_blocks, BLOCK_TOKENS, dtype, device)
        self.codec = BlockCodec(config, BLOCK_TOKENS, dtype)
        self.lower: LowerTiers | None = None
        self._pulls: dict[str, Pull] = {}
        """What waiting chunks wait for, by request id."""
        self._device_counters = TierCounters(capacity_bytes=self.pool.num_blocks * self.codec.payload_bytes)

    def attach(self, lower: LowerTiers) -> None:
        """Put tiers below the pool; their blocks must have this model's size."""
        assert lower.host.payload_bytes == self.codec.payload_bytes, "tiers of another model"
        self.lower = lower
        lower.counters.device = self._device_counters

    def tell(self) -> list[BlockLog]:
        """Logs of which blocks come to each tier from now on, and go from it. Whoever asks is to empty them."""
        self.pool.log = BlockLog(DEVICE)
        return [self.pool.log, *(self.lower.tell() if self.lower is not None else [])]

    def expect(self, chunk: Chunk, root: Key) -> None:
        """A chunk waits: what lies far away of its context is fetched meanwhile, as far as it is said to be there."""
        if self.lower is None:
            return
        told, tokens = chunk.pull, chunk.context_tokens[:-1]
        if told is not None:
            tokens = tokens[: told.num_tokens]
        match = self.pool.lookup(root, tokens)
        if match.num_tokens < len(tokens):
            is_stored = chunk.generated_tokens > 0 or (told is not None and told.tier == STORE)
            pull = self.lower.expect(*self._rest(root, match, tokens), is_stored=is_stored, is_below=told is not None)
            if pull is not None:
                self._pulls[chunk.request_id] = pull

    def may_start(self, request_id: str) -> bool:
        """Whether a chunk has nothing to wait for any more."""
        pull = self._pulls.get(request_id)
        if pull is None or pull.is_over:
            self.forget(request_id)
            return True
        return False

    def forget(self, request_id: str) -> None:
        """A chunk does not wait any more."""
        self._pulls.pop(request_id, None)

    def give_up(self, chunk: Chunk, root: Key) -> None:
        """A chunk that waited will not start, and nothing goes on from it: nobody expects what was brought up for it."""
        pull = self._pulls.pop(chunk.request_id, None)
        if pull is not None and pull not in self._pulls.values():
            pull.end()
        if self.lower is not None and chunk.generated_tokens:
            links = list(chain(root, chunk.context_tokens[:-1], BLOCK_TOKENS))
            self.lower.release(links, len(chunk.context_tokens) - chunk.generated_tokens, clock_us())

    def wait(self) -> None:
        """For the first of what chunks wait for, a moment at most: the caller has nothing else to do, and others to listen to."""
        if self._pulls:
            next(iter(self._pulls.values())).wait(MOMENT_S)

    def load(self, row: Row, slot: Tensor) -> int:
        """Copy what is stored of a row's context; the number of tokens. The last token is always left to compute."""
        tokens = row.chunk.context_tokens[:-1]
        match = self.pool.lookup(row.root, tokens)
        self.storage.load(match.pieces, slot)
        self._count(match, len(tokens))
        row.stored_end = match.end if row.chunk.generated_tokens else None
        if self.lower is None or match.num_tokens == len(tokens):
            return match.num_tokens
        return self._load_lower(self.lower, row, match, slot)

    def _count(self, match: Match, num_tokens: int) -> None:
        self._device_counters.hits += len(match.pieces)
        self._device_counters.hit_tokens += match.num_tokens
        self._device_counters.misses += match.num_tokens < num_tokens

    def _load_lower(self, lower: LowerTiers, row: Row, match: Match, slot: Tensor) -> int:
        """Go on where the pool ends; what is found goes into the pool too."""
        num_tokens, tokens = match.num_tokens, row.chunk.context_tokens[:-1]
        for record in lower.find(*self._rest(row.root, match, tokens)):
            self.codec.unpack(record.link, record.payload, slot)
            num_tokens = max(num_tokens, record.link.end)
        if num_tokens > match.num_tokens:
            end = self._store_in_pool(row.root, tokens[:num_tokens], slot)
            row.stored_end = end if row.chunk.generated_tokens else None
        return num_tokens

    def _rest(self, root: Key, match: Match, tokens: tuple[int, ...]) -> tuple[Key, tuple[int, ...], int]:
        """Last whole block that matches, all tokens, where that block ends."""
        num_blocks = match.num_tokens // BLOCK_TOKENS
        return match.keys[num_blocks - 1] if num_blocks else root, tokens, num_blocks * BLOCK_TOKENS

    def _store_in_pool(self, root: Key, tokens: tuple[int, ...] | list[int], slot: Tensor) -> Key | None:
        pieces, end = self.pool.store(root, tokens)
        self.storage.save(pieces, slot)
        self._device_counters.writes += len(pieces)
        return end

    def store(self, row: Row, slot: Tensor) -> None:
        """Store what is computed of a row that goes on, for others with the same prompt."""
        self._store(row, slot, Rank.KEPT)

    def _store(self, row: Row, slot: Tensor, rank: Rank) -> tuple[Key | None, str]:
        """The last block the pool has; the handle."""
        end = self._store_in_pool(row.root, row.tokens[: row.num_computed], slot)
        if self.lower is None:
            return end, f"{end.hex()}.{row.prompt_tokens}.0" if end else ""
        links = self._links(row, row.num_computed)
        stamp_us = self.lower.store(links, lambda link: self.codec.pack(link, slot), rank)
        return end, f"{links[-1].key.hex()}.{row.prompt_tokens}.{stamp_us}" if links else ""

    def _links(self, row: Row, num_tokens: int) -> list[Link]:
        return list(chain(row.root, row.tokens[:num_tokens], BLOCK_TOKENS))

    def finish(self, row: Row, slot: Tensor, is_needed: bool) -> str:
        """Store what a row that ends has computed if it will be needed; free what its earlier chunks stored if not."""
        end, handle = self._store(row, slot, Rank.EXPECTED) if is_needed else (None, "")
        if row.stored_end is not None and row.stored_end != end:
            self.pool.release(row.stored_end, row.prompt_tokens)
        if self.lower is not None and row.chunk.generated_tokens:
            needed = {link.key for link in self._links(row, row.num_computed)} if is_needed else set()
            earlier = self._links(row, len(row.chunk.context_tokens) - 1)
            self.lower.release([link for link in earlier if link.key not in needed], row.prompt_tokens)
        return handle

    def release(self, handle: str, went_on: bool = False) -> None:
        """Free a stored sequence as far as nobody shares it or has gone on from it since; fine if it is gone.

        `went_on`: a later chunk has gone on from it, perhaps on another node.
        """
        if not handle:
            return
        end, prompt_tokens, stamp_us = handle.split(".")
        self.pool.release(bytes.fromhex(end))
        if self.lower is not None:
            links = list(self.lower.path_to(bytes.fromhex(end)))
            self.lower.release(links[::-1], int(prompt_tokens), int(stamp_us), went_on=went_on)

    @property
    def counters(self) -> KvCounters:
        """As of now."""
        counters = self.lower.counters if self.lower is not None else KvCounters(device=self._device_counters)
        counters.device.evictions = self.pool.num_evicted
        counters.device.used_bytes = self.pool.num_stored * self.codec.payload_bytes
        if self.lower is not None:
            self.lower.measure()
        return counters

    def check_idle(self) -> None:
        """Raise AssertionError if something is held although nothing runs."""
        assert self.pool.num_pinned == 0, "a block is still pinned"
        assert not self._pulls, "somebody still waits for blocks"
        self.pool.check_invariants()
