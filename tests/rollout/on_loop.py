"""Requests, and loops on which nothing may be left pending."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

from plait.rollout.request import GenerationRequest
from plait.rollout.service import RolloutService
from plait.types.policy import AdapterRef, PolicyVersion
from plait.types.sampling import SamplingParams
from plait.types.trajectory import Segment
from tests.rollout.fake_engine import STOP_TOKEN, FakeEngine, whole_generation

POLICY = PolicyVersion("local", "sums", 3)
ENGINE, CACHE_TOKENS = "rollout", 10_000


def request(number: int, queue: str = "sums", max_new_tokens: int = 20, **fields: Any) -> GenerationRequest:
    sampling = SamplingParams(max_new_tokens, stop_token_ids=(STOP_TOKEN,), seed=number)
    return GenerationRequest(f"r{number}", queue, POLICY, AdapterRef(POLICY, "folder", "digest"), (1, 2, 3), sampling, **fields)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def on_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run an asynchronous test; what it leaves pending fails it."""

    def run(*arguments: Any, **named: Any) -> None:
        async def checked() -> None:
            await test(*arguments, **named)
            await settle()
            pending = asyncio.all_tasks() - {asyncio.current_task()}
            assert not pending, "a generation is left pending"

        asyncio.run(checked())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


def expected(request: GenerationRequest) -> Segment:
    tokens, logprobs, stop = whole_generation(request.context_tokens, request.sampling)
    return Segment(tokens, logprobs, POLICY, stop)


def start(service: RolloutService, requests: list[GenerationRequest]) -> list["asyncio.Task[Segment]"]:
    return [asyncio.create_task(service.generate(r)) for r in requests]


async def serve(service: RolloutService, engine: FakeEngine, random: Random) -> None:
    """Run chunks in any order until none is left."""
    await settle()
    while engine.chunks:
        ids = random.sample(sorted(engine.chunks), random.randint(1, len(engine.chunks)))
        service.on_results([engine.run(chunk_id) for chunk_id in ids])
        await settle()
