"""Answers to completions: whole, or as parts of a stream."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from plait.server.openai.choice import BytesOf, Piece, TextToken
from plait.server.openai.generation import Generation, top_score, tops_of, whole
from plait.server.openai.logprobs import completion_logprobs
from plait.server.openai.requests import CompletionRequest
from plait.server.openai.responses import Completion, CompletionChoice, CompletionLogprobs
from plait.server.openai.text_stream import TextStream
from plait.server.sample_call import SampleCall
from plait.server.sampling import Sampling


class CompletionAnswer:
    def __init__(
        self, request: CompletionRequest, generation: Generation, sampling: Sampling, bytes_of: BytesOf, **head: Any
    ) -> None:
        """`head`: id, created and model of all that is sent."""
        self._request, self.generation, self._sampling, self._bytes_of, self._head = request, generation, sampling, bytes_of, head

    def _logprobs(self, tokens: Sequence[TextToken]) -> CompletionLogprobs | None:
        num_top = self._request.logprobs
        return None if num_top is None else completion_logprobs(tokens, self._bytes_of, with_top=num_top > 0)

    async def whole(self) -> Completion:
        echoes = await self._echoes()
        pieces = await whole(self.generation)
        choices = [self._choice(number, self._after(echoes[number], pieces[number])) for number in sorted(pieces)]
        return Completion(**self._head, choices=choices, usage=self.generation.usage(), object="text_completion")

    def _after(self, echo: Piece, piece: Piece) -> Piece:
        """The echo, and what was drawn after it."""
        moved = self._moved(echo, piece)
        return Piece(echo.text + moved.text, [*echo.tokens, *moved.tokens], moved.finish)

    def _moved(self, echo: Piece, piece: Piece) -> Piece:
        """What was drawn, counted from the start of the echo. Of `max_tokens` 0 one token is drawn all the same, and dropped."""
        if self._request.max_tokens == 0:
            return Piece("", (), "length" if piece.finish else None)
        return replace(piece, tokens=[replace(token, start=len(echo.text) + token.start) for token in piece.tokens])

    def _choice(self, number: int, piece: Piece) -> CompletionChoice:
        return CompletionChoice(
            index=number, text=piece.text, logprobs=self._logprobs(piece.tokens), finish_reason=piece.finish
        )  # fmt: skip

    async def parts(self) -> AsyncGenerator[Completion, None]:
        echoes = await self._echoes()
        for number, echo in echoes.items():
            if echo.text:
                yield self._part(number, echo)
        async with aclosing(self.generation.pieces()) as pieces:
            async for number, piece in pieces:
                moved = self._moved(echoes[number], piece)
                if moved.text or moved.tokens or moved.finish:
                    yield self._part(number, moved)
        if self._request.includes_usage:
            yield Completion(**self._head, choices=[], usage=self.generation.usage(), object="text_completion")

    def _part(self, number: int, piece: Piece) -> Completion:
        usage = {"usage": None} if self._request.includes_usage else {}
        return Completion(**self._head, choices=[self._choice(number, piece)], object="text_completion", **usage)

    # ---- the prompt in the answer

    async def _echoes(self) -> dict[int, Piece]:
        """By number of the choice; empty pieces, if none is asked for."""
        calls, num = self.generation.calls, self._request.num_choices
        echoes = [await self._echo(call) for call in calls]
        return {index * num + copy: echo for index, echo in enumerate(echoes) for copy in range(num)}

    async def _echo(self, call: SampleCall) -> Piece:
        if not self._request.echo:
            return Piece("")
        stream, starts, text = TextStream(), [], ""
        for token in call.prompt_tokens:
            starts.append(stream.num_chars)
            text += stream.feed(self._bytes_of(token))
        text += stream.finish()
        if self._request.logprobs is None:
            return Piece(text)
        return Piece(text, await self._scored(call, starts, self._request.logprobs))

    async def _scored(self, call: SampleCall, starts: Sequence[int], top_k: int) -> list[TextToken]:
        """Of the model itself: at temperature 1."""
        request = msgspec.structs.replace(top_score(call, "echo", call.prompt_tokens, 1, top_k), temperature=1.0)
        scored = await self._sampling.score(call, request)
        logprobs = [None, *np.frombuffer(scored.logprobs, "<f4")[1:].tolist()]
        tops = tops_of(scored.top_ids, scored.top_logprobs, top_k) if top_k else [()] * len(starts)
        return [TextToken(*fields) for fields in zip(call.prompt_tokens, starts, logprobs, tops, strict=True)]
