"""Policies with a model of their own beside the base and its adapters, in one engine."""

from functools import cache

import pytest
import torch

from plait.engine.adapters import AdapterStore, Weights
from plait.engine.reference import ReferenceEngine
from plait.engine.sampler import Sampler
from plait.engine.score import ScoreRequest
from plait.engine.scorer import Scorer
from plait.kv.keys import root_key
from plait.models.decoder import Decoder
from plait.types.policy import AdapterRef
from plait.types.sampling import SamplingParams
from tests.engine.tiny import (
    Driver,
    Outcome,
    Request,
    adapter,
    assert_close,
    assert_same,
    make_engine,
    model,
    ref_of,
    serve,
)

PROMPT = tuple(range(40, 75))


@cache
def own(task: str, version: int) -> dict[bool, Decoder]:
    """Other weights than the base's: the engine's decoder (prepacked), and the reference's."""
    generator = torch.Generator().manual_seed(version * 10 + int(task[1:]))
    base = model()
    weights = {
        name: (tensor.float() + 0.3 * tensor.float().std() * torch.randn(tensor.shape, generator=generator)).to(tensor.dtype)
        for name, tensor in base.weights.items()
    }
    return {prepack: Decoder(base.config, weights, prepack=prepack, float32_bytes=0) for prepack in (True, False)}


class Store(AdapterStore):
    """Tasks f0, f1, ... have models of their own. `most` is how many were held at one time."""

    def __init__(self, max_models: int) -> None:
        self.most = 0
        super().__init__(self._load_one, 4, is_model=lambda ref: ref.policy.task.startswith("f"), max_models=max_models)

    def _load_one(self, ref: AdapterRef) -> Weights:
        task, version = ref.policy.task, ref.policy.version
        if not task.startswith("f"):
            loaded = adapter(model(), task, version)
            assert loaded is not None
            return loaded
        self.most = max(self.most, 1 + sum(name.task.startswith("f") for name in self.resident))
        return own(task, version)[True]


def request(number: int, task: str, version: int = 1, tokens: int = 12) -> Request:
    return Request(f"{task}@{version}/{number}", PROMPT[: 20 + number], SamplingParams(tokens, seed=number), task, version)


def assert_as_alone(wanted: Request, outcome: Outcome) -> None:
    if not wanted.task.startswith("f"):
        assert_same(model(), wanted, outcome)
        return
    reference = ReferenceEngine(own(wanted.task, wanted.version)[False], Sampler(), 256, model().tokenizer.decode)
    tokens, logprobs, stop = reference.generate(wanted.context, wanted.params, None)
    assert (outcome.tokens, outcome.stop) == (tokens, stop)
    assert_close(model(), wanted, outcome.logprobs, logprobs)


def mixed() -> list[Request]:
    policies = [("f0", 1), ("base", 1), ("f0", 2), ("t0", 1), ("f1", 1)]
    return [request(number, task, version) for number in range(3) for task, version in policies]


@pytest.mark.parametrize("max_models", [1, 2, 3])
def test_each_row_is_what_a_reference_engine_with_its_weights_says(max_models: int) -> None:
    store = Store(max_models)
    outcomes = serve(make_engine(model(), store), mixed(), budget=5)
    for wanted in mixed():
        assert_as_alone(wanted, outcomes[wanted.request_id])
    assert store.most == max_models
    assert sum(policy.task.startswith("f") for policy in store.resident) == max_models


def test_models_take_turns_with_all_their_rows() -> None:
    store = Store(1)
    engine = make_engine(model(), store, max_rows=16)
    requests = [request(number, task, tokens=6) for number in range(4) for task in ("f0", "f1")]
    serve(engine, requests, budget=3)
    assert store.num_loads <= 6, "a model is loaded for many rows, not for each"


def test_a_version_stays_until_its_rows_have_ended() -> None:
    store = Store(1)
    driver = Driver(make_engine(model(), store))
    driver.submit(request(0, "f0", 1, tokens=20))
    driver.step()
    driver.submit(request(0, "f0", 2), request(1, "t0"))
    for _ in range(3):
        driver.step()
    assert [row.chunk.policy.version for row in driver.engine.rows if row.chunk.policy.task == "f0"] == [1]
    assert any(row.chunk.policy.task == "t0" for row in driver.engine.rows), "adapters go on meanwhile"
    outcomes = driver.run()
    for wanted in (request(0, "f0", 1, tokens=20), request(0, "f0", 2), request(1, "t0")):
        assert_as_alone(wanted, outcomes[wanted.request_id])
    assert [policy.version for policy in store.resident if policy.task == "f0"] == [2]


def test_caches_of_policies_are_apart() -> None:
    engine = make_engine(model(), Store(2))
    one = Request("a", PROMPT, SamplingParams(4, seed=1), "base", keep_cache=True)
    others = [Request(f"{task}{version}", PROMPT, one.params, task, version) for task, version in (("f0", 1), ("f0", 2), ("t0", 1))]
    serve(engine, [one])
    for other in others:
        outcome = serve(engine, [other])[other.request_id]
        assert outcome.cached_tokens == 0
        assert_as_alone(other, outcome)
    again = Request("again", PROMPT, one.params, "f0", 2)
    assert serve(engine, [again])["again"].cached_tokens > 0
    roots = {root_key("base", "bf16", ref.policy, digest) for ref in map(ref_of, ("f0", "f1")) for digest in (None, ref.digest)}
    assert len(roots) == 4


def score_request(number: int, task: str) -> ScoreRequest:
    ref = ref_of(task)
    return ScoreRequest(f"score {number}", PROMPT, ref.policy, None if task == "base" else ref)


def test_a_prompt_is_scored_by_its_model_also_where_rows_hold_all_places() -> None:
    tiny, store = model(), Store(1)
    engine, scorer = make_engine(tiny, store), Scorer(tiny.decoder, store, 256)
    driver = Driver(engine, budget=4)
    driver.submit(*(request(number, "f0", tokens=16) for number in range(3)))
    driver.step()
    scorer.submit(score_request(1, "f1"))
    done = []
    for _ in range(40):
        done += scorer.step()
        driver.step()
    assert [scores.error for scores in done] == [""]
    alone = Scorer(own("f1", 1)[True], AdapterStore(lambda ref: pytest.fail("none"), 1), 256)
    alone.submit(score_request(1, "base"))
    (wanted,) = alone.step()
    assert done[0].logprobs_L[1:].tolist() == pytest.approx(wanted.logprobs_L[1:].tolist(), abs=0 if tiny.is_exact else 1e-4)
    driver.run()


def test_a_model_that_cannot_be_read_fails_its_own_chunks() -> None:
    def load(ref: AdapterRef) -> Weights:
        raise FileNotFoundError("no such file")

    store = AdapterStore(load, 2, is_model=lambda ref: ref.policy.task == "f0")
    outcomes = serve(make_engine(model(), store), [request(0, "f0"), request(1, "base")])
    assert "cannot be read: no such file" in outcomes["f0@1/0"].error
    assert_as_alone(request(1, "base"), outcomes["base@1/1"])
