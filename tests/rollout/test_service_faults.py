"""The service when engines are lost, callers go away, or an engine gets something wrong."""

import asyncio
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.rollout.service import RolloutError, RolloutService
from plait.types.chunks import ChunkResult
from plait.types.policy import PolicyVersion
from plait.types.sampling import StopReason
from tests.rollout.fake_engine import FakeEngine
from tests.rollout.on_loop import CACHE_TOKENS, ENGINE, POLICY, expected, on_loop, request, serve, settle, start

patient = settings(deadline=None, max_examples=40)
randoms = st.randoms(use_true_random=False)


# ---- losing the engine


@patient
@given(randoms, st.integers(1, 8), st.integers(1, 8))
def test_generations_outlive_the_loss_of_engines_with_the_same_tokens(random: Random, chunk_tokens: int, limit: int) -> None:
    async def scenario() -> None:
        service, engine = RolloutService(chunk_tokens, lambda _: limit), FakeEngine()
        service.attach(ENGINE, engine, CACHE_TOKENS)
        requests = [request(number, random.choice("ab")) for number in range(12)]
        jobs, cancelled = start(service, requests), set()
        await settle()
        for _ in range(6):
            for _ in range(random.randrange(4)):
                if engine.chunks:
                    service.on_results([engine.run(random.choice(sorted(engine.chunks)))])
                    await settle()
            lost, engine = engine, FakeEngine()
            if random.random() < 0.5:
                service.detach(ENGINE)
                await settle()
            victim = random.randrange(len(jobs))
            if random.random() < 0.5 and jobs[victim].cancel():
                cancelled.add(victim)
            service.attach(ENGINE, engine, CACHE_TOKENS)
            await settle()
            late = [lost.run(chunk_id) for chunk_id in sorted(lost.chunks)]
            engine.caches |= {result.cache_handle for result in late} - {""}  # asked for in vain: they were the lost engine's
            service.on_results(late)
        await serve(service, engine, random)
        for number, job in enumerate(jobs):
            assert job.cancelled() if number in cancelled else job.result() == expected(requests[number])
        assert (service.scheduler.num_running, service.scheduler.num_waiting) == (0, 0)
        assert engine.most_chunks <= limit

    asyncio.run(scenario())


@on_loop
async def test_without_an_engine_generations_wait_for_one() -> None:
    service, engine = RolloutService(4, lambda _: 2), FakeEngine()
    (job,) = start(service, [request(1)])
    await settle()
    assert not job.done()
    service.attach(ENGINE, engine, CACHE_TOKENS)
    await serve(service, engine, Random(0))
    assert job.result() == expected(request(1))


@on_loop
async def test_when_no_engine_will_come_all_end_and_new_ones_too() -> None:
    service, engine = RolloutService(4, lambda _: 1), FakeEngine()
    service.attach(ENGINE, engine, CACHE_TOKENS)
    jobs = start(service, [request(1), request(2)])
    await settle()
    service.fail_all(RolloutError("the workers are gone"))
    late = start(service, [request(3)])
    await settle()
    assert [str(job.exception()) for job in jobs + late] == ["the workers are gone"] * 3
    assert (service.scheduler.num_running, service.scheduler.num_waiting) == (0, 0)
    replacement = FakeEngine()
    service.attach(ENGINE, replacement, CACHE_TOKENS)
    (after,) = start(service, [request(4)])
    await serve(service, replacement, Random(0))
    assert after.result() == expected(request(4))


# ---- what an engine may get wrong


def _spoilt(result: ChunkResult, **fields: Any) -> ChunkResult:
    return msgspec.structs.replace(result, **fields)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"stop": StopReason.FAILED, "error": "the context is too long"}, "request r1: the context is too long"),
        ({"stop": StopReason.CANCELLED}, "nobody had asked"),
        ({"policy": PolicyVersion("local", "sums", 2)}, "drew with policy local/sums@2, not local/sums@3"),
        ({"policy": PolicyVersion("other", "sums", 3)}, "drew with policy other/sums@3"),
        ({"logprobs": ()}, "tokens and 0 log-probabilities"),
        ({"stop": StopReason.BUDGET, "tokens": (1,) * 20, "logprobs": (0.0,) * 20}, "past max_new_tokens = 20"),
    ],
    ids=["failed", "cancelled by itself", "another version", "another tenant", "no log-probabilities", "too many tokens"],
)
def test_what_cannot_be_used_ends_that_generation_alone_with_its_cause(fields: dict[str, Any], text: str) -> None:
    async def scenario() -> None:
        service, engine = RolloutService(64, lambda _: 2), FakeEngine()
        service.attach(ENGINE, engine, CACHE_TOKENS)
        bad, good = start(service, [request(1), request(2)])
        await settle()
        service.on_results([_spoilt(engine.run("r1#1"), **fields), engine.run("r2#2")])
        await settle()
        assert good.result() == expected(request(2))
        with pytest.raises(RolloutError, match=text):
            await bad

    asyncio.run(scenario())


@on_loop
async def test_results_nobody_waits_for_are_ignored() -> None:
    service, engine = RolloutService(64, lambda _: 2), FakeEngine()
    service.attach(ENGINE, engine, CACHE_TOKENS)
    service.on_results([ChunkResult("unknown", POLICY, (1,), (0.0,), StopReason.LENGTH)])
    assert engine.chunks == {}
