"""From OpenAI's requests to calls of the sampler."""

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from plait.models.tokenizer import Tokenizer
from plait.server.errors import ServiceError
from plait.server.openai.requests import ChatRequest, CompletionRequest, SamplingRequest
from plait.server.sample_call import EngineLimits, SampleCall
from plait.server.samplers import SamplerInfo
from plait.server.wire.models.sampling import Prompt, PromptChunk, SampleRequest, SamplingParamsRequest


def chat_prompt(request: ChatRequest, tokenizer: Tokenizer) -> tuple[int, ...]:
    """Tokens of the chat up to where the answer begins. Raises PlaitError if the template does not take it."""
    tools = request.shown_tools
    if tools and not tokenizer.chat_template.takes_tools:
        raise ServiceError("tools cannot be shown to this model: its chat template does not know them.", "Describe them in text.")
    text = tokenizer.chat_template.render([message.message() for message in request.messages], generation_prompt=True, tools=tools)
    return _encode(text, tokenizer)


def completion_prompts(request: CompletionRequest, tokenizer: Tokenizer) -> list[tuple[int, ...]]:
    return [_encode(prompt, tokenizer) if isinstance(prompt, str) else tuple(prompt) for prompt in request.prompts]


def _encode(text: str, tokenizer: Tokenizer) -> tuple[int, ...]:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ServiceError("the request holds text that is no Unicode.", "Send no half of a surrogate pair.") from error
    return tokenizer.encode(text)


def sample_calls(
    request: SamplingRequest, prompts: Sequence[Sequence[int]], max_tokens: int | None, sampler: SamplerInfo, limits: EngineLimits
) -> list[SampleCall]:
    """One for each prompt. Raises ServiceError if one does not fit the model."""
    return [_sample_call(request, prompt, max_tokens, sampler, limits, number) for number, prompt in enumerate(prompts)]


def _sample_call(
    request: SamplingRequest, prompt: Sequence[int], max_tokens: int | None, sampler: SamplerInfo, limits: EngineLimits, number: int
) -> SampleCall:
    if not prompt:
        raise ServiceError("prompt holds no tokens.", "Give at least one.")
    params = SamplingParamsRequest(
        max_tokens=max_tokens,
        seed=request.seed,
        temperature=1.0 if request.temperature is None else request.temperature,
        top_p=request.top_p or 1.0,
        top_k=request.top_k or 0,
    )
    sample = SampleRequest(
        sampling_session_id=sampler.sampler_id,
        seq_id=number,
        prompt=Prompt(chunks=[PromptChunk(tokens=list(prompt))]),
        sampling_params=params,
        num_samples=request.num_choices,
    )
    call = SampleCall.check(sample, sampler, limits)
    return replace(call, sampling=msgspec.structs.replace(call.sampling, stop_strings=request.stops))
