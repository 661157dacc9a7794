"""The service over several engines: what is reserved where, who hears of what, and the loss of one of them."""

import asyncio
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.rollout.buffer_scheduler import BufferScheduler
from plait.rollout.context_scheduler import ContextScheduler
from plait.rollout.scheduler import Scheduler
from plait.rollout.service import RolloutError, RolloutService
from tests.rollout.fake_engine import FakeEngine
from tests.rollout.on_loop import expected, on_loop, request, settle, start

SCHEDULERS = {"context": ContextScheduler, "buffer": BufferScheduler}
schedulers = st.sampled_from(sorted(SCHEDULERS)).map(lambda name: SCHEDULERS[name]())
randoms = st.randoms(use_true_random=False)
CACHE_TOKENS, MAX_ROWS = 60, 4


class Pool:
    """Engines of small caches, run in any order."""

    def __init__(self, scheduler: Scheduler, num_engines: int, random: Random) -> None:
        self.service = RolloutService(5, lambda _: MAX_ROWS, scheduler)
        self.random = random
        self.engines: dict[str, FakeEngine] = {}
        for number in range(num_engines):
            self.attach(f"e{number}")

    def attach(self, name: str) -> None:
        self.engines[name] = FakeEngine()
        self.service.attach(name, self.engines[name], CACHE_TOKENS)

    def lose(self, name: str) -> None:
        del self.engines[name]
        self.service.detach(name)

    async def step(self) -> bool:
        """One chunk of one engine; False if there is none."""
        await settle()
        self.check()
        busy = [name for name, engine in self.engines.items() if engine.chunks]
        if not busy:
            return False
        engine = self.engines[self.random.choice(busy)]
        self.service.on_results([engine.run(self.random.choice(sorted(engine.chunks)))])
        return True

    def check(self) -> None:
        for state in self.service.engines:
            chunks = self.engines[state.name].chunks.values() if state.name in self.engines else ()
            assert state.reserved_tokens == sum(len(chunk.context_tokens) + chunk.budget_tokens for chunk in chunks)
            assert state.reserved_tokens <= CACHE_TOKENS
            assert len(chunks) <= MAX_ROWS


@settings(deadline=None, max_examples=40)
@given(schedulers, randoms, st.integers(2, 3))
def test_a_lost_engines_chunks_alone_run_again_and_all_draw_the_same(
    scheduler: Scheduler, random: Random, num_engines: int
) -> None:
    async def scenario() -> None:
        pool = Pool(scheduler, num_engines, random)
        requests = [request(number, random.choice("ab"), group=f"g{number // 4}") for number in range(12)]
        jobs = start(pool.service, requests)
        for _ in range(random.randrange(15)):
            await pool.step()
        await settle()
        lost = random.choice(sorted(pool.engines))
        kept = {name: set(engine.chunks) for name, engine in pool.engines.items() if name != lost}
        pool.lose(lost)
        for name, chunks in kept.items():
            assert chunks <= set(pool.engines[name].chunks), "the others go on"
        returns = random.randrange(20)
        while await pool.step():
            returns -= 1
            if returns == 0:
                pool.attach(lost)
        assert [job.result() for job in jobs] == [expected(r) for r in requests]
        assert all(state.reserved_tokens == 0 for state in pool.service.engines)
        assert (scheduler.num_running, scheduler.num_waiting) == (0, 0)

    asyncio.run(scenario())


@settings(deadline=None, max_examples=40)
@given(schedulers, randoms)
def test_stored_caches_of_finished_and_cancelled_requests_are_released_everywhere(scheduler: Scheduler, random: Random) -> None:
    async def scenario() -> None:
        pool = Pool(scheduler, 2, random)
        requests = [request(number) for number in range(10)]
        jobs = start(pool.service, requests)
        for _ in range(random.randrange(12)):
            await pool.step()
        for job in random.sample(jobs, 3):
            job.cancel()
        while await pool.step():
            pass
        await asyncio.gather(*jobs, return_exceptions=True)
        for engine in pool.engines.values():
            assert engine.caches == set()
        assert pool.engines["e0"].released == pool.engines["e1"].released

    asyncio.run(scenario())


@on_loop
async def test_a_cancel_goes_to_the_engine_that_has_the_chunk() -> None:
    pool = Pool(BufferScheduler(), 2, Random(0))
    jobs = start(pool.service, [request(1), request(2)])
    await settle()
    (holder,) = [name for name, engine in pool.engines.items() if "r1#1" in engine.chunks]
    jobs[0].cancel()
    await settle()
    assert {name: engine.cancelled for name, engine in pool.engines.items() if engine.cancelled} == {holder: ["r1#1"]}
    while await pool.step():
        pass
    assert jobs[1].result() == expected(request(2))


@on_loop
async def test_what_fits_no_engine_ends_alone_with_its_cause() -> None:
    pool = Pool(ContextScheduler(), 2, Random(0))
    large = request(1)
    large.context_tokens = (1,) * CACHE_TOKENS
    jobs = start(pool.service, [large, request(2)])
    await settle()
    while await pool.step():
        pass
    with pytest.raises(RolloutError, match="tokens of cache; the largest engine has 60"):
        await jobs[0]
    assert jobs[1].result() == expected(request(2))


@on_loop
async def test_a_chunk_that_goes_on_elsewhere_is_a_move() -> None:
    limits = {"e0": 1, "e1": 0}
    service = RolloutService(5, lambda name: limits[name])
    engines = {name: FakeEngine() for name in limits}
    for name, engine in engines.items():
        service.attach(name, engine, CACHE_TOKENS)
    (job,) = start(service, [request(1, max_new_tokens=12, max_chunk_tokens=5)])
    await settle()
    limits |= {"e0": 0, "e1": 1}
    service.on_results([engines["e0"].run("r1#1")])
    service.on_results([engines["e1"].run("r1#2")])
    await settle()
    assert service.num_moves == {"e1": 1}
    while engines["e1"].chunks:
        service.on_results([engines["e1"].run(next(iter(engines["e1"].chunks)))])
    assert await job == expected(request(1, max_new_tokens=12))


@on_loop
async def test_nothing_is_reserved_beyond_the_models_context() -> None:
    service, engine = RolloutService(50, lambda _: 1, ContextScheduler(), max_context_tokens=40), FakeEngine()
    service.attach("e", engine, cache_tokens=40)
    (job,) = start(service, [request(1, max_new_tokens=60)])
    await settle()
    assert [chunk.budget_tokens for chunk in engine.chunks.values()] == [37]
    assert service.engines[0].free_tokens == 0
    job.cancel()
