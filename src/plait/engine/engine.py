"""The rollout engine: takes chunks, computes them together, gives results back. One thread, no clock, no input or output.

- A chunk's tokens and log-probabilities are a pure function of (base, policy version, context, sampling parameters).
- Rows share slots and cache, whether the base with an adapter computes them or the policy's own model in a pass of its own.
- A chunk starts when a slot for its longest end is free; until then it waits, first come first served.
- A context is computed once: rows with the same one wait for the first, later chunks find it in the pool.
- With a drafter, rows may draw several tokens in a step: the same as one by one.
- Prompts are computed `PREFILL_TOKENS` at a time between two decode steps, so that nobody's decoding is held up for long.
- A chunk that ends at its budget leaves its cache in the pool and names it. The pool may lose it: then it is computed again.
- A chunk that can never be served, and one whose adapter cannot be read or gives no finite logits, fails alone.
- When nothing runs, no row, pin or adapter reference is held (`check_idle`).
"""

import math
from collections import OrderedDict
from itertools import count

import torch
from msgspec.structs import replace

from plait.engine.adapters import AdapterStore, StartTurn, split
from plait.engine.allocator import keep_freed_memory
from plait.engine.cache import SlotCache
from plait.engine.drawing import Drawing, Run
from plait.engine.kv_manager import KvManager
from plait.engine.limits import EngineLimits
from plait.engine.mixer import AdapterMixer, Owners
from plait.engine.prefill import plan_prefill, prefill
from plait.engine.row import Row, by_decoder, failed
from plait.engine.sampler import Sampler
from plait.engine.speculation import Speculation
from plait.engine.stops import Decode, StopRule
from plait.kv.keys import Key, root_key
from plait.models.decoder import Decoder
from plait.types.chunks import Chunk, ChunkResult
from plait.types.errors import PlaitError
from plait.types.sampling import StopReason

PREFILL_TOKENS = 512
"""Most prompt tokens computed between two decode steps."""


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
        speculation: Speculation | None = None,
    ) -> None:
        self.decoder, self.adapters, self.decode, self.base_digest = decoder, adapters, decode, base_digest
        config, dtype, device = decoder.config, decoder.dtype, decoder.device
        keep_freed_memory()
        self.limits = EngineLimits(config.vocab_size, max_context_tokens, slot_tokens, decode is not None)
        self.kv = KvManager(config, pool_tokens, dtype, device)
        self.pool = self.kv.pool
        self.slots = SlotCache(config, max_rows, slot_tokens, dtype, device)
        self.mixer, self.speculation = AdapterMixer(device), speculation
        self.drawing = Drawing(sampler, self.mixer, speculation)
        self.waiting: OrderedDict[str, Chunk] = OrderedDict()
        self.rows: list[Row] = []
        """Row i is computed in slot i."""
        self._numbers = count()
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
            self.kv.expect(chunk, self._root(chunk))
            if self.speculation is not None:
                self.speculation.follow(chunk)

    def _problem(self, chunk: Chunk) -> str:
        if chunk.request_id in self.waiting or any(row.chunk.request_id == chunk.request_id for row in self.rows):
            return f"request_id {chunk.request_id!r} is already running: give each request its own"
        return self.limits.problem(chunk)

    @torch.inference_mode()
    def cancel(self, request_id: str) -> None:
        """End a request now; its tokens so far come back as CANCELLED. Unknown or finished ids are fine."""
        chunk = self.waiting.pop(request_id, None)
        if chunk is not None:
            self.kv.give_up(chunk, self._root(chunk))
            self._done.append(ChunkResult(request_id, chunk.policy, (), (), StopReason.CANCELLED))
        for index, row in enumerate(self.rows):
            if row.chunk.request_id == request_id:
                self._finish(index, StopReason.CANCELLED)
                return

    def end_stretches(self) -> None:
        """No chunk goes on past its budget any more, of those that are here."""
        for row in self.rows:
            row.end_stretch()
        self.waiting.update({name: replace(chunk, stretch_tokens=0) for name, chunk in self.waiting.items()})

    def release(self, handle: str, went_on: bool = False) -> None:
        """Free a stored cache that no later turn will use, or that a later chunk went on from; fine if it is gone."""
        self.kv.release(handle, went_on)

    @property
    def is_idle(self) -> bool:
        return not (self.waiting or self.rows or self._done)

    @property
    def num_computed_tokens(self) -> int:
        return self.num_prefilled_tokens + self.num_decoded_tokens

    # ---- the loop

    @torch.inference_mode()
    def step(self) -> list[ChunkResult]:
        """Start what fits, go on computing prompts, draw for every row that can; return the chunks that ended."""
        self._start_rows()
        if not self.rows:
            self.kv.wait()
        self._prefill()
        self._decode()
        done, self._done = self._done, []
        return done

    def _start_rows(self) -> None:
        num_before, turn = len(self.rows), StartTurn(self.adapters)
        for chunk in list(self.waiting.values()):
            if not self._has_room(chunk):
                self.end_stretches()
                break
            if not (self.kv.may_start(chunk.request_id) and turn.may_start(chunk.adapter)):
                continue  # Its cache is on the way, or its model waits for a place.
            del self.waiting[chunk.request_id]
            try:
                self.rows.append(self._new_row(chunk))
            except PlaitError as error:
                self._done.append(failed(chunk, str(error)))
        # Rows of one adapter side by side are multiplied without being copied together.
        self.rows[num_before:] = sorted(self.rows[num_before:], key=lambda row: row.chunk.policy)
        if self.rows:
            self.slots.resize(len(self.rows), max(row.slot_tokens for row in self.rows))
        for index in range(num_before, len(self.rows)):
            self._load(index)
            if self.speculation is not None:
                self.speculation.start(self.rows[index])

    def _has_room(self, chunk: Chunk) -> bool:
        longest = max([self.limits.stretched_tokens(chunk), *(row.longest_tokens for row in self.rows)])
        return self.slots.fits(len(self.rows) + 1, longest)

    def _new_row(self, chunk: Chunk) -> Row:
        decoder, adapter = split(self.adapters.acquire(chunk.adapter) if chunk.adapter else None, self.decoder)
        generated = chunk.context_tokens[len(chunk.context_tokens) - chunk.generated_tokens :]
        rule = StopRule(chunk.sampling, generated, self.limits.max_context_tokens, self.decode)
        longest = self.limits.stretched_tokens(chunk)
        return Row(next(self._numbers), chunk, decoder, adapter, self._root(chunk), rule, longest, list(chunk.context_tokens))

    def _root(self, chunk: Chunk) -> Key:
        digest = chunk.adapter.digest if chunk.adapter else None
        return root_key(self.base_digest, str(self.decoder.dtype), chunk.policy, digest)

    def _load(self, index: int) -> None:
        row = self.rows[index]
        self.slots.clear(index)
        row.num_computed = row.cached_tokens = self.kv.load(row, self.slots.row(index))

    def _prefill(self) -> None:
        plan = plan_prefill(self.rows, PREFILL_TOKENS)
        if not plan.spans:
            return
        span_of = {span.row: span for span in plan.spans}
        for decoder, places in by_decoder(self.rows, span_of).items():
            spans = [span_of[place] for place in places]
            owners = [self.rows[span.row].adapter for span in spans for _ in range(span.count)]
            prefill(decoder, self.slots.data, self.rows, spans, self.mixer.for_prefill(owners, self._adapters()))
        self.num_prefilled_tokens += plan.num_tokens
        for span in plan.spans:
            self.rows[span.row].num_computed = span.end
            if self.rows[span.row].is_ready:
                self.kv.store(self.rows[span.row], self.slots.row(span.row))
        for follower, leader in plan.followers:
            if self.rows[leader].is_ready:
                self._follow(follower, leader)

    def _adapters(self) -> Owners:
        return [row.adapter for row in self.rows]

    def _follow(self, follower: int, leader: int) -> None:
        """Take over the context that another row has computed."""
        row = self.rows[follower]
        self.slots.copy(leader, follower)
        row.num_computed = row.cached_tokens = self.rows[leader].num_computed

    def _decode(self) -> None:
        places = [index for index, row in enumerate(self.rows) if row.is_ready]
        self.num_decoded_rows = len(places)
        if not places:
            return
        if self.speculation is not None:
            self.speculation.num_waiting = len(self.waiting)
        runs = self.drawing.draw(self.rows, places, self.slots.data)
        for index, run in reversed(list(zip(places, runs, strict=True))):
            self._take(index, run)

    def _take(self, index: int, run: Run) -> None:
        """Append what a row drew, up to the token that ends its chunk; no trace of the rest stays in its slot."""
        row = self.rows[index]
        if not all(map(math.isfinite, run.logprobs)):
            problem = f"policy {row.chunk.policy} gives logits that are not finite: go back to an earlier one"
            self._end_row(index, failed(row.chunk, problem))
            return
        fed_end, num_before = row.num_computed + run.num_fed, len(row.tokens)
        reason = row.append_all(run.tokens, run.logprobs)
        self.num_decoded_tokens += len(row.tokens) - num_before
        if run.num_fed > 1:
            row.may_draft = bool(run.tokens)
            self.slots.row(index)[..., row.num_computed : fed_end, :] = 0
        if self.speculation is not None:
            self.speculation.drafter.drawn(row.generation, row.tokens[num_before:])
        if reason is not None:
            self._finish(index, reason)

    def _finish(self, index: int, reason: StopReason) -> None:
        row = self.rows[index]
        is_needed = reason == StopReason.BUDGET or (row.chunk.keep_cache and reason != StopReason.CANCELLED)
        handle = self.kv.finish(row, self.slots.row(index), is_needed)
        self._end_row(index, row.result(reason, handle))

    def _end_row(self, index: int, result: ChunkResult) -> None:
        """Give the result and close the gap with the last row."""
        self._done.append(result)
        self.drawing.forget()
        row, last = self.rows[index], self.rows.pop()
        if last is not row:
            self.rows[index] = last
            self.slots.copy(len(self.rows), index)
        if row.chunk.adapter is not None:
            self.adapters.release(row.chunk.adapter)
        if self.speculation is not None:
            self.speculation.drafter.end(row.generation)

    # ---- invariants

    def check_idle(self) -> None:
        """Raise AssertionError if something is held although nothing runs."""
        assert self.is_idle, "not idle"
        assert self.adapters.num_references == 0, "an adapter reference leaked"
        self.kv.check_idle()
