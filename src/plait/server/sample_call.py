"""One request to sample, checked and in the engine's terms; and its result in the client's."""

import hashlib
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from plait.cluster.model_messages import PromptScored, ScorePrompt
from plait.rollout.request import GenerationRequest
from plait.server.errors import ServiceError
from plait.server.names import sample_request_id
from plait.server.samplers import SamplerInfo
from plait.server.wire.models.sampling import SampleRequest
from plait.server.wire.samples import PromptResult, SequenceResult, TargetScores, TopLogprobs, encode_sample_response
from plait.types.sampling import SamplingParams, StopReason
from plait.types.seeds import derive_seed
from plait.types.trajectory import Segment


@dataclass(frozen=True, slots=True)
class EngineLimits:
    vocab_size: int
    max_context_tokens: int
    stop_token_ids: tuple[int, ...]
    """The model's own ends of a sequence."""


@dataclass(frozen=True, slots=True)
class SampleCall:
    request: SampleRequest
    sampler: SamplerInfo
    prompt_tokens: tuple[int, ...]
    sampling: SamplingParams
    """Of the first sample; the others differ in their seed."""
    payload_digest: str = ""

    @classmethod
    def check(cls, request: SampleRequest, sampler: SamplerInfo, limits: EngineLimits, payload_digest: str = "") -> "SampleCall":
        """Raises ServiceError if the prompt does not fit the model."""
        tokens = request.prompt.tokens
        if wrong := [token for token in tokens if token >= limits.vocab_size]:
            raise ServiceError(f"prompt holds token {wrong[0]}; the model has ids 0 to {limits.vocab_size - 1}.", "Tokenise anew.")
        room = limits.max_context_tokens - len(tokens)
        if room < 1:
            raise ServiceError(
                f"prompt has {len(tokens)} tokens; the model's context has {limits.max_context_tokens}.", "Shorten the prompt."
            )
        return cls(request, sampler, tokens, _sampling(request, limits, room), payload_digest)

    @property
    def request_id(self) -> str:
        return sample_request_id(self.sampler.sampler_id, self.request.seq_id)

    @property
    def sequence_ids(self) -> list[str]:
        return [f"{self.request_id}:{index}" for index in range(self.request.num_samples)]

    @property
    def max_tokens(self) -> int:
        """Most tokens that it can cost."""
        return len(self.prompt_tokens) + self.request.num_samples * self.sampling.max_new_tokens

    def generations(self) -> list[GenerationRequest]:
        policy, adapter, group = self.sampler.policy, self.sampler.adapter, self._group()
        return [
            GenerationRequest(name, policy.task, policy, adapter, self.prompt_tokens, self._sampling(index), group=group)
            for index, name in enumerate(self.sequence_ids)
        ]

    def _group(self) -> str:
        """One for equal prompts under one policy version, however many requests they come in."""
        digest = hashlib.blake2b(array("q", self.prompt_tokens).tobytes(), digest_size=16).hexdigest()
        return f"{self.sampler.policy}#{digest}"

    def _sampling(self, index: int) -> SamplingParams:
        params = self.sampling
        given = self.request.sampling_params.seed
        seed = derive_seed("sample", self.request_id, index) if given is None else derive_seed("seed", given, index)
        return SamplingParams(
            params.max_new_tokens, params.temperature, params.top_p, params.top_k, params.stop_token_ids, params.stop_strings, seed
        )

    # ---- what is asked about tokens that are given

    def prompt_score(self) -> ScorePrompt | None:
        request = self.request
        if not request.scores_prompt:
            return None
        targets = request.target_prompt_logprobs
        return self._score(
            "prompt", self.prompt_tokens, request.first_scored, temperature=1.0, top_k=request.topk_prompt_logprobs,
            num_targets=targets.shape[1] if targets is not None else 0,
            targets=targets.ids.astype("<i4").tobytes() if targets is not None else b"",
        )  # fmt: skip

    def alternatives_score(self) -> ScorePrompt | None:
        """Draws at the request's temperature, where the prompt's own scores are at 1."""
        num = self.request.prompt_alt_tokens_k
        seed = derive_seed("alternatives", self.request_id)
        return self._score("alternatives", self.prompt_tokens, 1, num_alternatives=num, seed=seed) if num else None

    def sample_score(self, index: int, tokens: Sequence[int]) -> ScorePrompt | None:
        """The most likely tokens where sample `index` drew its own."""
        top_k = self.request.topk_sample_logprobs
        whole = (*self.prompt_tokens, *tokens)
        return self._score(f"sample{index}", whole, len(self.prompt_tokens), top_k=top_k) if top_k else None

    def _score(self, name: str, tokens: tuple[int, ...], first: int, temperature: float | None = None, **more: Any) -> ScorePrompt:
        drawn_at = self.sampling.temperature or 1.0
        return ScorePrompt(
            f"{self.request_id}:{name}", self.sampler.policy, tokens, self.sampler.adapter, temperature or drawn_at, first, **more
        )


def _sampling(request: SampleRequest, limits: EngineLimits, room: int) -> SamplingParams:
    params = request.sampling_params
    return SamplingParams(
        max_new_tokens=min(params.max_tokens or room, room),
        temperature=params.temperature,
        top_p=params.top_p,
        top_k=max(0, params.top_k),
        stop_token_ids=limits.stop_token_ids if params.stops_at_end else params.stop_token_ids,
        stop_strings=params.stop_strings,
    )


@dataclass(frozen=True, slots=True)
class Sampled:
    """What came of a SampleCall."""

    segments: Sequence[Segment]
    num_cached_tokens: int
    prompt: PromptScored | None = None
    alternatives: PromptScored | None = None
    tops: Sequence[PromptScored | None] = ()
    """Of each sample."""


def encode_sampled(call: SampleCall, sampled: Sampled) -> bytes:
    """The SampleResponse."""
    top_k, num_prompt = call.request.topk_sample_logprobs, len(call.prompt_tokens)
    sequences = [
        SequenceResult(segment.tokens, segment.logprobs, StopReason(segment.stop), _top_of_sample(top, num_prompt, top_k))
        for segment, top in zip(sampled.segments, sampled.tops or [None] * len(sampled.segments), strict=True)
    ]
    return encode_sample_response(sequences, _prompt_result(call, sampled))


def _top_of_sample(scored: PromptScored | None, num_prompt: int, k: int) -> TopLogprobs | None:
    if scored is None:
        return None
    whole = TopLogprobs.from_bytes(scored.top_ids, scored.top_logprobs, k)
    return TopLogprobs(whole.ids_NK[num_prompt:], whole.logprobs_NK[num_prompt:])


def _prompt_result(call: SampleCall, sampled: Sampled) -> PromptResult:
    request, scored, drawn = call.request, sampled.prompt, sampled.alternatives
    top_k, num_drawn = request.topk_prompt_logprobs, request.prompt_alt_tokens_k
    return PromptResult(
        num_tokens=len(call.prompt_tokens),
        num_cached_tokens=sampled.num_cached_tokens,
        logprobs_L=np.frombuffer(scored.logprobs, "<f4") if scored is not None and request.prompt_logprobs else None,
        top=TopLogprobs.from_bytes(scored.top_ids, scored.top_logprobs, top_k) if scored is not None and top_k else None,
        targets=_targets(request, scored),
        alternatives=TopLogprobs.from_bytes(drawn.alternative_ids, drawn.alternative_logprobs, num_drawn) if drawn else None,
    )


def _targets(request: SampleRequest, scored: PromptScored | None) -> TargetScores | None:
    asked = request.target_prompt_logprobs
    if asked is None or scored is None:
        return None
    logprobs = np.frombuffer(scored.target_logprobs, "<f4").reshape(asked.shape)
    return TargetScores(logprobs, asked.sparse_crow_indices, asked.sparse_col_indices)
