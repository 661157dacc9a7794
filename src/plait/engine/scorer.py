"""Log-probabilities of given tokens under a policy: prompts that are scored and not gone on with.

- One forward pass a step, of a bounded number of tokens, so that decoding can go on in between; longer prompts take several, each
  over the keys and values of those before.
- Prompts of one adapter that are about as long go together, in the order of their arrival.
- A score is a pure function of base, adapter version, tokens and seed. Draws use the noise of (seed, position).
- Logits exist for `CHUNK_ROWS` rows at a time. Row p tells of the token at position p + 1.
- A prompt that cannot be served fails alone.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from plait.engine.adapters import AdapterStore, Weights, split
from plait.engine.attention import PrefillAttention, Span
from plait.engine.cache import KEY_STEP, round_up
from plait.engine.limits import MAX_SEED, MIN_TEMPERATURE
from plait.engine.score import ScoreRequest, Scores
from plait.lora.mix import FusedAdapter, SingleLora
from plait.models.decoder import Decoder, LoraDelta
from plait.models.logprobs import scaled_logprobs
from plait.types.errors import PlaitError

BATCH_TOKENS = 1024
"""Prompts computed together have at most so many tokens, padding included; a longer one goes alone."""
CHUNK_ROWS = 128


@dataclass(slots=True)
class _Batch:
    """Prompts in the slots of a cache of their own."""

    requests: list[ScoreRequest]
    scores: list[Scores]
    decoder: Decoder
    adapter: FusedAdapter | None
    cache: Tensor
    num_computed: list[int] = field(default_factory=list)

    def next_spans(self, left: int) -> list[Span]:
        """What the next forward pass computes: `left` tokens, or what there is."""
        spans: list[Span] = []
        for row, (request, start) in enumerate(zip(self.requests, self.num_computed, strict=True)):
            count = min(left, len(request.tokens) - start)
            if count > 0:
                spans.append(Span(row, start, count))
                left -= count
        return spans

    @property
    def request_ids(self) -> list[str]:
        return [request.request_id for request in self.requests]

    @property
    def is_complete(self) -> bool:
        return all(done == len(request.tokens) for request, done in zip(self.requests, self.num_computed, strict=True))


class Scorer:
    def __init__(self, decoder: Decoder, adapters: AdapterStore, max_context_tokens: int) -> None:
        self.decoder, self.adapters, self.max_context_tokens = decoder, adapters, max_context_tokens
        self._waiting: OrderedDict[str, ScoreRequest] = OrderedDict()
        self._batch: _Batch | None = None
        self._failed: list[Scores] = []

    def submit(self, request: ScoreRequest) -> None:
        """Queue a prompt. One that can never be served fails at the next step."""
        problem = self._problem(request)
        if problem:
            self._fail(request, problem, is_user_error=True)
        else:
            self._waiting[request.request_id] = request

    def cancel(self, request_id: str) -> None:
        """End a prompt that has not begun; any other id is fine."""
        request = self._waiting.pop(request_id, None)
        if request is not None:
            self._fail(request, "it was cancelled", is_user_error=True)

    @property
    def is_idle(self) -> bool:
        return not (self._waiting or self._batch or self._failed)

    @torch.inference_mode()
    def step(self, max_tokens: int = BATCH_TOKENS) -> list[Scores]:
        """Run one forward pass over at most `max_tokens`; give the prompts that are complete with it, or have failed."""
        if self._batch is None:
            self._batch = self._next_batch()
        if self._batch is not None:
            self._forward(self._batch, max_tokens)
        done, self._failed = self._failed, []
        if self._batch is not None and self._batch.is_complete:
            done += [_checked(request, scores) for request, scores in zip(self._batch.requests, self._batch.scores, strict=True)]
            self._release(self._batch)
            self._batch = None
        return done

    # ---- choosing

    def _next_batch(self) -> _Batch | None:
        while chosen := self._choose():
            try:
                weights = self.adapters.acquire(chosen[0].adapter) if chosen[0].adapter else None
            except PlaitError as error:
                for request in chosen:
                    self._fail(self._waiting.pop(request.request_id), str(error), is_user_error=False)
                continue
            for request in chosen:
                del self._waiting[request.request_id]
            return self._lay_out(chosen, weights)
        return None

    def _choose(self) -> list[ScoreRequest]:
        """The first that waits and whose model, if it has one of its own, finds a place; and others of its policy whose slots,
        padded to the longest, stay within a batch."""
        servable = (r for r in self._waiting.values() if r.adapter is None or self.adapters.has_place(r.adapter))
        first = next(servable, None)
        self.adapters.has_claim = first is None and bool(self._waiting)
        if first is None:
            return []
        chosen, longest = [first], len(first.tokens)
        for request in self._waiting.values():
            if request is first:
                continue
            padded = max(longest, len(request.tokens))
            if request.adapter == first.adapter and padded * (len(chosen) + 1) <= BATCH_TOKENS:
                chosen.append(request)
                longest = padded
        return chosen

    def _lay_out(self, requests: list[ScoreRequest], weights: Weights | None) -> _Batch:
        decoder, adapter = split(weights, self.decoder)
        config = decoder.config
        num_tokens = round_up(max(len(request.tokens) for request in requests), KEY_STEP)
        shape = (config.num_layers, 2, len(requests), config.num_kv_heads, num_tokens, config.head_dim)
        cache = torch.zeros(shape, dtype=decoder.dtype, device=decoder.device)
        return _Batch(requests, [Scores.empty(request) for request in requests], decoder, adapter, cache, [0] * len(requests))

    def _release(self, batch: _Batch) -> None:
        ref = batch.requests[0].adapter
        if ref is not None:
            self.adapters.release(ref)

    # ---- computing

    def _forward(self, batch: _Batch, max_tokens: int) -> None:
        config, spans = self.decoder.config, batch.next_spans(max_tokens)
        attention = PrefillAttention(batch.cache, spans, config.num_heads // config.num_kv_heads)
        tokens = [token for span in spans for token in batch.requests[span.row].tokens[span.start : span.end]]
        tokens_R = torch.tensor(tokens, device=self.decoder.device)
        lora = SingleLora(batch.adapter) if batch.adapter is not None else None
        hidden_RE = batch.decoder.forward(tokens_R, attention.positions_R, attention, lora)
        for span in spans:
            batch.num_computed[span.row] = span.end
        self._score(batch, spans, hidden_RE, lora)

    def _score(self, batch: _Batch, spans: Sequence[Span], hidden_RE: Tensor, lora: LoraDelta | None) -> None:
        pieces, rows = _scored_pieces(batch.requests, spans)
        hidden_NE = hidden_RE.index_select(0, torch.tensor(rows, dtype=torch.long, device=hidden_RE.device))
        for start in range(0, len(rows), CHUNK_ROWS):
            logits_CV = batch.decoder.logits(hidden_NE[start : start + CHUNK_ROWS], lora)
            parts = list(_within(pieces, start, len(logits_CV)))
            temperatures = [batch.requests[row].scaling for row, _, count in parts for _ in range(count)]
            temperature_C1 = torch.tensor(temperatures, dtype=torch.float32, device=logits_CV.device)[:, None]
            logprobs = scaled_logprobs(logits_CV, temperature_C1).split([count for _, _, count in parts])
            for (row, position, _), logprobs_PV in zip(parts, logprobs, strict=True):
                batch.scores[row].take(batch.requests[row], position, logprobs_PV)

    # ---- failing

    def _fail(self, request: ScoreRequest, problem: str, is_user_error: bool) -> None:
        self._failed.append(Scores.failed(request, problem, is_user_error))

    def _problem(self, request: ScoreRequest) -> str:
        """Why the prompt is hopeless, naming field and value; empty if it is not."""
        vocab_size, num_tokens = self.decoder.config.vocab_size, len(request.tokens)
        if request.request_id in self._waiting or (self._batch and request.request_id in self._batch.request_ids):
            return f"request_id {request.request_id!r} is already running: give each request its own"
        if not 1 <= num_tokens <= self.max_context_tokens:
            return f"tokens has {num_tokens} tokens: it must be 1 to {self.max_context_tokens}"
        wrong = next((token for token in request.tokens if not 0 <= token < vocab_size), None)
        if wrong is not None:
            return f"tokens holds the id {wrong}: the vocabulary is 0..{vocab_size - 1}"
        if request.temperature != 0 and not MIN_TEMPERATURE <= request.temperature < np.inf:
            return f"temperature is {request.temperature}: it must be 0 (which stands for 1) or at least {MIN_TEMPERATURE}"
        if not 0 <= request.top_k <= vocab_size:
            return f"top_k is {request.top_k}: it must be 0 to {vocab_size}"
        if request.num_alternatives < 0 or not 0 <= request.seed <= MAX_SEED:
            return f"num_alternatives is {request.num_alternatives} and seed {request.seed}: neither may be negative"
        return request.targets_problem(vocab_size)


def _scored_pieces(requests: Sequence[ScoreRequest], spans: Sequence[Span]) -> tuple[list[tuple[int, int, int]], list[int]]:
    """Runs of rows that tell of a wanted token: (request, first position told of, count), and the rows of all, in order."""
    pieces: list[tuple[int, int, int]] = []
    rows: list[int] = []
    offset = 0
    for span in spans:
        request = requests[span.row]
        begin = max(span.start, request.first_position - 1)
        end = min(span.end, len(request.tokens) - 1)
        if begin < end:
            pieces.append((span.row, begin + 1, end - begin))
            rows += range(offset + begin - span.start, offset + end - span.start)
        offset += span.count
    return pieces, rows


def _within(pieces: Sequence[tuple[int, int, int]], start: int, count: int) -> Iterator[tuple[int, int, int]]:
    """The parts of the pieces that lie among rows [start, start + count) of all their rows."""
    offset = 0
    for row, position, length in pieces:
        begin, end = max(start, offset), min(start + count, offset + length)
        if begin < end:
            yield row, position + begin - offset, end - begin
        offset += length


def _checked(request: ScoreRequest, scores: Scores) -> Scores:
    if not np.isfinite(scores.logprobs_L[max(1, request.first_position) :]).all():
        problem = f"policy {request.policy} gives logits that are not finite: go back to an earlier one"
        return Scores.failed(request, problem, is_user_error=False)
    return scores
