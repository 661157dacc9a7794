"""Engines that share no memory serve one generation through the store between them: same tokens, prompts computed once."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from plait.engine.engine import Engine
from plait.kv.disk_store import DiskStore
from plait.kv.plan import StorePlan, TierPlan, memory_bytes
from plait.kv.pool import BLOCK_TOKENS
from plait.kv.pulls import NUM_THREADS
from plait.types.sampling import SamplingParams, StopReason
from tests.engine.test_engine_tiers import run_chunk
from tests.engine.tiny import Driver, Outcome, Request, assert_same, make_engine, model, serve

PROMPT = tuple(range(50, 90))


@contextmanager
def nodes(folder: Path, num_engines: int = 2, timeout_s: float = 120.0, pool_tokens: int = 2048) -> Iterator[list[Engine]]:
    """An engine on each."""
    engines = [make_engine(model(), pool_tokens=pool_tokens) for _ in range(num_engines)]
    payload_bytes = engines[0].kv.codec.payload_bytes
    folders = [str(folder / str(number)) for number in range(num_engines)]
    for number, engine in enumerate(engines):
        store = StorePlan(10**8, timeout_s, folders[number], (*folders[:number], *folders[number + 1 :]))
        host_bytes = memory_bytes(1024, payload_bytes // BLOCK_TOKENS, BLOCK_TOKENS)
        engine.kv.attach(TierPlan(memory_bytes=host_bytes, store=store).open(payload_bytes, BLOCK_TOKENS))
    yield engines
    for engine in engines:
        engine.check_idle()
        assert engine.kv.lower is not None
        engine.kv.lower.close()


def run_across(engines: Sequence[Engine], request: Request, budget: int) -> Outcome:
    """Each chunk on the next engine; the handle of the one before is released everywhere, as by the rollout service."""
    outcome = Outcome()
    while not outcome.results or outcome.stop == StopReason.BUDGET:
        engine = engines[len(outcome.results) % len(engines)]
        run_chunk(engine, request, outcome, budget)
        assert engine.kv.lower is not None
        engine.kv.lower.flush()
        if len(outcome.results) > 1:
            for engine in engines:
                engine.release(outcome.results[-2].cache_handle, went_on=True)
    return outcome


@pytest.mark.parametrize(("pool_tokens", "budget"), [(2048, 7), (1, 16)])
def test_a_generation_moves_between_nodes_after_every_chunk(tmp_path: Path, pool_tokens: int, budget: int) -> None:
    request = Request("a", PROMPT, SamplingParams(50, seed=3), "t0")
    alone = serve(make_engine(model()), [request])["a"]
    with nodes(tmp_path, 3, pool_tokens=pool_tokens) as engines:
        found = run_across(engines, request, budget)
        assert (found.tokens, found.logprobs) == (alone.tokens, alone.logprobs)
        assert_same(model(), request, found)
        assert sum(engine.num_prefilled_tokens for engine in engines) == len(PROMPT) - 1
        assert all(result.cached_tokens for result in found.results[1:])
        assert all(engine.kv.counters.store.hit_tokens for engine in engines[1:])
        for engine in engines:
            assert engine.kv.lower is not None
            engine.kv.lower.flush()
        num_prompt_blocks = -(-(len(PROMPT) - 1) // BLOCK_TOKENS)
        assert len(list(tmp_path.glob("*/*"))) == num_prompt_blocks, "all but the prompt is freed"


def test_a_new_version_and_another_task_find_nothing_in_the_store(tmp_path: Path) -> None:
    """P02, P05."""
    with nodes(tmp_path) as (first, second):
        serve(first, [Request("old", PROMPT, SamplingParams(5, seed=1), "t0", 1)])
        assert first.kv.lower is not None
        first.kv.lower.flush()
        for task, version in (("t0", 2), ("t1", 1), ("base", 1)):
            request = Request(f"{task}@{version}", PROMPT, SamplingParams(3, seed=1), task, version)
            found = serve(second, [request])[request.request_id]
            assert_same(model(), request, found)
            assert found.cached_tokens == 0
        same = serve(second, [Request("same", PROMPT, SamplingParams(3, seed=2), "t0", 1)])["same"]
        assert same.cached_tokens == len(PROMPT) - 1


def test_what_a_chunk_lacks_is_pulled_while_others_decode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moved = Request("moved", PROMPT, SamplingParams(12, seed=3), "t0")
    there = Request("there", tuple(range(20)), SamplingParams(200, seed=4), "t1")
    may_read = threading.Event()
    read = DiskStore.get

    def held_get(self: DiskStore, key: bytes) -> bytes | None:
        assert may_read.wait(120)
        return read(self, key)

    with nodes(tmp_path) as (first, second):
        outcome = Outcome()
        run_chunk(first, moved, outcome, 6)
        assert first.kv.lower is not None
        first.kv.lower.flush()
        driver = Driver(second)
        driver.submit(there)
        while not second.rows:
            driver.step()
        monkeypatch.setattr(DiskStore, "get", held_get)
        second.submit(moved.chunk(outcome.tokens))
        driver.requests["moved"], driver.outcomes["moved"] = moved, outcome
        num_decoded = second.num_decoded_tokens
        for _ in range(5):
            driver.step()
        assert [row.chunk.request_id for row in second.rows] == ["there"]
        assert second.num_decoded_tokens == num_decoded + 5
        may_read.set()
        found = driver.run()
        assert found["moved"].results[-1].cached_tokens == len(PROMPT) + 5, "nothing but the last token was left to compute"
        assert_same(model(), moved, found["moved"])
        assert_same(model(), there, found["there"])


def test_a_store_that_hangs_costs_its_time_limit_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = [Request(str(number), (number, *PROMPT), SamplingParams(4, seed=number), "t0") for number in range(6)]
    never, asked = threading.Event(), list[bytes]()

    def hang(self: DiskStore, key: bytes) -> bytes | None:
        asked.append(key)
        never.wait(600)
        return None

    monkeypatch.setattr(DiskStore, "get", hang)
    with nodes(tmp_path, timeout_s=0.3) as (first, _):
        for request in requests:
            assert_same(model(), request, serve(first, [request])[request.request_id])
        assert first.kv.lower is not None
        assert first.kv.lower.far is not None
        assert not first.kv.lower.far.is_on
        assert len(asked) <= NUM_THREADS, "each thread that pulls hangs at most once"
        never.set()


def test_a_cancelled_chunk_waits_for_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    never = threading.Event()
    monkeypatch.setattr(DiskStore, "get", lambda self, key: never.wait(600) and None)
    with nodes(tmp_path) as (first, _):
        first.submit(Request("a", PROMPT, SamplingParams(4)).chunk())
        assert first.step() == []
        first.cancel("a")
        assert [result.stop for result in first.step()] == [StopReason.CANCELLED]
        first.check_idle()
        never.set()


def test_corrupt_blocks_of_the_store_are_computed_again(tmp_path: Path) -> None:
    request, outcome = Request("a", PROMPT, SamplingParams(60, seed=1), "t0"), Outcome()
    with nodes(tmp_path) as (first, second):
        run_chunk(first, request, outcome, 50)
        assert first.kv.lower is not None
        first.kv.lower.flush()
        for path in tmp_path.glob("*/*"):
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 1
            path.write_bytes(data)
        run_chunk(second, request, outcome, 50)
        assert second.num_prefilled_tokens == len(PROMPT) + 49
        assert second.kv.counters.store.corrupt > 0
        assert_same(model(), request, outcome)
