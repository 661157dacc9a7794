"""Requests as OpenAI's clients send them. A field that is null is as if it were absent."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, Json, model_validator

from plait.server.openai.fields import only_served
from plait.server.wire.models.base import Identifier
from plait.types.messages import Message, ToolCall

MAX_CHOICES = 128
MAX_PROMPTS = 1024
MAX_STOPS = 16
MAX_TOP_LOGPROBS = 20
COMPLETION_TOKENS = 16
"""OpenAI's default `max_tokens` of completions; a chat may use the rest of the context."""

TokenId = Annotated[int, Field(ge=0, lt=2**31)]
StopText = Annotated[str, Field(min_length=1, max_length=1024)]


class _Request(BaseModel):
    model_config = ConfigDict(frozen=True, protected_namespaces=(), use_attribute_docstrings=True)


class StreamOptions(_Request):
    include_usage: bool | None = None


class SamplingRequest(_Request):
    model: Identifier
    """A base model or alias, a `tinker://` path, or the id of a sampler."""
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    stop: StopText | Annotated[list[StopText], Field(max_length=MAX_STOPS)] | None = None
    """Ends the text before it. The model's own end tokens stop it in any case."""
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    """The same request with the same seed gives the same answer."""
    temperature: Annotated[float, Field(ge=0, le=100)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1, lt=2**31)] | None = None
    """Not OpenAI's; as in vLLM."""
    stream: bool | None = None
    stream_options: StreamOptions | None = None

    @model_validator(mode="before")
    @classmethod
    def _only_served(cls, data: Any) -> Any:
        return only_served(data, frozenset(cls.model_fields))

    @property
    def num_choices(self) -> int:
        return self.n or 1

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def includes_usage(self) -> bool:
        """A stream ends with the number of tokens."""
        return bool(self.stream_options and self.stream_options.include_usage)


class CompletionRequest(SamplingRequest):
    prompt: str | list[str] | list[TokenId] | list[list[TokenId]]
    max_tokens: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    """0 is for `echo`."""
    echo: bool | None = None
    """The prompt comes first in the answer; with its log-probabilities, if `logprobs` is given."""
    logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    """Log-probabilities of the tokens and of so many of the likeliest ones."""

    @property
    def prompts(self) -> list[str | list[int]]:
        """One or more."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        if self.prompt and isinstance(self.prompt[0], int):
            return [self.prompt]
        return list(self.prompt)  # type: ignore[arg-type]

    @model_validator(mode="after")
    def _is_possible(self) -> "CompletionRequest":
        if not 1 <= len(self.prompts) <= MAX_PROMPTS:
            raise ValueError(f"prompt must hold 1 to {MAX_PROMPTS} prompts")
        if self.max_tokens == 0 and not self.echo:
            raise ValueError("max_tokens = 0 needs echo")
        return self


class TextPart(_Request):
    type: Literal["text"]
    """The models here read text only."""
    text: str


class FunctionCall(_Request):
    name: Annotated[str, Field(min_length=1, max_length=256)]
    arguments: Annotated[Json[dict[str, Any]], BeforeValidator(lambda text: text or "{}")]


class CalledFunction(_Request):
    id: str = ""
    type: Literal["function"] = "function"
    function: FunctionCall


class ChatMessage(_Request):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TextPart] | None = None
    name: str | None = None
    tool_calls: list[CalledFunction] | None = None
    tool_call_id: str | None = None

    @property
    def text(self) -> str:
        content = self.content or ""
        return content if isinstance(content, str) else "".join(part.text for part in content)

    def message(self) -> Message:
        """As chat templates read it: they know "system", not "developer"."""
        calls = tuple(ToolCall(call.function.name, call.function.arguments, call.id) for call in self.tool_calls or ())
        role = "system" if self.role == "developer" else self.role
        return Message(role, self.text, calls, self.tool_call_id or "", self.name or "")

    @model_validator(mode="after")
    def _has_content(self) -> "ChatMessage":
        if self.content is None and not self.tool_calls:
            raise ValueError("content is missing")
        if self.tool_calls and self.role != "assistant":
            raise ValueError(f"tool_calls are the assistant's, not of role {self.role!r}")
        return self


class FunctionSchema(_Request):
    model_config = ConfigDict(extra="allow")
    name: Annotated[str, Field(min_length=1, max_length=256)]


class ToolSchema(_Request):
    type: Literal["function"]
    function: FunctionSchema


class ChatRequest(SamplingRequest):
    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    max_tokens: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    tools: list[ToolSchema] | None = None
    """Shown to the model by its chat template."""
    tool_choice: Literal["auto", "none"] | None = None
    """That a call is made cannot be forced."""

    @property
    def shown_tools(self) -> list[dict[str, Any]]:
        return [tool.model_dump() for tool in self.tools or ()] if self.tool_choice != "none" else []

    @model_validator(mode="after")
    def _has_logprobs(self) -> "ChatRequest":
        if self.top_logprobs and not self.logprobs:
            raise ValueError("top_logprobs needs logprobs = true")
        return self
