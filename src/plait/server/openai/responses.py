"""Answers as OpenAI's clients read them. What an object does not set is absent from its JSON."""

from typing import Literal

from plait.server.wire.models.base import Response

FinishReason = Literal["stop", "length", "tool_calls"]


class ModelObject(Response):
    id: str
    created: int
    owned_by: str
    object: Literal["model"]


class ModelList(Response):
    data: list[ModelObject]
    object: Literal["list"]


class PromptTokensDetails(Response):
    cached_tokens: int


class Usage(Response):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails


class CompletionLogprobs(Response):
    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None] | None
    text_offset: list[int]


class CompletionChoice(Response):
    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: FinishReason | None


class Completion(Response):
    """Whole, or a part of a stream."""

    id: str
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage | None = None
    object: Literal["text_completion"]


class TopLogprob(Response):
    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(TopLogprob):
    top_logprobs: list[TopLogprob]


class ChatLogprobs(Response):
    content: list[TokenLogprob]
    refusal: None


class CalledFunction(Response):
    name: str
    arguments: str


class ToolCall(Response):
    index: int | None = None
    """Of parts of a stream."""
    id: str
    type: Literal["function"]
    function: CalledFunction


class ChatMessage(Response):
    """Whole, or what a part of a stream adds."""

    role: Literal["assistant"] | None = None
    content: str | None = None
    tool_calls: list[ToolCall] | None = None
    refusal: None = None


class ChatChoice(Response):
    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason


class ChatCompletion(Response):
    id: str
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    object: Literal["chat.completion"]


class ChatPartChoice(Response):
    index: int
    delta: ChatMessage
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason | None


class ChatPart(Response):
    id: str
    created: int
    model: str
    choices: list[ChatPartChoice]
    usage: Usage | None = None
    object: Literal["chat.completion.chunk"]


class ErrorObject(Response):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(Response):
    error: ErrorObject
