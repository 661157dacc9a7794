"""From a request to an answer under way."""

import secrets
import time
from functools import cache

from plait.models.tokenizer import Tokenizer
from plait.server.openai.chats import ChatAnswer
from plait.server.openai.completions import CompletionAnswer
from plait.server.openai.generation import Generation
from plait.server.openai.models import ModelNames
from plait.server.openai.requests import COMPLETION_TOKENS, ChatRequest, CompletionRequest
from plait.server.openai.sample_calls import chat_prompt, completion_prompts, sample_calls
from plait.server.sample_call import EngineLimits
from plait.server.sampling import Sampling

Answer = ChatAnswer | CompletionAnswer


class OpenAIEndpoint:
    def __init__(self, tokenizer: Tokenizer, limits: EngineLimits, sampling: Sampling, models: ModelNames) -> None:
        self._tokenizer, self._limits, self._sampling, self.models = tokenizer, limits, sampling, models
        self._bytes_of = cache(self._token_bytes)

    def _token_bytes(self, token: int) -> bytes:
        return self._tokenizer.decode_bytes((token,))

    def _text_bytes(self, token: int) -> bytes:
        """What a token adds to an answer: special ones nothing."""
        return b"" if token in self._tokenizer.special_ids else self._bytes_of(token)

    async def chat(self, request: ChatRequest, tenant_id: str) -> ChatAnswer:
        """Accepted, and begun. Raises PlaitError if it cannot be served, TooMany if not now."""
        request_id = new_id("chatcmpl-")
        sampler = await self.models.resolve(request.model, tenant_id, request_id)
        prompt = chat_prompt(request, self._tokenizer)
        max_tokens = request.max_completion_tokens or request.max_tokens
        calls = sample_calls(request, [prompt], max_tokens, sampler, self._limits)
        generation = Generation(self._sampling, calls, self._text_bytes, request.top_logprobs or 0, bool(request.stream))
        head = {"id": request_id, "created": int(time.time()), "model": request.model}
        return ChatAnswer(request, generation, self._bytes_of, new_id, **head)

    async def complete(self, request: CompletionRequest, tenant_id: str) -> CompletionAnswer:
        """As `chat`."""
        request_id = new_id("cmpl-")
        sampler = await self.models.resolve(request.model, tenant_id, request_id)
        prompts = completion_prompts(request, self._tokenizer)
        max_tokens = COMPLETION_TOKENS if request.max_tokens is None else max(1, request.max_tokens)
        calls = sample_calls(request, prompts, max_tokens, sampler, self._limits)
        generation = Generation(self._sampling, calls, self._text_bytes, request.logprobs or 0, bool(request.stream))
        head = {"id": request_id, "created": int(time.time()), "model": request.model}
        return CompletionAnswer(request, generation, self._sampling, self._bytes_of, **head)


def new_id(prefix: str) -> str:
    return prefix + secrets.token_hex(12)
