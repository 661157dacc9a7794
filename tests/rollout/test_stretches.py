"""Chunks go on past their budgets as long as that is in nobody's way."""

import asyncio
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from plait.rollout.context_scheduler import ContextScheduler
from plait.rollout.engine_state import EngineState
from plait.rollout.scheduler import Placement
from plait.rollout.service import RolloutService
from plait.rollout.stretches import MAX_CHUNKS, Stretches
from plait.types.trajectory import Segment
from tests.rollout.fake_engine import FakeEngine
from tests.rollout.on_loop import expected, on_loop, request, settle, start

BUDGET, CACHE_TOKENS = 5, 400


def placed(name: str = "e0", max_new_tokens: int = 200, **fields: Any) -> Placement:
    one = request(1, max_new_tokens=max_new_tokens, **fields)
    return Placement(one, name, BUDGET, len(one.context_tokens) + BUDGET)


def engine(name: str = "e0", num_rows: int = 1, cache_tokens: int = CACHE_TOKENS) -> EngineState:
    return EngineState(name, cache_tokens, 8 * num_rows, max_rows=8, num_rows=num_rows)


@given(st.integers(1, 8), st.integers(20, 400), st.integers(5, 300))
def test_rows_as_long_as_a_granted_stretch_fit_the_cache(num_rows: int, cache_tokens: int, max_new_tokens: int) -> None:
    placement, state = placed(max_new_tokens=max_new_tokens), engine("e0", num_rows, cache_tokens)
    granted = Stretches().grant("c", placement, [state])
    assert 0 <= granted <= min(max_new_tokens - BUDGET, (MAX_CHUNKS - 1) * BUDGET)
    if granted:
        assert num_rows * (placement.footprint_tokens + granted) <= cache_tokens
    elif max_new_tokens > BUDGET:
        assert num_rows * (placement.footprint_tokens + 1) > cache_tokens


def test_who_reads_along_gets_chunks_as_small_as_it_asked_for() -> None:
    assert Stretches().grant("c", placed(max_chunk_tokens=5), [engine()]) == 0


def test_beside_an_idle_engine_one_chunk_stretches_and_the_others_may_move() -> None:
    stretches, engines = Stretches(), [engine("e0", 2), engine("e1", 0)]
    assert stretches.grant("a", placed(), engines) > 0
    assert stretches.grant("b", placed(), engines) == 0
    assert stretches.take_back(engines, num_waiting=0) == []


def test_stretches_end_where_another_engine_goes_idle_or_somebody_waits() -> None:
    stretches, busy = Stretches(), [engine("e0", 2), engine("e1", 1)]
    for chunk_id in "ab":
        assert stretches.grant(chunk_id, placed(), busy) > 0
    assert stretches.take_back(busy, num_waiting=0) == []
    assert stretches.take_back([engine("e0", 2), engine("e1", 0)], num_waiting=0) == ["e0"]
    assert stretches.take_back(busy, num_waiting=3) == [], "they are told once"
    stretches.grant("c", placed(), busy)
    assert stretches.take_back(busy, num_waiting=1) == ["e0"]
    stretches.grant("d", placed(), busy)
    stretches.ended("d", "e0")
    assert stretches.take_back(busy, num_waiting=1) == []


@on_loop
async def test_a_generation_that_is_in_nobodys_way_is_cut_once_for_whoever_comes() -> None:
    service, fake = RolloutService(BUDGET, lambda _: 1, ContextScheduler()), FakeEngine()
    service.attach("e", fake, CACHE_TOKENS)
    jobs = start(service, [request(1)])
    await settle()
    assert [(chunk.budget_tokens, chunk.stretch_tokens) for chunk in fake.chunks.values()] == [(5, 15)]
    jobs += start(service, [request(2)])
    await settle()
    assert fake.num_ended_stretches == 1
    assert [chunk.stretch_tokens for chunk in fake.chunks.values()] == [0]
    while fake.chunks:
        service.on_results([fake.run(next(iter(fake.chunks)))])
        await settle()
    assert [await job for job in jobs] == [expected(request(1)), expected(request(2))]


@settings(deadline=None, max_examples=40)
@given(st.randoms(use_true_random=False), st.integers(1, 3))
def test_with_stretches_every_generation_comes_to_the_same(random: Random, num_engines: int) -> None:
    async def scenario() -> None:
        service = RolloutService(BUDGET, lambda _: 3, ContextScheduler())
        fakes = {f"e{number}": FakeEngine() for number in range(num_engines)}
        for name, fake in fakes.items():
            service.attach(name, fake, CACHE_TOKENS)
        requests = [request(number, max_new_tokens=random.randint(1, 60)) for number in range(12)]
        coming = list(requests)
        jobs: list[asyncio.Task[Segment]] = []
        while coming or not all(job.done() for job in jobs):
            if coming and random.random() < 0.5:
                jobs += start(service, [coming.pop(0)])
            await settle()
            busy = [fake for fake in fakes.values() if fake.chunks]
            if busy:
                fake = random.choice(busy)
                service.on_results([fake.run(random.choice(sorted(fake.chunks)))])
                await settle()
        assert [job.result() for job in jobs] == [expected(r) for r in requests]
        assert all(state.reserved_tokens == 0 for state in service.engines)

    asyncio.run(scenario())
