"""The service on an event loop, with an engine whose tokens are a pure function of their context."""

import asyncio
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from plait.rollout.service import RolloutService
from plait.types.chunks import ChunkResult
from plait.types.sampling import StopReason
from tests.rollout.fake_engine import FakeEngine
from tests.rollout.on_loop import CACHE_TOKENS, ENGINE, expected, on_loop, request, serve, settle, start

patient = settings(deadline=None, max_examples=40)
randoms = st.randoms(use_true_random=False)


# ---- chunks


@patient
@given(st.integers(1, 12), st.integers(1, 25), st.integers(0, 50))
def test_however_it_is_cut_a_generation_is_the_same_and_keeps_its_limits(chunk_tokens: int, max_new_tokens: int, seed: int) -> None:
    async def scenario() -> None:
        service, engine = RolloutService(chunk_tokens, lambda _: 4), FakeEngine()
        service.attach(ENGINE, engine, CACHE_TOKENS)
        wanted = request(seed, max_new_tokens=max_new_tokens)
        (job,) = start(service, [wanted])
        await serve(service, engine, Random(0))
        assert job.result() == expected(wanted)
        assert len(job.result().tokens) <= max_new_tokens
        assert engine.longest_budget <= chunk_tokens
        assert engine.caches == set(), "no stored cache is left"

    asyncio.run(scenario())


@on_loop
async def test_a_cache_kept_for_a_later_turn_is_not_released() -> None:
    service, engine = RolloutService(4, lambda _: 1), FakeEngine()
    service.attach(ENGINE, engine, CACHE_TOKENS)
    (job,) = start(service, [request(1, max_new_tokens=10, keep_cache=True)])
    await serve(service, engine, Random(0))
    assert len(engine.caches) == 1
    assert job.result().tokens


@on_loop
async def test_what_comes_in_one_turn_of_the_loop_goes_out_in_one_message() -> None:
    service, engine = RolloutService(64, lambda _: 8), FakeEngine()
    service.attach(ENGINE, engine, CACHE_TOKENS)
    jobs = start(service, [request(number) for number in range(8)])
    await settle()
    assert (len(engine.chunks), engine.num_submits) == (8, 1)
    await serve(service, engine, Random(0))
    assert all(job.done() for job in jobs)


# ---- how many


@patient
@given(randoms, st.lists(st.integers(0, 6), min_size=1, max_size=10))
def test_no_more_chunks_than_the_limit_are_with_the_engine_though_it_changes(random: Random, limits: list[int]) -> None:
    async def scenario() -> None:
        limit = limits[0]
        service, engine = RolloutService(5, lambda _: limit), FakeEngine()
        service.attach(ENGINE, engine, CACHE_TOKENS)
        requests = [request(number, random.choice("abc")) for number in range(20)]
        jobs = start(service, requests)
        await settle()
        for limit in [*limits, 6]:
            num_before = len(engine.chunks)
            service.pump()
            assert len(engine.chunks) <= max(limit, num_before), "a lower limit takes nothing back, and adds nothing"
            if engine.chunks:
                service.on_results([engine.run(random.choice(sorted(engine.chunks)))])
            await settle()
            assert len(engine.chunks) <= max(limit, num_before)
        await serve(service, engine, random)
        assert [job.result() for job in jobs] == [expected(r) for r in requests]

    asyncio.run(scenario())


@on_loop
async def test_tasks_take_turns_at_a_full_engine() -> None:
    service, engine = RolloutService(64, lambda _: 2), FakeEngine()
    service.attach(ENGINE, engine, CACHE_TOKENS)
    jobs = start(service, [request(number, "burst") for number in range(10)])
    await settle()
    jobs += start(service, [request(99, "single")])
    await settle()
    service.on_results([engine.run(chunk_id) for chunk_id in sorted(engine.chunks)])
    assert any(chunk_id.startswith("r99#") for chunk_id in engine.chunks)
    await serve(service, engine, Random(0))
    assert all(job.done() for job in jobs)


# ---- cancelling


@on_loop
async def test_cancelling_the_caller_cancels_in_the_engine_and_frees_its_place() -> None:
    service, engine = RolloutService(4, lambda _: 1), FakeEngine()
    service.attach(ENGINE, engine, CACHE_TOKENS)
    first, second = start(service, [request(1), request(2)])
    await settle()
    first.cancel()
    await settle()
    assert first.cancelled()
    assert engine.cancelled == ["r1#1"]
    assert [chunk_id.split("#")[0] for chunk_id in engine.chunks] == ["r2"]
    service.on_results(engine.cancelled_results)
    await serve(service, engine, Random(0))
    assert second.result() == expected(request(2))
    assert engine.caches == set()


@on_loop
async def test_cancelling_what_waits_between_chunks_releases_its_cache_and_asks_nothing_of_the_engine() -> None:
    service, engine = RolloutService(4, lambda _: 1), FakeEngine()
    service.attach(ENGINE, engine, CACHE_TOKENS)
    first, second = start(service, [request(1, "a"), request(2, "b")])
    await settle()
    service.on_results([engine.run("r1#1")])
    assert engine.caches
    first.cancel()
    await settle()
    assert (engine.caches, engine.cancelled) == (set(), [])
    await serve(service, engine, Random(0))
    assert second.result() == expected(request(2))


@on_loop
async def test_a_group_that_is_cancelled_together_hands_over_nothing_more() -> None:
    service, engine = RolloutService(4, lambda _: 2), FakeEngine()
    service.attach(ENGINE, engine, CACHE_TOKENS)
    jobs = start(service, [request(number) for number in range(10)])
    await settle()
    for job in jobs:
        job.cancel()
    await settle()
    assert engine.num_submits == 1
    assert (service.scheduler.num_running, service.scheduler.num_waiting) == (0, 0)


@on_loop
async def test_a_late_result_is_not_taken_for_a_new_request_of_the_same_name() -> None:
    service, engine = RolloutService(64, lambda _: 1), FakeEngine()
    service.attach(ENGINE, engine, CACHE_TOKENS)
    (first,) = start(service, [request(1)])
    await settle()
    first.cancel()
    await settle()
    (second,) = start(service, [request(1)])
    await settle()
    service.on_results(engine.cancelled_results)
    await settle()
    assert not second.done()
    await serve(service, engine, Random(0))
    assert second.result() == expected(request(1))


@on_loop
async def test_a_request_id_in_use_is_refused_and_the_first_lives_on() -> None:
    service, engine = RolloutService(64, lambda _: 1), FakeEngine()
    service.attach(ENGINE, engine, CACHE_TOKENS)
    first, second = start(service, [request(1), request(1)])
    await settle()
    assert isinstance(second.exception(), ValueError)
    await serve(service, engine, Random(0))
    assert first.result() == expected(request(1))


# ---- whoever reads along


@patient
@given(st.integers(1, 12), st.one_of(st.none(), st.integers(1, 5)), st.integers(0, 50))
def test_a_reader_hears_of_each_chunk_and_may_have_them_cut_finer(chunk_tokens: int, finer: int | None, seed: int) -> None:
    async def scenario() -> None:
        service, engine = RolloutService(chunk_tokens, lambda _: 4), FakeEngine()
        service.attach(ENGINE, engine, CACHE_TOKENS)
        heard: list[ChunkResult] = []
        wanted = request(seed, max_new_tokens=20, on_chunk=heard.append, max_chunk_tokens=finer)
        (job,) = start(service, [wanted])
        await serve(service, engine, Random(0))
        segment = job.result()
        assert tuple(token for result in heard for token in result.tokens) == segment.tokens
        assert tuple(logprob for result in heard for logprob in result.logprobs) == segment.logprobs
        assert [result.stop for result in heard] == [StopReason.BUDGET] * (len(heard) - 1) + [segment.stop]
        assert engine.longest_budget <= min(chunk_tokens, finer or chunk_tokens)

    asyncio.run(scenario())


@on_loop
async def test_a_reader_hears_nothing_twice_when_the_engine_is_lost() -> None:
    service, lost, fresh = RolloutService(4, lambda _: 1), FakeEngine(), FakeEngine()
    service.attach(ENGINE, lost, CACHE_TOKENS)
    heard: list[ChunkResult] = []
    wanted = request(1, max_new_tokens=10, on_chunk=heard.append)
    (job,) = start(service, [wanted])
    await settle()
    service.on_results([lost.run("r1#1")])
    service.attach(ENGINE, fresh, CACHE_TOKENS)
    await serve(service, fresh, Random(0))
    assert tuple(token for result in heard for token in result.tokens) == job.result().tokens
