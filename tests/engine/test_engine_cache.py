"""Contexts are computed once, found again by later chunks and turns, and never by anybody else."""

from unittest.mock import patch

import msgspec
import pytest
import torch

from plait.engine import engine as engine_module
from plait.engine.adapters import AdapterStore
from plait.types.policy import PolicyVersion
from plait.types.sampling import SamplingParams, StopReason
from tests.engine.tiny import Driver, Request, assert_same, load_from, make_engine, model, ref_of, serve

PROMPT = tuple(range(50, 90))


def group(task: str, size: int = 4, version: int = 1, prompt: tuple[int, ...] = PROMPT, prefix: str = "") -> list[Request]:
    return [Request(f"{prefix}{task}@{version}/{i}", prompt, SamplingParams(6, seed=i), task, version) for i in range(size)]


@pytest.mark.parametrize("max_rows", [8, 2], ids=["at once", "one after another"])
def test_prompt_of_a_group_is_computed_once(max_rows: int) -> None:
    engine = make_engine(model(), max_rows=max_rows)
    found = serve(engine, group("t0"))
    assert engine.num_prefilled_tokens == len(PROMPT) - 1
    assert [found[f"t0@1/{i}"].cached_tokens for i in range(4)] == [0] + [len(PROMPT) - 1] * 3


def test_prompt_of_a_group_is_computed_once_without_any_pool() -> None:
    engine = make_engine(model(), pool_tokens=1)
    serve(engine, group("t0"))
    assert engine.num_prefilled_tokens == len(PROMPT) - 1


def test_group_whose_first_is_cancelled_while_its_long_prompt_is_computed() -> None:
    with patch.object(engine_module, "PREFILL_TOKENS", 10):
        driver = Driver(make_engine(model()))
        driver.submit(*group("t0"))
        driver.step()
        driver.engine.cancel("t0@1/0")
        found = driver.run()
    assert found["t0@1/0"].stop == StopReason.CANCELLED
    for request in group("t0")[1:]:
        assert_same(model(), request, found[request.request_id])


def test_later_turn_finds_the_earlier_one() -> None:
    driver = Driver(make_engine(model()), budget=4)
    first = Request("a", PROMPT, SamplingParams(9, seed=1), "t0", keep_cache=True)
    driver.submit(first)
    answer = driver.run()["a"]
    assert answer.results[-1].cache_handle
    before = driver.engine.num_prefilled_tokens
    later = Request("b", PROMPT + answer.tokens + (5, 6, 7), SamplingParams(5, seed=2), "t0")
    driver.submit(later)
    found = driver.run()["b"]
    num_cached = len(PROMPT) + len(answer.tokens) - 1
    assert found.cached_tokens == num_cached
    assert driver.engine.num_prefilled_tokens - before == len(later.context) - 1 - num_cached
    assert_same(model(), later, found)


def test_later_chunks_find_the_earlier_ones() -> None:
    engine = make_engine(model())
    request = Request("a", PROMPT, SamplingParams(12, seed=1), "t0")
    found = serve(engine, [request], budget=5)["a"]
    assert [result.cached_tokens for result in found.results] == [0, len(PROMPT) + 4, len(PROMPT) + 9]
    assert engine.num_prefilled_tokens == len(PROMPT) - 1
    assert [bool(result.cache_handle) for result in found.results] == [True, True, False]


def test_finished_generation_leaves_only_its_prompt() -> None:
    """What earlier chunks stored is freed with the last; so is a partial block that a longer one replaces."""
    engine = make_engine(model())
    driver = Driver(engine, budget=5)
    driver.submit(Request("a", PROMPT, SamplingParams(40, seed=1), "t0"))
    most = 0
    while not engine.is_idle:
        driver.step()
        most = max(most, engine.pool.num_stored)
    driver.run()
    num_prompt_blocks = -(-(len(PROMPT) - 1) // 16)
    assert most <= num_prompt_blocks + -(-40 // 16) + 1
    assert engine.pool.num_stored <= num_prompt_blocks + 1, "one block holds the prompt's end and the answer's start"


def test_release_frees_what_was_kept() -> None:
    engine = make_engine(model())
    found = serve(engine, [Request("a", PROMPT, SamplingParams(30, seed=1), "t0", keep_cache=True)])["a"]
    assert engine.pool.num_stored >= (len(PROMPT) + 29) // 16
    engine.release(found.results[-1].cache_handle)
    assert engine.pool.num_stored == -(-(len(PROMPT) - 1) // 16), "the prompt stays for its group"
    engine.release(found.results[-1].cache_handle)
    engine.release("")
    engine.check_idle()


def test_full_pool_keeps_what_it_has_of_a_generation() -> None:
    engine = make_engine(model(), pool_tokens=48)
    request = Request("a", PROMPT, SamplingParams(24, seed=1), "t0")
    found = serve(engine, [request], budget=5)["a"]
    assert [result.cached_tokens for result in found.results] == [0, 44, 48, 48, 48]
    assert_same(model(), request, found)


def test_cancelling_frees_what_earlier_chunks_stored() -> None:
    driver = Driver(make_engine(model()), budget=20)
    driver.submit(Request("a", PROMPT, SamplingParams(60, seed=1), "t0", keep_cache=True))
    for _ in range(50):
        driver.step()
    assert driver.engine.pool.num_stored > 4
    driver.engine.cancel("a")
    assert driver.run()["a"].results[-1].cache_handle == ""
    assert driver.engine.pool.num_stored <= 4, "the prompt, and the block with its end and the answer's start"


def test_release_of_an_evicted_cache() -> None:
    engine = make_engine(model(), pool_tokens=64)
    found = serve(engine, [Request("a", PROMPT, SamplingParams(8, seed=1), "t0", keep_cache=True)])["a"]
    serve(engine, group("t1", prompt=tuple(range(100, 164))))
    engine.release(found.results[-1].cache_handle)
    engine.check_idle()


def test_handles_are_not_collected() -> None:
    """Nobody need release: what is kept is bounded by the pool."""
    engine = make_engine(model(), pool_tokens=160)
    for i in range(12):
        serve(engine, [Request(str(i), tuple(range(i, i + 30)), SamplingParams(8, seed=1), "t0", keep_cache=True)], budget=3)
    assert engine.pool.num_stored <= 10
    assert not [value for value in vars(engine).values() if isinstance(value, dict | list) and value]


def test_new_version_finds_nothing_of_the_old() -> None:
    """P02, P05: after a publish, A's new requests miss and get the new weights; B's hit as before."""
    engine = make_engine(model())
    serve(engine, group("t0") + group("t1"))
    computed = engine.num_prefilled_tokens
    new = group("t0", version=2)
    found = serve(engine, new + group("t1", prefix="again "))
    assert engine.num_prefilled_tokens - computed == len(PROMPT) - 1
    assert found["t0@2/0"].cached_tokens == 0
    assert found["again t1@1/0"].cached_tokens == len(PROMPT) - 1
    cold = serve(make_engine(model()), new)
    for request in new:
        assert_same(model(), request, found[request.request_id])
        assert found[request.request_id].logprobs == cold[request.request_id].logprobs


def test_nobody_finds_the_cache_of_another() -> None:
    """P04: another tenant, task, digest of the adapter, dtype or base misses, for one and the same prompt."""
    engine = make_engine(model(), AdapterStore(load_from(model()), 8))
    chunk = group("t0", size=1)[0].chunk()
    assert chunk.adapter is not None
    others = [
        chunk,
        msgspec.structs.replace(chunk, adapter=None),
        msgspec.structs.replace(chunk, adapter=msgspec.structs.replace(chunk.adapter, digest="other")),
    ]
    for tenant, task, version in (("b", "t0", 1), ("local", "t4", 1), ("local", "t0", 2)):
        ref = ref_of(task, version, tenant)
        others.append(msgspec.structs.replace(chunk, policy=ref.policy, adapter=ref))
    roots = {engine._root(chunk) for chunk in others}
    for engine in (make_engine(model(dtype=torch.float32)), make_engine(model())):
        engine.base_digest = "another base" if engine.decoder.dtype == torch.bfloat16 else engine.base_digest
        roots.add(engine._root(chunk))
    assert len(roots) == 8
    engine = make_engine(model(), AdapterStore(load_from(model()), 8))
    for number, other in enumerate(others):
        engine.submit(msgspec.structs.replace(other, request_id=str(number)))
        while not engine.is_idle:
            for result in engine.step():
                assert result.stop == StopReason.LENGTH
                assert result.cached_tokens == 0


def test_identical_prompts_under_many_adapters() -> None:
    requests = [request for task in ("base", "t0", "t1", "t2", "t3") for request in group(task, size=2)]
    engine = make_engine(model(), max_rows=4)
    found = serve(engine, requests)
    assert engine.num_prefilled_tokens == 5 * (len(PROMPT) - 1)
    for request in requests:
        assert_same(model(), request, found[request.request_id])
    assert len({found[f"{task}@1/0"].logprobs for task in ("base", "t0", "t1", "t2", "t3")}) == 5


def test_prefix_that_ends_inside_a_block() -> None:
    engine = make_engine(model())
    serve(engine, group("t0", size=1))
    fork = Request("fork", (*PROMPT[:21], 9, 8, 7), SamplingParams(5), "t0")
    found = serve(engine, [fork])["fork"]
    assert found.cached_tokens == 21
    assert_same(model(), fork, found)


def test_long_prompt_does_not_hold_up_others() -> None:
    """While a prompt takes many passes, the others draw a token in every step."""
    long = Request("long", tuple(i % 380 for i in range(200)), SamplingParams(4), "t1")
    short = Request("short", PROMPT[:17], SamplingParams(10), "t0")
    late = Request("late", PROMPT, SamplingParams(4), "t2")
    with patch.object(engine_module, "PREFILL_TOKENS", 16):
        driver = Driver(make_engine(model()))
        driver.submit(short)
        driver.step()
        driver.submit(long, late)
        for _ in range(9):
            before = driver.engine.num_prefilled_tokens
            driver.step()
            assert driver.engine.num_decoded_rows == 1
            assert driver.engine.num_prefilled_tokens - before == 16
        assert driver.outcomes["short"].stop == StopReason.LENGTH
        found = driver.run()
    for request in (long, short, late):
        assert_same(model(), request, found[request.request_id])


def test_one_token_prompt_needs_no_prefill() -> None:
    single = model(dtype=torch.float32)
    engine = make_engine(single)
    requests = [Request(str(i), (i,), SamplingParams(6, seed=i), f"t{i}") for i in range(3)]
    found = serve(engine, requests)
    assert engine.num_prefilled_tokens == 0
    for request in requests:
        assert_same(single, request, found[request.request_id])


def test_data_carries_the_version() -> None:
    """P30: results name the version that drew them, chunk by chunk, whatever was published meanwhile."""
    driver = Driver(make_engine(model()), budget=2)
    driver.submit(*group("t0", version=1))
    for _ in range(3):
        driver.step()
    driver.submit(*group("t0", version=2))
    found = driver.run()
    for request in group("t0", version=1) + group("t0", version=2):
        assert {result.policy for result in found[request.request_id].results} == {PolicyVersion("local", "t0", request.version)}
        assert_same(model(), request, found[request.request_id])
