"""The rollout engine: takes chunks, decodes them together, gives results back. One thread, no clock, no input or output.

- A chunk's tokens and log-probabilities are a pure function of (base, adapter version, context, sampling parameters).
- A row starts when a slot and the memory for its longest end are free; until then its chunk waits, first come first served.
- A context is computed once: chunks of one context wait for the first to fill the pool, then copy.
- A chunk that ends at its budget leaves its cache in the pool and names it; one that cannot ever fit fails at once.
- When nothing runs, no slot, pin or adapter reference is held (`check_idle`).
"""

from collections import OrderedDict
from collections.abc import Sequence

import torch

from plait.engine.adapters import AdapterStore
from plait.engine.cache import BlockStorage, CacheAttention, SlotCache
from plait.engine.prefill import KEY_STEP, Prefiller, PrefillJob, round_up
from plait.engine.row import Row, failed
from plait.engine.sampler import Sampler
from plait.engine.stops import Decode, StopRule
from plait.kv.keys import Key, root_key
from plait.kv.pool import BlockPool, Match
from plait.lora.mix import ConcatLora, FusedAdapter, SegmentLora, StackedAdapters, mix_adapters
from plait.models.attention import causal_mask
from plait.models.decoder import Decoder
from plait.types.chunks import Chunk, ChunkResult
from plait.types.errors import PlaitError
from plait.types.sampling import StopReason

BLOCK_TOKENS = 16
"""Tokens in a block of the pool."""

PREFILL_TOKENS = 2048
"""Most new prompt tokens computed between two decode steps, so that decoding is not held up for long."""


class Engine:
    def __init__(
        self,
        decoder: Decoder,
        adapters: AdapterStore,
        base_digest: str,
        *,
        max_rows: int,
        slot_tokens: int,
        pool_tokens: int,
        max_context_tokens: int,
        sampler: Sampler,
        decode: Decode | None = None,
    ) -> None:
        self.decoder, self.adapters, self.sampler, self.decode = decoder, adapters, sampler, decode
        self.base_digest, self.max_rows, self.max_context_tokens = base_digest, max_rows, max_context_tokens
        config, dtype, device = decoder.config, decoder.dtype, decoder.device
        self.pool = BlockPool(max(1, pool_tokens // BLOCK_TOKENS), BLOCK_TOKENS)
        self.slots = SlotCache(config, max_rows, slot_tokens, dtype, device)
        self.storage = BlockStorage(config, self.pool.num_blocks, BLOCK_TOKENS, dtype, device)
        self.prefiller = Prefiller(decoder, self.pool, self.storage)
        self.waiting: OrderedDict[str, Chunk] = OrderedDict()
        self.rows: list[Row] = []
        self.handles: dict[str, Key] = {}
        self._stacked = StackedAdapters(())
        self._done: list[ChunkResult] = []
        self.num_prefilled_tokens = 0
        self.num_decoded_tokens = 0
        self.num_decoded_rows = 0
        """Rows of the latest decode step."""

    # ---- requests

    def submit(self, chunk: Chunk) -> None:
        """Queue a chunk. What can never be served comes back as FAILED from the next step."""
        problem = self._problem(chunk)
        if problem:
            self._done.append(failed(chunk, problem))
        else:
            self.waiting[chunk.request_id] = chunk

    def cancel(self, request_id: str) -> None:
        """End a request now; its tokens so far come back as CANCELLED. Unknown or finished ids are fine."""
        chunk = self.waiting.pop(request_id, None)
        if chunk is not None:
            self._done.append(ChunkResult(request_id, chunk.policy, (), (), StopReason.CANCELLED))
        for index, row in enumerate(self.rows):
            if row.chunk.request_id == request_id:
                self._end_row(index, StopReason.CANCELLED)
                return

    def release(self, handle: str) -> None:
        """Free a stored cache that no later turn will use."""
        key = self.handles.pop(handle, None)
        if key is not None:
            self.pool.release(key)

    @property
    def is_idle(self) -> bool:
        return not (self.waiting or self.rows or self._done)

    @property
    def num_computed_tokens(self) -> int:
        return self.num_prefilled_tokens + self.num_decoded_tokens

    def _problem(self, chunk: Chunk) -> str:
        longest = len(chunk.context_tokens) + chunk.budget_tokens
        if chunk.request_id in self.waiting or any(row.chunk.request_id == chunk.request_id for row in self.rows):
            return f"request_id {chunk.request_id!r} is already running"
        if not chunk.context_tokens or chunk.budget_tokens < 1:
            return f"context_tokens has {len(chunk.context_tokens)} tokens and budget_tokens is {chunk.budget_tokens}: both need 1 or more"
        if not 0 <= min(chunk.context_tokens) <= max(chunk.context_tokens) < self.decoder.config.vocab_size:
            return f"context_tokens holds ids outside 0..{self.decoder.config.vocab_size - 1}"
        if len(chunk.context_tokens) >= self.max_context_tokens:
            return f"context_tokens has {len(chunk.context_tokens)} tokens; max_context_tokens is {self.max_context_tokens}: shorten it"
        if not self.slots.fits(1, min(longest, self.max_context_tokens)):
            return f"the chunk needs {longest} cached tokens; slot_tokens is {self.slots.slot_tokens}: raise it or shorten the chunk"
        if not self.pool.can_store(len(chunk.context_tokens)):
            return f"the context needs {len(chunk.context_tokens)} stored tokens; pool_tokens is too small: raise it"
        return ""

    # ---- the loop

    @torch.inference_mode()
    def step(self) -> list[ChunkResult]:
        """Start what fits, compute missing prompts, draw one token for every row; return the chunks that ended."""
        self._start_rows()
        self.num_decoded_rows = len(self.rows)
        if self.rows:
            self._decode_step()
            self.num_decoded_tokens += self.num_decoded_rows
        done, self._done = self._done, []
        return done

    def _start_rows(self) -> None:
        jobs = self._start_cached()
        if jobs:
            self._prefill(jobs)
            self._start_cached()

    def _start_cached(self) -> list[PrefillJob]:
        """Start chunks, in order, whose context is stored; return jobs for contexts that are not."""
        jobs: dict[tuple[Key, tuple[int, ...]], PrefillJob] = {}
        num_planned = len(self.rows)
        for chunk in list(self.waiting.values()):
            if not self._has_room(chunk, num_planned):
                break
            num_planned += 1
            root = self._root(chunk)
            context = chunk.context_tokens[:-1]
            match = self.pool.lookup(root, context)
            if match.num_tokens == len(context):
                self._start_row(chunk, root, match)
            elif (root, context) not in jobs:
                job = PrefillJob(root, context, match, chunk)
                if not self._fits_prefill([*jobs.values(), job]):
                    break
                jobs[root, context] = job
        return list(jobs.values())

    def _root(self, chunk: Chunk) -> Key:
        digest = chunk.adapter.digest if chunk.adapter else ""
        return root_key(self.base_digest, str(self.decoder.dtype), chunk.policy, digest)

    def _has_room(self, chunk: Chunk, num_rows: int) -> bool:
        longest = max([self._longest(chunk), *(self._longest(row.chunk) for row in self.rows)])
        return self.slots.fits(num_rows + 1, longest)

    def _longest(self, chunk: Chunk) -> int:
        return min(len(chunk.context_tokens) + chunk.budget_tokens, self.max_context_tokens)

    def _fits_prefill(self, jobs: Sequence[PrefillJob]) -> bool:
        if len(jobs) == 1:
            return True
        blocks = sum(self.pool.blocks_needed(len(job.tokens)) for job in jobs)
        return blocks <= self.pool.num_blocks and sum(job.num_new_tokens for job in jobs) <= PREFILL_TOKENS

    def _adapter(self, chunk: Chunk) -> FusedAdapter | None:
        """The chunk's adapter with one more reference; the chunk fails if its file does not serve."""
        return self.adapters.acquire(chunk.adapter) if chunk.adapter else None

    def _prefill(self, jobs: Sequence[PrefillJob]) -> None:
        ready: list[tuple[PrefillJob, FusedAdapter | None]] = []
        for job in jobs:
            try:
                ready.append((job, self._adapter(job.chunk)))
            except PlaitError as error:
                self._fail(job.chunk, error)
        if ready:
            owners = [adapter for job, adapter in ready for _ in range(job.num_new_tokens)]
            self.prefiller.run([job for job, _ in ready], self._mix(owners))
            self.num_prefilled_tokens += len(owners)
        for job, adapter in ready:
            if adapter is not None:
                self.adapters.release(job.chunk.policy)

    def _fail(self, chunk: Chunk, error: PlaitError) -> None:
        del self.waiting[chunk.request_id]
        self._done.append(failed(chunk, str(error)))

    def _start_row(self, chunk: Chunk, root: Key, match: Match) -> None:
        try:
            adapter = self._adapter(chunk)
        except PlaitError as error:
            return self._fail(chunk, error)
        del self.waiting[chunk.request_id]
        generated = chunk.context_tokens[len(chunk.context_tokens) - chunk.generated_tokens :]
        rule = StopRule(chunk.sampling, generated, self.max_context_tokens, self.decode)
        row = Row(chunk, adapter, root, rule, match.num_tokens, list(chunk.context_tokens))
        self.rows.append(row)
        self.slots.reserve(len(self.rows), max(self._longest(row.chunk) for row in self.rows))
        self.storage.load(match.pieces, self.slots.data[:, len(self.rows) - 1])

    def _mix(self, owners: Sequence[FusedAdapter | None]) -> ConcatLora | SegmentLora | None:
        """The delta for rows owned by these adapters; stacks are made anew only when an adapter is missing."""
        wanted = {id(owner): owner for owner in owners if owner is not None}
        if not wanted:
            return None
        places = {id(adapter): i for i, adapter in enumerate(self._stacked.adapters)}
        if wanted.keys() - places.keys() or len(places) > 2 * len(wanted):
            self._stacked = StackedAdapters(list(wanted.values()))
            places = {id(adapter): i for i, adapter in enumerate(self._stacked.adapters)}
        adapter_R = torch.tensor([-1 if owner is None else places[id(owner)] for owner in owners], device=self.decoder.device)
        return mix_adapters(self._stacked, adapter_R, self.decoder.dtype)

    def _decode_step(self) -> None:
        rows, device = self.rows, self.decoder.device
        positions = [row.position for row in rows]
        positions_R = torch.tensor(positions, device=device)
        tokens_R = torch.tensor([row.tokens[-1] for row in rows], device=device)
        num_keys = min(round_up(max(positions) + 1, KEY_STEP), self.slots.row_tokens)
        mask = causal_mask(positions_R[:, None], num_keys, 1, self.decoder.dtype)
        rows_R = torch.arange(len(rows), device=device)
        attention = CacheAttention(self.slots.data, rows_R, positions_R, mask, len(rows), 1)
        lora = self._mix([row.adapter for row in rows])
        logits_RV = self.decoder.logits(self.decoder.forward(tokens_R, positions_R, attention, lora), lora)
        draw = self.sampler.draw(logits_RV, [row.chunk.sampling for row in rows], [p + 1 for p in positions])
        ends = [row.append(t, lp) for row, t, lp in zip(rows, draw.tokens_R, draw.logprobs_R, strict=True)]
        for index in reversed(range(len(ends))):
            reason = ends[index]
            if reason is not None:
                self._end_row(index, reason)

    def _end_row(self, index: int, reason: StopReason) -> None:
        """Give the result, store the cache if it will be needed, and close the gap with the last row."""
        row = self.rows[index]
        handle = self._park(index, row) if reason == StopReason.BUDGET or row.chunk.keep_cache else ""
        self._done.append(row.result(reason, handle))
        last = self.rows.pop()
        if last is not row:
            self.rows[index] = last
            self.slots.move(len(self.rows), index, last.position)
        if row.adapter is not None:
            self.adapters.release(row.chunk.policy)

    def _park(self, index: int, row: Row) -> str:
        tokens = row.tokens[:-1]
        pieces, key = self.pool.store(row.root, tokens)
        self.storage.save(pieces, self.slots.data[:, index])
        handle = key.hex()
        self.handles[handle] = key
        return handle

    # ---- invariants

    def check_idle(self) -> None:
        """Raise AssertionError if something is held although nothing runs."""
        assert self.is_idle, "not idle"
        assert self.adapters.num_references == 0, "an adapter reference leaked"
        assert self.pool.num_pinned == 0, "a block is still pinned"
        self.pool.check_invariants()
