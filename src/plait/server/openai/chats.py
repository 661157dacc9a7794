"""Answers to chats: whole, or as parts of a stream."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any

from plait.server.openai.choice import BytesOf, Piece
from plait.server.openai.generation import Generation, whole
from plait.server.openai.logprobs import chat_logprobs
from plait.server.openai.requests import ChatRequest
from plait.server.openai.responses import (
    CalledFunction,
    ChatChoice,
    ChatCompletion,
    ChatLogprobs,
    ChatMessage,
    ChatPart,
    ChatPartChoice,
    ToolCall,
)
from plait.server.openai.tool_calls import CalledTool, Part, ToolCallStream

NewId = Callable[[str], str]
"""A fresh id that begins with what is given."""


class ChatAnswer:
    def __init__(self, request: ChatRequest, generation: Generation, bytes_of: BytesOf, new_id: NewId, **head: Any) -> None:
        """`head`: id, created and model of all that is sent."""
        self._request, self.generation, self._bytes_of, self._new_id, self._head = request, generation, bytes_of, new_id, head

    def _logprobs(self, piece: Piece) -> ChatLogprobs | None:
        return chat_logprobs(piece.tokens, self._bytes_of) if self._request.logprobs else None

    def _call(self, call: CalledTool, **more: Any) -> ToolCall:
        function = CalledFunction(name=call.name, arguments=call.arguments)
        return ToolCall(id=self._new_id("call_"), type="function", function=function, **more)

    # ---- whole

    async def whole(self) -> ChatCompletion:
        pieces = await whole(self.generation)
        choices = [self._choice(number, pieces[number]) for number in sorted(pieces)]
        return ChatCompletion(**self._head, choices=choices, usage=self.generation.usage(), object="chat.completion")

    def _choice(self, number: int, piece: Piece) -> ChatChoice:
        parts: list[Part] = [piece.text]
        if self._request.shown_tools:
            stream = ToolCallStream()
            parts = [*stream.feed(piece.text), *stream.finish()]
        calls = [self._call(part) for part in parts if isinstance(part, CalledTool)]
        text = "".join(part for part in parts if isinstance(part, str))
        if calls:
            message = ChatMessage(role="assistant", content=text.rstrip() or None, refusal=None, tool_calls=calls)
        else:
            message = ChatMessage(role="assistant", content=text, refusal=None)
        finish = "tool_calls" if calls and piece.finish == "stop" else piece.finish
        assert finish is not None
        return ChatChoice(index=number, message=message, logprobs=self._logprobs(piece), finish_reason=finish)

    # ---- stream

    async def parts(self) -> AsyncGenerator[ChatPart, None]:
        tools = {number: ToolCallStream() for number in range(self._request.num_choices)} if self._request.shown_tools else {}
        for number in range(self._request.num_choices):
            yield self._part(number, ChatMessage(role="assistant", content=""))
        async with aclosing(self.generation.pieces()) as pieces:
            async for number, piece in pieces:
                for part in self._parts_of(number, piece, tools.get(number)):
                    yield part
        if self._request.includes_usage:
            yield ChatPart(**self._head, choices=[], usage=self.generation.usage(), object="chat.completion.chunk")

    def _parts_of(self, number: int, piece: Piece, tools: ToolCallStream | None) -> list[ChatPart]:
        """The log-probabilities go with the first of them."""
        deltas = self._deltas(piece, tools)
        if piece.tokens and self._request.logprobs and not deltas:
            deltas = [ChatMessage(content="")]
        parts = [self._part(number, delta, self._logprobs(piece) if index == 0 else None) for index, delta in enumerate(deltas)]
        if piece.finish is not None:
            has_calls = tools is not None and tools.num_calls > 0 and piece.finish == "stop"
            parts.append(self._part(number, ChatMessage(), finish="tool_calls" if has_calls else piece.finish))
        return parts

    def _deltas(self, piece: Piece, tools: ToolCallStream | None) -> Sequence[ChatMessage]:
        if tools is None:
            return [ChatMessage(content=piece.text)] if piece.text else []
        first = tools.num_calls
        parts = tools.feed(piece.text) + (tools.finish() if piece.finish is not None else [])
        numbers = iter(range(first, tools.num_calls))
        return [
            ChatMessage(content=part) if isinstance(part, str) else ChatMessage(tool_calls=[self._call(part, index=next(numbers))])
            for part in parts
        ]

    def _part(self, number: int, delta: ChatMessage, logprobs: ChatLogprobs | None = None, finish: Any = None) -> ChatPart:
        choice = ChatPartChoice(index=number, delta=delta, logprobs=logprobs, finish_reason=finish)
        usage = {"usage": None} if self._request.includes_usage else {}
        return ChatPart(**self._head, choices=[choice], object="chat.completion.chunk", **usage)
