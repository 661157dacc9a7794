"""The rollout half of a worker: an engine and a scorer of prompts, fed by messages. They share adapters and take turns."""

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

import numpy as np

from plait.cluster.messages import (
    CancelRequests,
    Configure,
    EndStretches,
    EngineStats,
    FromWorker,
    ReleaseCaches,
    ShareTokens,
    SubmitChunks,
    TokensDrawn,
)
from plait.cluster.model_messages import PromptScored, ScorePrompt
from plait.cluster.role_engine import RoleEngine
from plait.cluster.trained_weights import read_model
from plait.engine.adapters import AdapterStore, Weights
from plait.engine.score import ScoreRequest, Scores
from plait.engine.scorer import BATCH_TOKENS, Scorer
from plait.kv.block_log import BlockNews
from plait.lora.mix import FusedAdapter
from plait.lora.peft_config import parse_peft_config
from plait.lora.peft_format import from_peft_tensors
from plait.models.decoder import Decoder
from plait.models.tokenizer import Tokenizer
from plait.observe import engine_counters as counters
from plait.state.records import ADAPTER_CONFIG_FILE, ADAPTER_FILE, holds_model
from plait.state.tensor_file import read_tensors
from plait.types.chunks import ChunkResult
from plait.types.policy import AdapterRef

KEPT_VERSIONS_PER_TASK = 2
"""Idle adapter versions kept in memory, for each task: the newest, and the one an evaluation may still ask for."""

RolloutMessage = SubmitChunks | CancelRequests | ReleaseCaches | EndStretches | ScorePrompt | ShareTokens

SCORED_TOKENS = 256
"""Most tokens of prompts scored between two decode steps; while nothing is decoded, a whole batch at once."""


class RolloutHalf(Protocol):
    """What a worker's loop asks of its rollout half, whichever engine is behind it."""

    def handle(self, message: RolloutMessage) -> list[FromWorker]: ...

    @property
    def has_chunks(self) -> bool: ...
    @property
    def has_prompts(self) -> bool: ...
    @property
    def has_work(self) -> bool: ...

    def work(self) -> tuple[list[ChunkResult], int, int]:
        """One engine step: results, tokens decoded, rows decoded."""
        ...

    def drawn(self) -> list[FromWorker]: ...

    def news(self) -> tuple[BlockNews, ...]:
        """Which blocks of cache have come and gone since it was asked last."""
        ...

    def stats(self, now_s: float) -> EngineStats: ...

    def score(self) -> list[PromptScored]: ...


class RolloutRole:
    def __init__(self, settings: Configure, decoder: Decoder, base_digest: str, batch_invariant: bool) -> None:
        tokenizer = Tokenizer.load(Path(settings.model_path))
        adapters = AdapterStore(
            lambda ref: load_policy(ref, decoder), KEPT_VERSIONS_PER_TASK * settings.num_tasks,
            is_model=lambda ref: holds_model(Path(ref.path)), max_models=settings.full_policies,
        )  # fmt: skip
        self.scorer = Scorer(decoder, adapters, settings.max_context_tokens)
        self._scoring_s = 0.0
        self._num_hit_tokens = 0
        """Context tokens of chunks that ended which came from any cache."""
        self.counters: list[Callable[[], Mapping[str, float]]] = []
        """Asked for more counts whenever the engine reports."""
        made = RoleEngine(settings, decoder, adapters, base_digest, batch_invariant, tokenizer.decode)
        self.engine, self._drafter, self._tells_drawn = made.engine, made.drafter, settings.has_siblings
        self.counters.append(made.counters)
        self._block_logs = self.engine.kv.tell() if settings.tells_blocks else []

    def handle(self, message: RolloutMessage) -> list[FromWorker]:
        match message:
            case SubmitChunks(chunks):
                for chunk in chunks:
                    self.engine.submit(chunk)
            case CancelRequests(request_ids):
                for request_id in request_ids:
                    self.engine.cancel(request_id)
                    self.scorer.cancel(request_id)
            case ReleaseCaches(handles, went_on):
                for handle in handles:
                    self.engine.release(handle, went_on)
            case EndStretches():
                self.engine.end_stretches()
            case ShareTokens(increments, ended_groups) if self._drafter is not None:
                self._drafter.take_in(increments)
                for group in ended_groups:
                    self._drafter.end_group(group)
            case ScorePrompt():
                return self._submit_prompt(message)
        return []

    def _submit_prompt(self, message: ScorePrompt) -> list[FromWorker]:
        try:
            self.scorer.submit(score_request(message))
        except ValueError as error:
            return [PromptScored(message.request_id, error=f"targets cannot be read: {error}", is_user_error=True)]
        return []

    @property
    def has_chunks(self) -> bool:
        return not self.engine.is_idle

    @property
    def has_prompts(self) -> bool:
        return not self.scorer.is_idle

    @property
    def has_work(self) -> bool:
        return self.has_chunks or self.has_prompts

    def work(self) -> tuple[list[ChunkResult], int, int]:
        """One engine step: results, tokens decoded, rows decoded."""
        before = self.engine.num_decoded_tokens
        results = self.engine.step()
        self._num_hit_tokens += sum(result.cached_tokens for result in results)
        return results, self.engine.num_decoded_tokens - before, self.engine.num_decoded_rows

    def close(self) -> None:
        if self.engine.kv.lower is not None:
            self.engine.kv.lower.close()

    def drawn(self) -> list[FromWorker]:
        """What siblings elsewhere may learn from; nothing while there is little."""
        updates = self._drafter.updates() if self._drafter is not None else []
        return [TokensDrawn(tuple(updates))] if updates and self._tells_drawn else []

    def news(self) -> tuple[BlockNews, ...]:
        return tuple(one for log in self._block_logs if (one := log.take()) is not None)

    def stats(self, now_s: float) -> EngineStats:
        counts: dict[str, float] = {
            counters.COMPUTED_TOKENS: self.engine.num_prefilled_tokens,
            counters.DECODED_TOKENS: self.engine.num_decoded_tokens,
        }
        for more in self.counters:
            counts |= more()
        lower = sum(counts.get(name, 0.0) for tier, name in counters.HIT_TOKENS.items() if tier != "device")
        counts[counters.HIT_TOKENS["device"]] = max(0.0, self._num_hit_tokens - lower)
        return EngineStats(now_s, len(self.engine.rows), len(self.engine.waiting), counts, self.news())

    def score(self) -> list[PromptScored]:
        """One forward pass over prompts: those that are complete. The time of a pass is shared out by tokens."""
        start_s = time.perf_counter()
        done = self.scorer.step(SCORED_TOKENS if self.has_chunks else BATCH_TOKENS)
        self._scoring_s += time.perf_counter() - start_s
        if not done:
            return []
        scoring_s, self._scoring_s = self._scoring_s, 0.0
        num_tokens = sum(len(scores.logprobs_L) for scores in done)
        return [prompt_scored(scores, scoring_s * len(scores.logprobs_L) / max(num_tokens, 1)) for scores in done]


def score_request(message: ScorePrompt) -> ScoreRequest:
    """Raises ValueError if `targets` has not as many bytes as `num_targets` calls for."""
    targets = np.frombuffer(message.targets, "<i4")
    num_rows = max(0, len(message.tokens) - 1) if message.num_targets else 0
    return ScoreRequest(
        message.request_id, message.tokens, message.policy, message.adapter, message.temperature, message.first_position,
        message.top_k, message.num_alternatives, message.seed, targets.reshape(num_rows, message.num_targets),
    )  # fmt: skip


def prompt_scored(scores: Scores, device_s: float) -> PromptScored:
    if scores.error:
        return PromptScored(scores.request_id, error=scores.error, is_user_error=scores.is_user_error)
    return PromptScored(
        scores.request_id,
        logprobs=scores.logprobs_L.astype("<f4").tobytes(),
        top_ids=scores.top_ids_LK.astype("<i4").tobytes(),
        top_logprobs=scores.top_logprobs_LK.astype("<f4").tobytes(),
        target_logprobs=scores.target_logprobs_TK.astype("<f4").tobytes(),
        alternative_ids=scores.alternative_ids_LN.astype("<i4").tobytes(),
        alternative_logprobs=scores.alternative_logprobs_LN.astype("<f4").tobytes(),
        device_s=device_s,
    )


def load_policy(ref: AdapterRef, base: Decoder) -> Weights:
    """What lies at a version's path: an adapter for the base, or a model of its own."""
    return load_model(ref, base) if holds_model(Path(ref.path)) else load_adapter(ref, base)


def load_model(ref: AdapterRef, base: Decoder) -> Decoder:
    """A version's whole model, in the base's dtype. No weight is kept in a second dtype: that is for the one base."""
    weights = read_model(Path(ref.path), ref.digest, base.config, base.dtype, base.device)
    return Decoder(base.config, weights, prepack=True, float32_bytes=0)


def load_adapter(ref: AdapterRef, decoder: Decoder) -> FusedAdapter:
    """Read a version's PEFT folder, check its digest, and lay it out for the decoder."""
    folder = Path(ref.path)
    stored = read_tensors(folder / ADAPTER_FILE, ref.digest, "torch")
    lora = parse_peft_config(json.loads((folder / ADAPTER_CONFIG_FILE).read_text()))
    tensors = from_peft_tensors(stored, decoder.config, lora)
    return FusedAdapter(lora, {name: t.to(decoder.device) for name, t in tensors.items()}, decoder.config, decoder.dtype)
