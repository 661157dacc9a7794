"""A generation moves between engines and tiers and is none the wiser: same tokens, same bits, no prompt computed again."""

import pickle
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from plait.engine.engine import Engine
from plait.kv.cold_tier import ColdTier
from plait.kv.disk_store import DiskStore
from plait.kv.host_tier import HostTier
from plait.kv.pool import BLOCK_TOKENS
from plait.kv.segment import HEADER_BYTES
from plait.kv.shared_memory import SharedMemory
from plait.kv.tiers import LowerTiers
from plait.types.sampling import SamplingParams, StopReason
from tests.engine.tiny import Outcome, Request, assert_same, make_engine, model, serve

PROMPT = tuple(range(50, 90))
BUDGET = 7


def attach(engine: Engine, own: str, others: Sequence[str], cold: ColdTier | None = None) -> None:
    host = HostTier.attach(own, others, engine.kv.codec.payload_bytes)
    engine.kv.attach(LowerTiers(host, cold, BLOCK_TOKENS))


@contextmanager
def node(num_engines: int = 2, num_blocks: int = 64, pool_tokens: int = 2048, folder: Path | None = None) -> Iterator[list[Engine]]:
    """Engines of one machine."""
    engines = [make_engine(model(), pool_tokens=pool_tokens) for _ in range(num_engines)]
    num_bytes = 8192 + num_blocks * (engines[0].kv.codec.payload_bytes + HEADER_BYTES)
    memories = [SharedMemory(num_bytes) for _ in engines]
    paths = [memory.path for memory in memories]
    for number, engine in enumerate(engines):
        folders = [folder / str(other) for other in range(num_engines)] if folder else []
        cold = ColdTier([DiskStore(folders[number], 10**8, folders[:number] + folders[number + 1 :])]) if folders else None
        attach(engine, paths[number], paths[:number] + paths[number + 1 :], cold)
    yield engines
    for engine, memory in zip(engines, memories, strict=True):
        engine.check_idle()
        assert engine.kv.lower is not None
        engine.kv.lower.close()
        memory.close()


def run_chunk(engine: Engine, request: Request, outcome: Outcome, budget: int = BUDGET) -> None:
    """One more chunk of a generation."""
    engine.submit(request.chunk(outcome.tokens, budget))
    while not engine.is_idle:
        for result in engine.step():
            outcome.tokens += result.tokens
            outcome.logprobs += result.logprobs
            outcome.results.append(result)


def run_across(engines: Sequence[Engine], request: Request, budget: int = BUDGET) -> Outcome:
    """Each chunk on the next engine; a handle is released when the next has come, as the rollout service does."""
    outcome = Outcome()
    while not outcome.results or outcome.stop == StopReason.BUDGET:
        engine = engines[len(outcome.results) % len(engines)]
        run_chunk(engine, request, outcome, budget)
        if len(outcome.results) > 1:
            engine.release(outcome.results[-2].cache_handle)
        if outcome.results[-1].cache_handle:
            num_blocks = -(-(len(PROMPT) + len(outcome.tokens) - 1) // BLOCK_TOKENS)
            used_bytes = sum(engine.kv.counters.host.used_bytes for engine in engines)
            assert used_bytes >= num_blocks * engine.kv.codec.payload_bytes, "the blocks of the last handle are held"
    return outcome


@pytest.mark.parametrize("pool_tokens", [2048, 1], ids=["pool", "no pool"])
@pytest.mark.parametrize("budget", [7, 16, 20])
def test_generation_that_moves_after_every_chunk(pool_tokens: int, budget: int) -> None:
    request = Request("a", PROMPT, SamplingParams(50, seed=3), "t0", keep_cache=True)
    alone = serve(make_engine(model()), [request])["a"]
    with node(3, pool_tokens=pool_tokens) as engines:
        found = run_across(engines, request, budget)
        assert (found.tokens, found.logprobs) == (alone.tokens, alone.logprobs)
        assert_same(model(), request, found)
        assert sum(engine.num_prefilled_tokens for engine in engines) == len(PROMPT) - 1
        assert sum(engine.kv.counters.moves for engine in engines) >= len(found.results) - 2
        assert all(result.cached_tokens for result in found.results[1:])


def test_siblings_elsewhere_pull_the_prompt() -> None:
    requests = [Request(str(i), PROMPT, SamplingParams(6, seed=i), "t0") for i in range(4)]
    with node() as (first, second):
        serve(first, requests[:2])
        found = serve(second, requests[2:])
        assert second.num_prefilled_tokens == 0
        assert [found[name].cached_tokens for name in ("2", "3")] == [len(PROMPT) - 1] * 2
        assert (second.kv.counters.moves, second.kv.counters.device.hits) == (1, 3), "the second sibling finds it in the pool"
        for request in requests[2:]:
            assert_same(model(), request, found[request.request_id])


def test_finished_generation_leaves_only_its_prompt() -> None:
    request = Request("a", PROMPT, SamplingParams(60, seed=1), "t0")
    with node() as engines:
        run_across(engines, request)
        used = sum(engine.kv.counters.host.used_bytes for engine in engines)
        assert used == -(-(len(PROMPT) - 1) // BLOCK_TOKENS) * engines[0].kv.codec.payload_bytes


def test_release_by_handle_on_any_engine() -> None:
    request = Request("a", PROMPT, SamplingParams(60, seed=1), "t0", keep_cache=True)
    with node() as (first, second):
        found = run_across((first,), request, 8)
        num_blocks = -(-(len(PROMPT) + 59) // BLOCK_TOKENS) + 1
        assert first.kv.counters.host.used_bytes == num_blocks * first.kv.codec.payload_bytes
        second.release(found.results[-1].cache_handle)
        assert first.kv.counters.host.used_bytes == 3 * first.kv.codec.payload_bytes, "two blocks and the prompt's last"
        second.release("")


def test_new_version_and_other_tasks_find_nothing_in_any_tier(tmp_path: Path) -> None:
    """P02, P05: what every tier holds of version 1 is of no use to version 2, nor to another task."""
    with node(2, num_blocks=4, pool_tokens=48, folder=tmp_path) as (first, second):
        old = Request("old", PROMPT, SamplingParams(40, seed=1), "t0", 1, keep_cache=True)
        run_across((first, second), old)
        for engine in (first, second):
            for task, version in (("t0", 2), ("t1", 1), ("base", 1)):
                request = Request(f"{task}@{version}", PROMPT, SamplingParams(6, seed=1), task, version)
                before = engine.num_prefilled_tokens
                found = serve(engine, [request])[request.request_id]
                assert_same(model(), request, found)
                if engine is first:
                    assert engine.num_prefilled_tokens - before == len(PROMPT) - 1
                    assert found.cached_tokens == 0


def test_generation_comes_back_from_disk(tmp_path: Path) -> None:
    """Idle while a tool runs, pushed out of pool and memory, and back in time."""
    with node(2, num_blocks=8, pool_tokens=64, folder=tmp_path) as (first, second):
        request = Request("a", PROMPT, SamplingParams(60, seed=1), "t0", keep_cache=True)
        outcome = Outcome()
        run_chunk(first, request, outcome, 30)
        for number in range(3):
            crowd = Request(str(number), tuple(range(number, number + 60)), SamplingParams(20, seed=1), "t1", keep_cache=True)
            serve(first, [crowd], budget=10)
        assert first.kv.lower is not None
        first.kv.lower.flush()
        assert first.kv.counters.host.evictions > 0
        second.num_prefilled_tokens = 0
        run_chunk(second, request, outcome, 30)
        assert second.num_prefilled_tokens == 0
        counters = second.kv.counters
        assert counters.cold.hits + counters.prefetched > 0
        assert_same(model(), request, outcome)


@pytest.mark.parametrize("tier", ["host", "disk"])
def test_corrupt_blocks_are_computed_again(tier: str, tmp_path: Path) -> None:
    with node(2, num_blocks=64 if tier == "host" else 3, pool_tokens=16, folder=tmp_path) as (first, second):
        request = Request("a", PROMPT, SamplingParams(60, seed=1), "t0")
        outcome = Outcome()
        run_chunk(first, request, outcome, 50)
        assert first.kv.lower is not None
        first.kv.lower.flush()
        if tier == "host":
            own = first.kv.lower.host._own
            own._view[own._payloads :: 1000] = bytes(len(own._view[own._payloads :: 1000]))
        for path in tmp_path.glob("*/*"):
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 1
            path.write_bytes(data)
        run_chunk(second, request, outcome, 50)
        assert second.num_prefilled_tokens > 0
        assert getattr(second.kv.counters, "cold" if tier == "disk" else "host").corrupt > 0
        assert_same(model(), request, outcome)


def go_on() -> None:
    """What the other process does."""
    own, other, request, drawn = pickle.load(sys.stdin.buffer)
    engine = make_engine(model())
    attach(engine, own, [other])
    run_chunk(engine, request, drawn, 1000)
    pickle.dump((drawn, engine.num_prefilled_tokens), sys.stdout.buffer)


def test_generation_goes_on_in_another_process() -> None:
    request, drawn, engine = Request("a", PROMPT, SamplingParams(30, seed=3), "t0"), Outcome(), make_engine(model())
    first, second = (SharedMemory(20 * engine.kv.codec.payload_bytes) for _ in range(2))
    attach(engine, first.path, [second.path])
    run_chunk(engine, request, drawn, 12)
    code = f"from {go_on.__module__} import go_on; go_on()"
    sent = pickle.dumps((second.path, first.path, request, drawn))
    answer = subprocess.run([sys.executable, "-c", code], input=sent, capture_output=True, check=True, timeout=250)
    found, num_prefilled = pickle.loads(answer.stdout)
    assert num_prefilled == 0
    assert_same(model(), request, found)
    assert engine.kv.counters.host.used_bytes == 3 * engine.kv.codec.payload_bytes, "it released what it went on from"
    first.close()
    second.close()
