"""Samplers and requests to sample. L is the number of the prompt's tokens."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from plait.server.wire.models.base import Identifier, Request, Response, SeqId
from plait.server.wire.models.target_tensor import TargetTensor

MAX_SAMPLES = 1024
MAX_ALTERNATIVES = 128
"""Of tokens at one position."""

TopK = Annotated[int, Field(ge=0, le=MAX_ALTERNATIVES)]
Stops = str | list[str] | list[int] | None


class CreateSamplingSessionRequest(Request):
    session_id: Identifier
    sampling_session_seq_id: SeqId
    base_model: Identifier | None = None
    model_path: Identifier | None = None
    """`tinker://` path of weights for the sampler; None: the base model."""

    @model_validator(mode="after")
    def _names_a_model(self) -> "CreateSamplingSessionRequest":
        if self.base_model is None and self.model_path is None:
            raise ValueError("give base_model or model_path")
        return self


class CreateSamplingSessionResponse(Response):
    sampling_session_id: str
    type: Literal["create_sampling_session"] = "create_sampling_session"


class JoinSamplingSessionRequest(Request):
    sampling_session_id: Identifier


class JoinSamplingSessionResponse(Response):
    client_counter: int
    """Unique among the session's clients; the first one is 0."""
    type: Literal["join_sampling_session"] = "join_sampling_session"


class SamplerResponse(Response):
    sampler_id: str
    base_model: str
    model_path: str | None = None


class PromptChunk(Request):
    type: Literal["encoded_text"] = "encoded_text"
    tokens: list[Annotated[int, Field(ge=0, lt=2**31)]]

    @model_validator(mode="before")
    @classmethod
    def _is_text(cls, data: Any) -> Any:
        if isinstance(data, dict) and (kind := data.get("type", "encoded_text")) != "encoded_text":
            raise ValueError(f"chunks of type {kind!r} are not served: the models here read text only")
        return data


class Prompt(Request):
    chunks: list[PromptChunk]

    @property
    def tokens(self) -> tuple[int, ...]:
        """The chunks end to end."""
        return tuple(token for chunk in self.chunks for token in chunk.tokens)

    @property
    def num_tokens(self) -> int:
        return sum(len(chunk.tokens) for chunk in self.chunks)


class SamplingParamsRequest(Request):
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    """None: as many as the context holds."""
    seed: Annotated[int, Field(ge=-(2**63), lt=2**64)] | None = None
    stop: Stops = None
    """None: the model's own end-of-sequence tokens. A list replaces them; an empty one leaves no stop at all."""
    temperature: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1.0
    top_k: Annotated[int, Field(ge=-1)] = -1
    """-1 and 0 are off."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0

    @property
    def stops_at_end(self) -> bool:
        """The model's end-of-sequence tokens stop it."""
        return self.stop is None

    @property
    def stop_strings(self) -> tuple[str, ...]:
        stops = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return tuple(stop for stop in stops if isinstance(stop, str))

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        return () if isinstance(self.stop, str) else tuple(stop for stop in self.stop or [] if isinstance(stop, int))

    @model_validator(mode="after")
    def _no_empty_stop(self) -> "SamplingParamsRequest":
        if "" in self.stop_strings:
            raise ValueError("stop has an empty string: it would stop everything")
        return self


class SampleRequest(Request):
    sampling_session_id: Identifier
    seq_id: SeqId
    prompt: Prompt
    sampling_params: SamplingParamsRequest
    num_samples: Annotated[int, Field(ge=1, le=MAX_SAMPLES)] = 1
    prompt_logprobs: bool | None = None
    prompt_logprobs_last_n: Annotated[int, Field(ge=1)] | None = None
    """Score only the last so many tokens; of topk_prompt_logprobs too."""
    topk_prompt_logprobs: TopK = 0
    topk_sample_logprobs: TopK = 0
    target_prompt_logprobs: TargetTensor | None = None
    """[L - 1, K]: cell [i, j] is an id to score at position i + 1; -1 is none."""
    prompt_alt_tokens_k: TopK = 0
    """So many draws at each position after the first."""
    record_stability_info: bool | None = None

    @property
    def first_scored(self) -> int:
        """Positions of the prompt before it are not scored."""
        return max(1, self.prompt.num_tokens - (self.prompt_logprobs_last_n or self.prompt.num_tokens))

    @property
    def scores_prompt(self) -> bool:
        """Asks for anything about the prompt's own tokens."""
        asked = (self.prompt_logprobs, self.topk_prompt_logprobs, self.prompt_alt_tokens_k)
        return any(asked) or self.target_prompt_logprobs is not None

    @model_validator(mode="after")
    def _fits_prompt(self) -> "SampleRequest":
        num_tokens = self.prompt.num_tokens
        if not num_tokens:
            raise ValueError("prompt holds no tokens")
        if (last_n := self.prompt_logprobs_last_n) is not None:
            if not self.prompt_logprobs:
                raise ValueError("prompt_logprobs_last_n needs prompt_logprobs")
            if last_n >= num_tokens:
                raise ValueError(f"prompt_logprobs_last_n must be 1 to {num_tokens - 1}, not {last_n}")
        if (targets := self.target_prompt_logprobs) is not None and targets.shape[0] != num_tokens - 1:
            raise ValueError(f"target_prompt_logprobs must have {num_tokens - 1} rows (L - 1), not {targets.shape[0]}")
        return self
