"""Samples for clients, through the engine that all tenants share.

- A request is refused at once (back-pressure, a quota, a prompt that does not fit) or ends in its result, whatever happens.
- The same (sampler, seq_id) is served once; another payload under it is refused.
- Equal prompts under one policy version are computed once by the engine, however many requests they come in.
- Cancelled or failed, a request is charged for what was drawn until then.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

from plait.cluster.model_messages import PromptScored, ScorePrompt
from plait.operations.future_state import FailureCategory
from plait.operations.quotas import Quotas
from plait.rollout.request import GenerationRequest
from plait.server.admission import Admission, Admitted
from plait.server.backend import Backend
from plait.server.call import PROTOBUF
from plait.server.certificates import Certifier, sampled_now
from plait.server.errors import NotFound
from plait.server.futures import Futures
from plait.server.sample_call import SampleCall, Sampled, encode_sampled
from plait.server.samplers import SamplerInfo
from plait.types.chunks import ChunkResult
from plait.types.errors import PlaitError
from plait.types.sampling import StopReason

log = logging.getLogger("plait.server")

OnSampled = Callable[[SampleCall, Sampled], None]
OnChunk = Callable[[int, ChunkResult], None]
"""Told of the number of the sample, and of what was drawn for it. Must not raise."""


class Sampling:
    def __init__(
        self,
        backend_of: Callable[[str], Backend],
        futures: Futures,
        quotas: Quotas,
        certifier: Certifier,
        max_waiting: int,
        on_sampled: OnSampled,
    ) -> None:
        """`backend_of` the name of a base model: where it runs."""
        self._backend_of, self._futures, self._certifier, self._on_sampled = backend_of, futures, certifier, on_sampled
        self._admission = Admission(quotas, max_waiting)
        self._tasks: dict[str, asyncio.Task[Any]] = {}

    @property
    def num_samples(self) -> int:
        """Accepted and not ended."""
        return self._admission.num_samples

    def submit(self, call: SampleCall) -> bool:
        """Accept the request, which ends in its future; False if it was before. Raises TooMany or PayloadConflict."""
        self._futures.check_payload(call.request_id, call.sampler.tenant_id, call.payload_digest)
        if call.request_id in self._tasks:
            return False
        admitted = self._enter(call)
        if not self._futures.add(call.request_id, call.sampler.tenant_id, call.payload_digest):
            self._admission.leave(admitted)
            return False
        self._run(call, admitted, self._serve(call, admitted))
        return True

    def start(
        self, call: SampleCall, on_chunk: OnChunk | None = None, max_chunk_tokens: int | None = None
    ) -> "asyncio.Task[Sampled]":
        """Accept the request without a future, for whoever waits on the line; cancelling the task cancels it. Raises TooMany."""
        admitted = self._enter(call)
        return self._run(call, admitted, self._sample(call, admitted, on_chunk, max_chunk_tokens))

    def _enter(self, call: SampleCall) -> Admitted:
        return self._admission.enter(call.sampler.tenant_id, call.request.num_samples, call.max_tokens)

    def _run(self, call: SampleCall, admitted: Admitted, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        task = self._tasks[call.request_id] = asyncio.create_task(work, name=call.request_id)
        task.add_done_callback(lambda _: self._ended(call, admitted))
        return task

    def _ended(self, call: SampleCall, admitted: Admitted) -> None:
        del self._tasks[call.request_id]
        self._admission.leave(admitted)

    async def _serve(self, call: SampleCall, admitted: Admitted) -> None:
        try:
            sampled = await self._sample(call, admitted)
            await self._certify(call, sampled)
            self._futures.finish(call.request_id, encode_sampled(call, sampled), PROTOBUF)
        except asyncio.CancelledError:
            self._futures.expire(call.request_id, "the request was cancelled")
        except Exception as error:
            self._failed(call, first_error(error))

    def _failed(self, call: SampleCall, error: BaseException) -> None:
        if not isinstance(error, PlaitError):
            log.error("sample %s failed", call.request_id, exc_info=error)
        message = str(error) if isinstance(error, PlaitError) else repr(error)
        self._futures.fail(call.request_id, message, FailureCategory.SERVER)

    async def _sample(
        self, call: SampleCall, admitted: Admitted, on_chunk: OnChunk | None = None, max_chunk_tokens: int | None = None
    ) -> Sampled:
        generations = call.generations()
        for index, generation in enumerate(generations):
            generation.on_chunk = partial(on_chunk, index) if on_chunk else None
            generation.max_chunk_tokens = max_chunk_tokens
        try:
            sampled = await self._generate(call, generations)
        except BaseException as error:
            self._charge_partial(call, admitted, generations)
            if isinstance(first_error(error), PlaitError):
                await _check_there(call.sampler)
            raise
        self._charge(call, admitted, sampled)
        return sampled

    async def _generate(self, call: SampleCall, generations: list[GenerationRequest]) -> Sampled:
        rollout = self._backend_of(call.sampler.base_model).rollout
        async with asyncio.TaskGroup() as group:
            prompt = group.create_task(self._score_if(call, call.prompt_score()))
            alternatives = group.create_task(self._score_if(call, call.alternatives_score()))
            tasks = [group.create_task(rollout.generate(generation)) for generation in generations]
        segments = [task.result() for task in tasks]
        tops = [await self._score_if(call, call.sample_score(index, segment.tokens)) for index, segment in enumerate(segments)]
        return Sampled(segments, generations[0].cached_tokens, prompt.result(), alternatives.result(), tops)

    async def _score_if(self, call: SampleCall, prompt: ScorePrompt | None) -> PromptScored | None:
        return None if prompt is None else await self.score(call, prompt)

    async def score(self, call: SampleCall, prompt: ScorePrompt) -> PromptScored:
        """On the base model of `call`. Raises PlaitError if it cannot be scored."""
        scored = await self._backend_of(call.sampler.base_model).score(prompt)
        if scored.error:
            raise PlaitError(scored.error)
        return scored

    def _charge_partial(self, call: SampleCall, admitted: Admitted, generations: list[GenerationRequest]) -> None:
        if any(generation.tokens for generation in generations):
            segments = [generation.segment(StopReason.CANCELLED) for generation in generations]
            self._charge(call, admitted, Sampled(segments, generations[0].cached_tokens))

    def _charge(self, call: SampleCall, admitted: Admitted, sampled: Sampled) -> None:
        admitted.used_tokens = len(call.prompt_tokens) + sum(len(segment.tokens) for segment in sampled.segments)
        self._on_sampled(call, sampled)

    async def _certify(self, call: SampleCall, sampled: Sampled) -> None:
        sampler = call.sampler
        sequences = {
            name: sampled_now(sampler.tenant_id, sampler.session_id, sampler.policy, len(call.prompt_tokens), segment.tokens)
            for name, segment in zip(call.sequence_ids, sampled.segments, strict=True)
        }
        await self._certifier.record(sequences)

    def cancel(self, request_id: str) -> None:
        """Nobody waits for it any more."""
        if (task := self._tasks.get(request_id)) is not None:
            task.cancel()

    async def close(self) -> None:
        """What is under way is lost; clients send it again."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _check_there(sampler: SamplerInfo) -> None:
    """Raises NotFound if a checkpoint was deleted that is sampled from without a sampler, which would hold it."""
    adapter, path = sampler.adapter, sampler.model_path
    if adapter is not None and path is not None and not await asyncio.to_thread(Path(adapter.path).is_dir):
        raise NotFound("model", path)


def first_error(error: BaseException) -> BaseException:
    """Of those that a TaskGroup gathered."""
    return first_error(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error
