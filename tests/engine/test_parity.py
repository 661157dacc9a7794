"""Whatever else is in the batch, and however it is cut: each request gets what the reference engine gives it alone."""

from dataclasses import dataclass
from unittest.mock import patch

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from plait.engine import engine as engine_module
from plait.engine.sampler import Sampler
from plait.types.sampling import SamplingParams, StopReason
from tests.engine.tiny import Driver, Model, Request, assert_close, assert_same, expected, make_engine, model, serve

MAX_CONTEXT = 48
PROMPTS = tuple(tuple((7 * start + 3 * i * i) % 380 for i in range(length)) for start, length in enumerate((1, 2, 16, 17, 33, 40)))
"""One token, whole blocks, and one token more than that."""
CONTEXTS = (*PROMPTS, (*PROMPTS[4][:20], 5, 6), (*PROMPTS[5][:37], 1))
"""The last two go their own way inside a block of another prompt."""

PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
"""A scenario takes a second: shrinking one would take many minutes."""

PARAMS = st.builds(
    SamplingParams,
    max_new_tokens=st.integers(1, 12),
    temperature=st.sampled_from([0.0, 0.7, 1.0, 1.0]),
    top_p=st.sampled_from([1.0, 1.0, 0.8]),
    top_k=st.sampled_from([0, 0, 5]),
    stop_token_ids=st.sampled_from([(), tuple(range(0, 384, 9))]),
    stop_strings=st.sampled_from([(), (), ("a", "9 "), ("er",)]),
    seed=st.integers(0, 5),
)


def request_lists() -> st.SearchStrategy[list[Request]]:
    request = st.builds(
        Request,
        request_id=st.uuids(version=4).map(str),
        context=st.sampled_from(CONTEXTS),
        params=PARAMS,
        task=st.sampled_from(["base", "t0", "t0", "t1", "t2", "t3"]),
        version=st.sampled_from([1, 1, 2]),
        keep_cache=st.booleans(),
    )
    return st.lists(request, min_size=1, max_size=12, unique_by=lambda request: request.request_id)


@dataclass(frozen=True)
class Machine:
    """How little the engine has to work with."""

    max_rows: int
    slot_tokens: int
    pool_tokens: int
    prefill_tokens: int
    budget: int


MACHINES = st.builds(
    Machine,
    max_rows=st.sampled_from([1, 2, 3, 8]),
    slot_tokens=st.sampled_from([MAX_CONTEXT, 3 * MAX_CONTEXT - 5, 4096]),
    pool_tokens=st.sampled_from([16, 64, 2048]),
    prefill_tokens=st.sampled_from([1, 7, 32, 512]),
    budget=st.sampled_from([1, 2, 5, 1000]),
)


def start(model: Model, machine: Machine, use_gumbel: bool = False) -> Driver:
    engine = make_engine(
        model, max_rows=machine.max_rows, slot_tokens=machine.slot_tokens, pool_tokens=machine.pool_tokens,
        max_context_tokens=MAX_CONTEXT, sampler=Sampler(use_gumbel), decode=model.tokenizer.decode,
    )  # fmt: skip
    return Driver(engine, machine.budget)


@given(request_lists(), MACHINES)
@settings(max_examples=15, deadline=None, phases=PHASES)
def test_any_mix_in_bfloat16(requests: list[Request], machine: Machine) -> None:
    check_mix(model(), requests, machine)


@given(request_lists(), MACHINES, st.booleans())
@settings(max_examples=10, deadline=None, phases=PHASES)
def test_any_mix_in_float32(requests: list[Request], machine: Machine, use_gumbel: bool) -> None:
    check_mix(model(dtype=torch.float32), requests, machine, use_gumbel)


def check_mix(model: Model, requests: list[Request], machine: Machine, use_gumbel: bool = False) -> None:
    with patch.object(engine_module, "PREFILL_TOKENS", machine.prefill_tokens):
        driver = start(model, machine, use_gumbel)
        driver.submit(*requests)
        outcomes = driver.run()
    for request in requests:
        assert_same(model, request, outcomes[request.request_id], max_context_tokens=MAX_CONTEXT, use_gumbel=use_gumbel)


@pytest.mark.parametrize("family", ["qwen2", "qwen3"])
def test_other_families(family: str) -> None:
    requests = [
        Request(f"{task}/{i}", CONTEXTS[(i * 3) % 8], SamplingParams(9, seed=i), task)
        for task in ("base", "t0", "t1", "t3")
        for i in range(4)
    ]
    found = serve(make_engine(model(family), max_rows=5), requests, budget=4)
    for request in requests:
        assert_same(model(family), request, found[request.request_id])


@pytest.mark.parametrize("vocab_size", [300, 512, 771])
def test_vocabulary_of_any_size(vocab_size: int) -> None:
    odd = model(vocab_size=vocab_size, tied_embeddings=False)
    requests = [Request(f"{i}", (i, vocab_size - 1), SamplingParams(12, seed=i), f"t{i % 4}") for i in range(8)]
    found = serve(make_engine(odd), requests)
    for request in requests:
        assert_same(odd, request, found[request.request_id])


@given(request_lists(), MACHINES, st.lists(st.tuples(st.integers(0, 20), st.integers(0, 11)), max_size=6))
@settings(max_examples=12, deadline=None, phases=PHASES)
def test_cancelling_at_any_moment(requests: list[Request], machine: Machine, cancels: list[tuple[int, int]]) -> None:
    tiny = model()
    with patch.object(engine_module, "PREFILL_TOKENS", machine.prefill_tokens):
        driver = start(tiny, machine)
        driver.submit(*requests)
        for step in range(21):
            for moment, place in cancels:
                if moment == step and place < len(requests):
                    driver.engine.cancel(requests[place].request_id)
            driver.step()
        outcomes = driver.run()
    for request in requests:
        outcome = outcomes[request.request_id]
        if outcome.stop == StopReason.CANCELLED:
            tokens, logprobs, _ = expected(tiny, request, MAX_CONTEXT)
            assert outcome.tokens == tokens[: len(outcome.tokens)]
            assert_close(tiny, request, outcome.logprobs, logprobs[: len(outcome.tokens)])
        else:
            assert_same(tiny, request, outcome, max_context_tokens=MAX_CONTEXT)
    assert driver.engine.pool.num_stored <= driver.engine.pool.num_blocks


def test_many_adapters_in_one_batch() -> None:
    """More than are worth stacking: rows are taken adapter by adapter then."""
    requests = [Request(f"{i}", PROMPTS[3], SamplingParams(6, seed=i), f"t{i % 11}") for i in range(22)]
    found = serve(make_engine(model(), max_rows=22), requests)
    for request in requests:
        assert_same(model(), request, found[request.request_id])


def test_order_of_submission_does_not_matter() -> None:
    requests = [Request(f"{i}", CONTEXTS[i % 8], SamplingParams(8, seed=i), f"t{i % 4}") for i in range(12)]
    one = serve(make_engine(model(), max_rows=5), requests)
    other = serve(make_engine(model(), max_rows=3), requests[::-1], budget=3)
    for request in requests:
        assert one[request.request_id].tokens == other[request.request_id].tokens
        assert_close(model(), request, one[request.request_id].logprobs, other[request.request_id].logprobs)
