"""The samples of one request under way, as pieces of text in the order in which they come.

- Whoever stops reading ends them: closing `pieces` cancels what still runs in the engine.
- A request of several prompts is let in as a whole or not at all.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from functools import partial

from plait.cluster.model_messages import ScorePrompt
from plait.server.errors import ServiceError
from plait.server.openai.choice import BytesOf, Choice, Piece, Top
from plait.server.openai.responses import PromptTokensDetails, Usage
from plait.server.sample_call import SampleCall, Sampled
from plait.server.sampling import Sampling, first_error
from plait.server.wire.samples import TopLogprobs
from plait.types.chunks import ChunkResult

STREAM_CHUNK_TOKENS = 8
"""Of a stream: a reader sees text come at this pace, and the engine is asked for a new chunk as often."""
NO_LOGPROB = -99999.0
"""Beside what is no token."""


class Stopping(ServiceError):
    status = 503


Event = tuple[int, ChunkResult] | asyncio.Task[Sampled]


class Generation:
    """`top_k` likeliest tokens are told of each one. Choices are numbered prompt by prompt."""

    def __init__(self, sampling: Sampling, calls: Sequence[SampleCall], bytes_of: BytesOf, top_k: int, is_stream: bool) -> None:
        """Raises TooMany."""
        self._sampling, self.calls, self._top_k = sampling, calls, top_k
        self._tokens: dict[int, list[int]] = {}
        self._choices: dict[int, Choice] = {}
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._num_cached = 0
        self._tasks: list[asyncio.Task[Sampled]] = []
        # A stream with top_k is not cut finer, as each piece has to be scored from the prompt on.
        max_chunk_tokens = STREAM_CHUNK_TOKENS if is_stream and not top_k else None
        try:
            for call in calls:
                self._start(call, bytes_of, max_chunk_tokens)
        except BaseException:
            self.cancel()
            raise

    def _start(self, call: SampleCall, bytes_of: BytesOf, max_chunk_tokens: int | None) -> None:
        first, sampling = len(self._choices), call.sampling
        task = self._sampling.start(call, partial(self._on_chunk, first), max_chunk_tokens)
        self._tasks.append(task)
        task.add_done_callback(self._on_done)
        for number in range(first, first + call.request.num_samples):
            self._choices[number] = Choice(bytes_of, frozenset(sampling.stop_token_ids), sampling.stop_strings)
            self._tokens[number] = []

    def _on_chunk(self, first: int, index: int, result: ChunkResult) -> None:
        self._events.put_nowait((first + index, result))

    def _on_done(self, task: "asyncio.Task[Sampled]") -> None:
        if not task.cancelled():
            task.exception()  # Seen, whether or not anybody reads on.
        self._events.put_nowait(task)

    async def pieces(self) -> AsyncGenerator[tuple[int, Piece], None]:
        """(number of the choice, what is added to it). Raises what a sample failed with."""
        try:
            num_open = len(self._tasks)
            while num_open:
                event = await self._events.get()
                if isinstance(event, asyncio.Task):
                    self._num_cached += _result(event).num_cached_tokens
                    num_open -= 1
                else:
                    yield event[0], await self._piece(*event)
        finally:
            self.cancel()

    async def _piece(self, number: int, result: ChunkResult) -> Piece:
        tops = await self._tops(number, result.tokens) if self._top_k else []
        self._tokens[number] += result.tokens
        return self._choices[number].take(result.tokens, result.logprobs, tops, result.stop)

    async def _tops(self, number: int, new_tokens: Sequence[int]) -> list[Top]:
        call = self.calls[number // self.calls[0].request.num_samples]
        before = (*call.prompt_tokens, *self._tokens[number])
        scores = top_score(call, f"choice{number}:{len(before)}", (*before, *new_tokens), len(before), self._top_k)
        scored = await self._sampling.score(call, scores)
        return tops_of(scored.top_ids, scored.top_logprobs, self._top_k)[len(before) :]

    def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()

    def usage(self) -> Usage:
        """Once all is read."""
        num_prompt = sum(len(call.prompt_tokens) for call in self.calls)
        num_completion = sum(map(len, self._tokens.values()))
        return Usage(
            prompt_tokens=num_prompt,
            completion_tokens=num_completion,
            total_tokens=num_prompt + num_completion,
            prompt_tokens_details=PromptTokensDetails(cached_tokens=min(self._num_cached, num_prompt)),
        )


def _result(task: "asyncio.Task[Sampled]") -> Sampled:
    if task.cancelled():
        raise Stopping("the server stops.", "Send it again to its successor.")
    if (error := task.exception()) is not None:
        raise first_error(error)
    return task.result()


def top_score(call: SampleCall, name: str, tokens: tuple[int, ...], first: int, top_k: int) -> ScorePrompt:
    """Scores at the temperature at which the call draws."""
    return ScorePrompt(
        f"{call.request_id}:{name}", call.sampler.policy, tokens, call.sampler.adapter, call.sampling.temperature, first, top_k
    )  # fmt: skip


def tops_of(ids: bytes, logprobs: bytes, k: int) -> list[Top]:
    """By position."""
    top = TopLogprobs.from_bytes(ids, logprobs, k)
    rows = zip(top.ids_NK.tolist(), top.logprobs_NK.tolist(), strict=True)
    return [[pair for pair in zip(*row, strict=True) if pair[1] > NO_LOGPROB] for row in rows]


async def whole(generation: Generation) -> dict[int, Piece]:
    """Each choice in one piece."""
    merged: dict[int, Piece] = {}
    async with aclosing(generation.pieces()) as pieces:
        async for number, piece in pieces:
            merged[number] = _join(merged.get(number, Piece("")), piece)
    return merged


def _join(first: Piece, second: Piece) -> Piece:
    return Piece(first.text + second.text, [*first.tokens, *second.tokens], second.finish)
