"""Clients that go away, engines that fail, and what is charged: over an engine that draws when it is told to."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from plait.models.tiny import make_tiny_model
from plait.models.tokenizer import Tokenizer
from plait.operations.quotas import Quota
from plait.rollout.service import RolloutError
from plait.server.openai.generation import STREAM_CHUNK_TOKENS
from tests.rollout.on_loop import on_loop
from tests.server.openai.in_process import CHUNK_TOKENS, TENANT, Connection, Endpoint, settle

PROMPT = [11, 12, 13]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer.load(make_tiny_model(Path(tmp_path_factory.mktemp("tiny"))))


def body(**more: Any) -> dict[str, Any]:
    return {"model": "base", "prompt": PROMPT, "max_tokens": 200, "seed": 2, "n": 3} | more


async def check_nothing_is_left(endpoint: Endpoint) -> None:
    await settle(endpoint)
    assert endpoint.engine.chunks == {}
    assert endpoint.engine.caches == set()
    assert (endpoint.rollout.scheduler.num_running, endpoint.rollout.scheduler.num_waiting) == (0, 0)
    assert endpoint.sampling.num_samples == 0
    assert endpoint.quotas.used(TENANT, Quota.CONCURRENT_SAMPLES) == 0


@pytest.mark.parametrize("num_rounds", [0, 1, 2])
@pytest.mark.parametrize("is_stream", [True, False])
def test_whenever_a_client_leaves_nothing_of_it_is_left(tokenizer: Tokenizer, num_rounds: int, is_stream: bool) -> None:
    @on_loop
    async def scenario() -> None:
        endpoint = Endpoint(tokenizer)
        connection = Connection(endpoint, "/v1/completions", body(stream=is_stream))
        await settle(endpoint, 3)
        for _ in range(num_rounds):
            endpoint.run_chunks()
            await settle(endpoint)
        assert endpoint.engine.chunks, "they are not over yet"
        connection.leave()
        await asyncio.wait_for(connection.task, 120)
        await check_nothing_is_left(endpoint)
        num_drawn = sum(len(segment.tokens) for _, sampled in endpoint.metered for segment in sampled.segments)
        assert bool(num_drawn) == bool(num_rounds)
        assert endpoint.quotas.used(TENANT, Quota.TOKENS_PER_MINUTE) == num_drawn + (len(PROMPT) if num_rounds else 0)

    scenario()


def test_a_stream_is_cut_finer_and_comes_to_the_same(tokenizer: Tokenizer) -> None:
    @on_loop
    async def scenario() -> None:
        texts, longest = [], []
        for is_stream in (False, True):
            endpoint = Endpoint(tokenizer)
            connection = Connection(endpoint, "/v1/completions", body(stream=is_stream, n=1))
            await settle(endpoint, 1)
            while endpoint.engine.chunks:
                endpoint.run_chunks()
                await settle(endpoint)
            await asyncio.wait_for(connection.task, 120)
            events = connection.events()
            texts.append("".join(event["choices"][0]["text"] for event in events if event != "[DONE]"))
            longest.append(endpoint.engine.longest_budget)
            await check_nothing_is_left(endpoint)
            if is_stream:
                assert events[-1] == "[DONE]"
        assert texts[0] == texts[1]
        assert longest == [CHUNK_TOKENS, STREAM_CHUNK_TOKENS]

    scenario()


@pytest.mark.parametrize("is_stream", [True, False])
def test_what_fails_in_the_engine_is_told_in_the_clients_terms(tokenizer: Tokenizer, is_stream: bool) -> None:
    @on_loop
    async def scenario() -> None:
        endpoint = Endpoint(tokenizer)
        connection = Connection(endpoint, "/v1/completions", body(stream=is_stream))
        await settle(endpoint, 3)
        endpoint.run_chunks()
        await settle(endpoint)
        endpoint.rollout.fail_all(RolloutError("the engine is lost."))
        await asyncio.wait_for(connection.task, 120)
        error = connection.events()[-1]["error"]
        assert error["message"] == "the engine is lost."
        await check_nothing_is_left(endpoint)
        if not is_stream:
            assert connection.status >= 500

    scenario()


def test_a_request_of_many_prompts_is_let_in_as_a_whole_or_not_at_all(tokenizer: Tokenizer) -> None:
    @on_loop
    async def scenario() -> None:
        endpoint = Endpoint(tokenizer, concurrent_samples=4)
        connection = Connection(endpoint, "/v1/completions", body(prompt=[PROMPT, PROMPT], n=3))
        await asyncio.wait_for(connection.task, 120)
        assert connection.status == 429
        assert connection.events()[0]["error"]["code"] == "rate_limit_exceeded"
        await check_nothing_is_left(endpoint)
        assert endpoint.quotas.used(TENANT, Quota.TOKENS_PER_MINUTE) == 0

    scenario()


def test_more_than_a_quota_can_ever_give_is_not_to_be_tried_again(tokenizer: Tokenizer) -> None:
    @on_loop
    async def scenario() -> None:
        endpoint = Endpoint(tokenizer, concurrent_samples=2)
        connection = Connection(endpoint, "/v1/completions", body())
        await asyncio.wait_for(connection.task, 120)
        assert connection.status == 429
        assert connection.events()[0]["error"]["code"] == "insufficient_quota"

    scenario()


def test_a_server_that_stops_says_so(tokenizer: Tokenizer) -> None:
    @on_loop
    async def scenario() -> None:
        endpoint = Endpoint(tokenizer)
        connection = Connection(endpoint, "/v1/completions", body())
        await settle(endpoint, 3)
        await endpoint.sampling.close()
        await asyncio.wait_for(connection.task, 120)
        assert connection.status == 503
        await check_nothing_is_left(endpoint)

    scenario()
