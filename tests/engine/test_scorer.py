"""Scores of given tokens: the engine's and transformers' log-probabilities, whatever else is scored or decoded."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from plait.engine import scorer as scorer_module
from plait.engine.adapters import AdapterStore
from plait.engine.score import NO_LOGPROB, ScoreRequest, Scores
from plait.engine.scorer import BATCH_TOKENS, Scorer
from plait.lora.mix import FusedAdapter
from plait.models.logprobs import scaled_logprobs
from plait.models.tiny import make_tiny_model
from plait.types.errors import AdapterError
from plait.types.policy import AdapterRef
from plait.types.sampling import SamplingParams
from tests.engine.tiny import (
    LORAS,
    Model,
    Request,
    adapter_tensors,
    assert_close,
    load_from,
    make_engine,
    model,
    ref_of,
    serve,
)
from tests.models.reference import load_decoder, random_tokens

MAX_TOKENS = 256


def make_scorer(model: Model, store: AdapterStore | None = None) -> Scorer:
    return Scorer(model.decoder, store or AdapterStore(load_from(model), 4), MAX_TOKENS)


def prompt(name: str, tokens: Sequence[int], task: str = "base", **more: Any) -> ScoreRequest:
    ref = ref_of(task)
    return ScoreRequest(name, tuple(tokens), ref.policy, None if task == "base" else ref, **more)


def score(scorer: Scorer, *requests: ScoreRequest, max_tokens: int = BATCH_TOKENS) -> dict[str, Scores]:
    for request in requests:
        scorer.submit(request)
    found: dict[str, Scores] = {}
    while not scorer.is_idle:
        found |= {scores.request_id: scores for scores in scorer.step(max_tokens)}
    assert scorer.adapters.num_references == 0
    return found


def some_tokens(model: Model, seed: int, count: int) -> list[int]:
    return np.random.default_rng(seed).integers(3, model.config.vocab_size, count).tolist()


@pytest.fixture(params=[torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def tiny(request: pytest.FixtureRequest) -> Model:
    return model("llama", request.param)


def test_scores_are_the_engines_logprobs(tiny: Model) -> None:
    requests = [
        Request(f"{task}-{n}", tuple(some_tokens(tiny, n, 5 + 7 * n)), SamplingParams(12, temperature=t, seed=n), task=task)
        for n, (task, t) in enumerate([("base", 1.0), ("t0", 1.0), ("t1", 0.7), ("t3", 1.3), ("t0", 0.0)])
    ]
    drawn = serve(make_engine(tiny), requests)
    prompts = [
        prompt(r.request_id, (*r.context, *drawn[r.request_id].tokens), r.task, temperature=r.params.temperature) for r in requests
    ]
    found = score(make_scorer(tiny), *prompts)
    for request in requests:
        logprobs = found[request.request_id].logprobs_L
        assert len(logprobs) == len(request.context) + len(drawn[request.request_id].tokens)
        assert_close(tiny, request, logprobs[len(request.context) :].tolist(), drawn[request.request_id].logprobs)


def test_scores_are_those_of_transformers(tmp_path: Path) -> None:
    folder = make_tiny_model(tmp_path)
    decoder = load_decoder(folder)
    row = random_tokens(decoder.config.vocab_size)[0]
    reference = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.inference_mode():
        logits = reference(row[None]).logits[0]
    expected = scaled_logprobs(logits[:-1], 0.8).gather(1, row[1:, None])[:, 0]
    scorer = Scorer(decoder, AdapterStore(lambda _: pytest.fail("no adapter is needed"), 1), MAX_TOKENS)
    found = score(scorer, prompt("p", row.tolist(), temperature=0.8))["p"].logprobs_L
    assert math.isnan(found[0])
    assert found[1:].tolist() == pytest.approx(expected.tolist(), abs=1e-4)


def test_company_and_the_cut_into_passes_and_chunks_change_nothing(tiny: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = [
        prompt(f"p{n}", some_tokens(tiny, n, 3 + 11 * n), task) for n, task in enumerate(["t0", "base", "t0", "t0", "t1", "t0"])
    ]
    together = score(make_scorer(tiny), *requests)
    monkeypatch.setattr(scorer_module, "CHUNK_ROWS", 5)
    alone = {r.request_id: score(make_scorer(tiny), r, max_tokens=9)[r.request_id] for r in requests}
    for name, scores in together.items():
        left, right = scores.logprobs_L[1:], alone[name].logprobs_L[1:]
        assert np.isfinite(left).all()
        if tiny.is_exact:
            assert left.tolist() == right.tolist()
        elif tiny.decoder.dtype == torch.float32:
            assert left.tolist() == pytest.approx(right.tolist(), abs=1e-5)


def test_prompts_of_one_policy_share_a_pass_within_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = model("llama", torch.float32)
    monkeypatch.setattr(scorer_module, "BATCH_TOKENS", 32)
    scorer = make_scorer(tiny)
    for name, count, task in [
        ("a", 10, "t0"),
        ("b", 4, "base"),
        ("c", 8, "t0"),
        ("long", 70, "t0"),
        ("d", 10, "t0"),
        ("e", 3, "t0"),
    ]:
        scorer.submit(prompt(name, some_tokens(tiny, 1, count), task))
    passes = [[scores.request_id for scores in scorer.step(32)] for _ in range(6)]
    assert passes == [["a", "c", "d"], ["b"], [], [], ["long"], ["e"]]
    assert scorer.is_idle


def test_everything_asked_at_once_fits_together() -> None:
    tiny = model("llama", torch.float32)
    tokens, length, first = some_tokens(tiny, 0, 30), 30, 12
    targets = np.array([[t, 7, -1] for t in tokens[1:]], np.int32)
    targets[20] = -1
    asked = prompt("p", tokens, "t0", temperature=0.9, top_k=4, num_alternatives=3, seed=5, targets_TK=targets)
    found = score(make_scorer(tiny), asked)["p"]
    greedy = found.top_logprobs_LK[1:]
    assert (np.diff(greedy, axis=1) <= 0).all()
    assert (greedy[:, 0] >= found.logprobs_L[1:]).all()
    is_top = found.top_ids_LK[1:] == np.array(tokens[1:])[:, None]
    assert greedy[is_top].tolist() == found.logprobs_L[1:][is_top.any(axis=1)].tolist()
    own = found.target_logprobs_TK[:, 0]
    assert np.delete(own, 20).tolist() == np.delete(found.logprobs_L[1:], 20).tolist()
    assert np.isnan(found.target_logprobs_TK[20]).all()
    assert np.isnan(found.target_logprobs_TK[:, 2]).all()
    assert (found.top_ids_LK[0].tolist(), found.top_logprobs_LK[0].tolist()) == ([0] * 4, [NO_LOGPROB] * 4)
    again = score(make_scorer(tiny), asked)["p"]
    assert found.alternative_ids_LN.tolist() == again.alternative_ids_LN.tolist()
    assert len({tuple(column) for column in found.alternative_ids_LN[1:].T.tolist()}) == 3, "draws are independent"
    late = score(make_scorer(tiny), replace(asked, first_position=first))["p"]
    for name in ("logprobs_L", "top_ids_LK", "alternative_ids_LN", "alternative_logprobs_LN"):
        assert getattr(late, name)[first:].tolist() == getattr(found, name)[first:].tolist()
    assert np.isnan(late.logprobs_L[:first]).all()
    assert len(late.logprobs_L) == length
    assert np.isnan(late.target_logprobs_TK[: first - 1]).all()


def test_alternatives_follow_the_distribution() -> None:
    tiny = model("llama", torch.float32)
    count, tokens = 4000, some_tokens(tiny, 3, 2)
    found = score(make_scorer(tiny), prompt("p", tokens, num_alternatives=count, top_k=3))["p"]
    for token, logprob in zip(found.top_ids_LK[1], found.top_logprobs_LK[1], strict=True):
        p = math.exp(logprob)
        share = (found.alternative_ids_LN[1] == token).mean()
        assert abs(share - p) < 5 * math.sqrt(p * (1 - p) / count)


def test_a_single_token_has_nothing_to_score() -> None:
    tiny = model("llama", torch.float32)
    found = score(make_scorer(tiny), prompt("p", [5]))["p"]
    assert not found.error
    assert np.isnan(found.logprobs_L).all()
    assert len(found.logprobs_L) == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokens": ()}, "tokens has 0 tokens: it must be 1 to 256"),
        ({"tokens": (5,) * 257}, "tokens has 257 tokens"),
        ({"tokens": (5, 10_000)}, "holds the id 10000"),
        ({"temperature": -1.0}, "temperature is -1.0"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"top_k": 100_000}, "top_k is 100000"),
        ({"num_alternatives": -1}, "neither may be negative"),
        ({"targets_TK": np.zeros((3, 1), np.int32)}, "one for each of 5 tokens but the first"),
        ({"targets_TK": np.full((4, 1), -2, np.int32)}, "targets holds the id -2"),
    ],
)
def test_what_cannot_be_served_is_a_user_error(changes: dict[str, Any], message: str) -> None:
    tiny = model("llama", torch.float32)
    bad = replace(prompt("bad", some_tokens(tiny, 0, 5)), **changes)
    found = score(make_scorer(tiny), bad, prompt("good", some_tokens(tiny, 0, 5)))
    assert message in found["bad"].error
    assert found["bad"].is_user_error
    assert not found["good"].error


def test_an_adapter_that_cannot_be_read_fails_its_prompts_alone() -> None:
    tiny = model("llama", torch.float32)

    def load(ref: AdapterRef) -> FusedAdapter:
        if ref.policy.task == "t1":
            raise AdapterError("it is torn.", "Publish it again.")
        return load_from(tiny)(ref)

    requests = [prompt(f"{task}{n}", some_tokens(tiny, n, 6), task) for n in range(2) for task in ("t1", "t0")]
    found = score(make_scorer(tiny, AdapterStore(load, 4)), *requests)
    assert {name for name, scores in found.items() if "it is torn" in scores.error} == {"t10", "t11"}
    assert not any(scores.is_user_error for scores in found.values())


def test_logits_that_are_not_finite_are_an_error() -> None:
    tiny = model("llama", torch.float32)
    tensors = {name: t * math.inf if name.endswith(".B") else t for name, t in adapter_tensors(tiny.config, LORAS[0], 1).items()}
    broken = FusedAdapter(LORAS[0], tensors, tiny.config, tiny.decoder.dtype)
    found = score(make_scorer(tiny, AdapterStore(lambda _: broken, 1)), prompt("p", some_tokens(tiny, 0, 6), "t0"))["p"]
    assert "not finite" in found.error
    assert "local/t0@1" in found.error
    assert not found.is_user_error


def test_a_waiting_prompt_can_be_cancelled_and_ids_are_unique() -> None:
    tiny = model("llama", torch.float32)
    scorer = make_scorer(tiny)
    scorer.submit(prompt("p", some_tokens(tiny, 0, 6)))
    scorer.submit(prompt("p", some_tokens(tiny, 0, 6)))
    scorer.cancel("p")
    scorer.cancel("unknown")
    errors = [scores.error for scores in scorer.step()]
    assert len(errors) == 2
    assert "already running" in errors[0]
    assert errors[1] == "it was cancelled"
    assert scorer.is_idle
