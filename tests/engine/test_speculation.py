"""Drafts, right or wrong, change no token and no bit of a log-probability."""

from dataclasses import replace
from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.engine import engine as engine_module
from plait.engine.speculation import Speculation
from plait.types.sampling import SamplingParams, StopReason
from tests.engine.drafters import ScriptedDrafter, bushes, garbage, half_truth, several, speculation, truth
from tests.engine.test_parity import MACHINES, MAX_CONTEXT, PHASES, Machine, request_lists
from tests.engine.tiny import Driver, Model, Request, assert_close, assert_same, expected, make_engine, model, serve

PROMPT = tuple(range(3, 40))
VOCAB = 384


def start(tiny: Model, drafts: Speculation, machine: Machine) -> Driver:
    engine = make_engine(
        tiny, max_rows=machine.max_rows, slot_tokens=machine.slot_tokens, pool_tokens=machine.pool_tokens,
        max_context_tokens=MAX_CONTEXT, decode=tiny.tokenizer.decode, speculation=drafts,
    )  # fmt: skip
    return Driver(engine, machine.budget)


def answers_of(tiny: Model, requests: list[Request], max_context_tokens: int = MAX_CONTEXT) -> dict[str, tuple[int, ...]]:
    return {request.request_id: expected(tiny, request, max_context_tokens)[0] for request in requests}


def speculation_of(driver: Driver) -> Speculation:
    found = driver.engine.speculation
    assert found is not None
    return found


KINDS = ("truth", "garbage", "half", "bushes", "bushes")


def drafts_of(kind: str, tiny: Model, requests: list[Request], seed: int) -> Speculation:
    answers = answers_of(tiny, requests)
    if kind == "bushes":
        return several(bushes(answers, seed, VOCAB))
    return speculation({"truth": truth(answers), "garbage": garbage(seed, VOCAB), "half": half_truth(answers, seed, VOCAB)}[kind])


@given(request_lists(), MACHINES, st.sampled_from(KINDS), st.integers(0, 99))
@settings(max_examples=26, deadline=None, phases=PHASES)
def test_any_mix_in_bfloat16(requests: list[Request], machine: Machine, kind: str, seed: int) -> None:
    check_mix(model(), requests, machine, kind, seed)


@given(request_lists(), MACHINES, st.sampled_from(KINDS), st.integers(0, 99))
@settings(max_examples=16, deadline=None, phases=PHASES)
def test_any_mix_in_float32(requests: list[Request], machine: Machine, kind: str, seed: int) -> None:
    check_mix(model(dtype=torch.float32), requests, machine, kind, seed)


def check_mix(tiny: Model, requests: list[Request], machine: Machine, kind: str, seed: int) -> None:
    with patch.object(engine_module, "PREFILL_TOKENS", machine.prefill_tokens):
        driver = start(tiny, drafts_of(kind, tiny, requests, seed), machine)
        driver.submit(*requests)
        outcomes = driver.run()
    for request in requests:
        assert_same(tiny, request, outcomes[request.request_id], max_context_tokens=MAX_CONTEXT)
    assert speculation_of(driver).drafter.drawn_tokens == {}  # type: ignore[attr-defined]


@given(request_lists(), MACHINES, st.lists(st.tuples(st.integers(0, 8), st.integers(0, 11)), max_size=6), st.integers(0, 99))
@settings(max_examples=10, deadline=None, phases=PHASES)
def test_cancelling_at_any_moment(requests: list[Request], machine: Machine, cancels: list[tuple[int, int]], seed: int) -> None:
    tiny = model()
    driver = start(tiny, drafts_of(("half", "bushes")[seed % 2], tiny, requests, seed), machine)
    driver.submit(*requests)
    for step in range(9):
        for moment, place in cancels:
            if moment == step and place < len(requests):
                driver.engine.cancel(requests[place].request_id)
        driver.step()
    for name, outcome in driver.run().items():
        request = next(request for request in requests if request.request_id == name)
        tokens, logprobs, stop = expected(tiny, request, MAX_CONTEXT)
        assert outcome.stop in (stop, StopReason.CANCELLED)
        assert outcome.tokens == tokens[: len(outcome.tokens)]
        assert_close(tiny, request, outcome.logprobs, logprobs[: len(outcome.tokens)])


def test_true_drafts_save_steps() -> None:
    requests = [Request(f"{i}", PROMPT, SamplingParams(36, seed=i), "t0") for i in range(3)]
    engine = make_engine(model(), speculation=speculation(truth(answers_of(model(), requests, 256))))
    driver = Driver(engine)
    driver.submit(*requests)
    outcomes = driver.run()
    for request in requests:
        assert_same(model(), request, outcomes[request.request_id])
    found = speculation_of(driver)
    assert found.num_verify_steps == found.num_steps
    assert found.num_proposed == found.num_accepted == 3 * 36 - found.num_rows
    assert found.tokens_per_row_step == pytest.approx(3 * 36 / found.num_rows)
    assert found.tokens_per_row_step > 4
    assert engine.num_decoded_tokens == 3 * 36


def test_no_draft_takes_the_plain_path() -> None:
    requests = [Request(f"{i}", PROMPT, SamplingParams(5, seed=i)) for i in range(3)]
    with patch("plait.engine.drawing.draw_after_each", side_effect=AssertionError("a verification")):
        engine = make_engine(model(), speculation=speculation(lambda *_: ()))
        outcomes = serve(engine, requests)
    for request in requests:
        assert_same(model(), request, outcomes[request.request_id])
    assert engine.speculation is not None
    assert engine.speculation.num_verify_steps == 0
    assert engine.speculation.tokens_per_row_step == 1


def test_the_drafter_is_told_all() -> None:
    """Across the cuts between chunks, with times of the clock that was passed in."""
    request = Request("a", PROMPT, SamplingParams(20, seed=3), "t1")
    tokens = expected(model(), request)[0]
    engine = make_engine(model(), speculation=speculation(truth({"a": tokens})))
    engine.submit(replace(request, keep_cache=True).chunk(budget=7))
    first = finish(engine)
    engine.submit(request.chunk(first, budget=30))
    assert (*first, *finish(engine)) == tokens
    assert engine.speculation is not None
    drafter = engine.speculation.drafter
    assert isinstance(drafter, ScriptedDrafter)
    assert drafter.starts == [("", "a", PROMPT, ()), ("", "a", PROMPT, tokens[:7])]
    assert sum(report.drawn_tokens for report in drafter.reports) == 20
    assert [(report.draft_s, report.decode_s) for report in drafter.reports[:2]] == [(1, 1), (2, 1)]
    assert {report.draft_s for report in drafter.reports[1:]} == {2}, "telling the drafter of a step is part of what drafting takes"
    assert [report.proposed_R for report in drafter.reports] == [(6,), (8,), (3,)]


def finish(engine: engine_module.Engine) -> tuple[int, ...]:
    for _ in range(100):
        done = engine.step()
        if done:
            return done[0].tokens
    raise AssertionError("the engine makes no progress")


@pytest.mark.parametrize("stop_at", [3, 4, 5, 11])
def test_nothing_beyond_a_stop_in_an_accepted_run(stop_at: int) -> None:
    plain = Request("plain", PROMPT, SamplingParams(24, seed=1), "t0")
    tokens = expected(model(), plain)[0]
    stop = tokens[stop_at]
    request = replace(plain, params=SamplingParams(24, seed=1, stop_token_ids=(stop,)), keep_cache=True)
    engine = make_engine(model(), speculation=speculation(truth({"plain": tokens})))
    outcome = serve(engine, [request])["plain"]
    assert outcome.tokens == tokens[: tokens.index(stop) + 1]
    assert_same(model(), request, outcome)
    length = len(PROMPT) + len(outcome.tokens) - 1
    assert engine.pool.lookup(engine._root(request.chunk()), (*PROMPT, *tokens)).num_tokens == length


@pytest.mark.parametrize("kind", ["half", "bushes"])
def test_rejected_tokens_leave_nothing_in_slot_or_pool(kind: str) -> None:
    """Whatever is cached equals what plain decoding leaves, whichever path came true."""
    request = Request("a", PROMPT, SamplingParams(40, seed=3), "t0")
    tokens = expected(model(), request)[0]
    caches = []
    drafts = several(bushes({"a": tokens}, 1, VOCAB)) if kind == "bushes" else speculation(half_truth({"a": tokens}, 1, VOCAB))
    for found in (drafts, None):
        engine = make_engine(model(), speculation=found)
        engine.submit(request.chunk(budget=35))
        while len(engine.rows or [None]) and not (engine.rows and len(engine.rows[0].tokens) >= len(PROMPT) + 20):
            engine.step()
        row = engine.rows[0]
        slot = engine.slots.row(0)
        assert not slot[..., row.num_computed :, :].any()
        caches.append(slot[..., : len(PROMPT) + 19, :].clone())
        serve_rest(engine)
        stored = engine.pool.lookup(row.root, row.tokens)
        assert stored.num_tokens == len(PROMPT) + 34
        caches.append(torch.cat([engine.kv.storage.data[p.index, ..., : p.num_tokens, :] for p in stored.pieces], dim=-2))
    assert torch.equal(caches[0], caches[2])
    assert torch.equal(caches[1], caches[3])
    assert drafts.num_accepted > 3
    assert (drafts.num_branch_tokens > 0) == (kind == "bushes")


def serve_rest(engine: engine_module.Engine) -> None:
    while not engine.is_idle:
        engine.step()


def test_drafts_respect_the_slots_memory() -> None:
    """Two rows whose longest ends fill the memory to the last token."""
    requests = [Request(f"{i}", PROMPT[: 20 + i], SamplingParams(27, seed=i)) for i in range(2)]
    answers = answers_of(model(), requests, 256)
    engine = make_engine(model(), slot_tokens=2 * 48, speculation=speculation(truth(answers)))
    outcomes = serve(engine, requests)
    assert max(row for row in (engine.slots.data.shape[4],)) <= 48
    for request in requests:
        assert_same(model(), request, outcomes[request.request_id])


def test_a_draft_that_is_not_a_number_is_undone() -> None:
    """The base's embedding of one token is NaN: drawing never meets it, a draft does."""
    tiny = model(vocab_size=390, tied_embeddings=False)
    request = Request("a", PROMPT, SamplingParams(12, seed=3), "t0")
    want = expected(tiny, request)
    bad = next(token for token in range(390) if token not in want[0] and token not in PROMPT)
    embedding, kept = tiny.decoder.embedding_VE, tiny.decoder.embedding_VE[bad].clone()
    try:
        embedding[bad] = float("nan")
        engine = make_engine(tiny, speculation=speculation(lambda name, drawn, most: [want[0][len(drawn)], bad][:most]))
        outcome = serve(engine, [request])["a"]
    finally:
        embedding[bad] = kept
    assert_same(tiny, request, outcome)


@pytest.mark.parametrize("family", ["qwen2", "qwen3"])
def test_other_families(family: str) -> None:
    tiny = model(family)
    requests = [
        Request(f"{task}/{i}", PROMPT[i:], SamplingParams(12, seed=i, top_k=7 * (i % 2)), task)
        for task in ("base", "t0", "t1", "t3")
        for i in range(4)
    ]
    engine = make_engine(tiny, max_rows=9, speculation=speculation(half_truth(answers_of(tiny, requests, 256), 5, VOCAB)))
    outcomes = serve(engine, requests, budget=5)
    for request in requests:
        assert_same(tiny, request, outcomes[request.request_id])
