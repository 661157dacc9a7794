"""From a request to an answer under way."""

import secrets
import time
from collections.abc import Callable
from typing import Protocol

from plait.models.tokenizer import Tokenizer
from plait.server.openai.chats import ChatAnswer
from plait.server.openai.completions import CompletionAnswer
from plait.server.openai.generation import Generation
from plait.server.openai.models import ModelNames
from plait.server.openai.requests import COMPLETION_TOKENS, ChatRequest, CompletionRequest
from plait.server.openai.sample_calls import chat_prompt, completion_prompts, sample_calls
from plait.server.openai.token_texts import TokenTexts
from plait.server.sample_call import EngineLimits
from plait.server.sampling import Sampling

Answer = ChatAnswer | CompletionAnswer


class TextModel(Protocol):
    """A base model as its readers need it."""

    @property
    def name(self) -> str: ...
    @property
    def tokenizer(self) -> Tokenizer: ...
    @property
    def limits(self) -> EngineLimits: ...


class OpenAIEndpoint:
    """`base_of` gives the base model that has a name."""

    def __init__(self, base_of: Callable[[str], TextModel], sampling: Sampling, models: ModelNames) -> None:
        self._base_of, self._sampling, self.models = base_of, sampling, models
        self._texts: dict[str, TokenTexts] = {}

    def _texts_of(self, base: TextModel) -> TokenTexts:
        if base.name not in self._texts:
            self._texts[base.name] = TokenTexts(base.tokenizer)
        return self._texts[base.name]

    async def chat(self, request: ChatRequest, tenant_id: str) -> ChatAnswer:
        """Accepted, and begun. Raises PlaitError if it cannot be served, TooMany if not now."""
        request_id = new_id("chatcmpl-")
        sampler = await self.models.resolve(request.model, tenant_id, request_id)
        base = self._base_of(sampler.base_model)
        texts, prompt = self._texts_of(base), chat_prompt(request, base.tokenizer)
        max_tokens = request.max_completion_tokens or request.max_tokens
        calls = sample_calls(request, [prompt], max_tokens, sampler, base.limits)
        generation = Generation(self._sampling, calls, texts.text_bytes, request.top_logprobs or 0, bool(request.stream))
        head = {"id": request_id, "created": int(time.time()), "model": request.model}
        return ChatAnswer(request, generation, texts.bytes_of, new_id, **head)

    async def complete(self, request: CompletionRequest, tenant_id: str) -> CompletionAnswer:
        """As `chat`."""
        request_id = new_id("cmpl-")
        sampler = await self.models.resolve(request.model, tenant_id, request_id)
        base = self._base_of(sampler.base_model)
        texts, prompts = self._texts_of(base), completion_prompts(request, base.tokenizer)
        max_tokens = COMPLETION_TOKENS if request.max_tokens is None else max(1, request.max_tokens)
        calls = sample_calls(request, prompts, max_tokens, sampler, base.limits)
        generation = Generation(self._sampling, calls, texts.text_bytes, request.logprobs or 0, bool(request.stream))
        head = {"id": request_id, "created": int(time.time()), "model": request.model}
        return CompletionAnswer(request, generation, self._sampling, texts.bytes_of, **head)


def new_id(prefix: str) -> str:
    return prefix + secrets.token_hex(12)
