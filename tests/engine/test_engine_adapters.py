"""Versions come, go and are replaced while rows are decoded; no row ever meets weights that are not its own."""

import random
import sys
from pathlib import Path

import pytest

from plait.cluster.rollout_role import load_adapter
from plait.engine.adapters import AdapterStore
from plait.lora.initial import pristine_adapter
from plait.lora.mix import FusedAdapter
from plait.types.lora import LoraConfig
from plait.types.policy import AdapterRef
from plait.types.sampling import SamplingParams, StopReason
from tests.engine.tiny import (
    ALL_LINEAR,
    LORAS,
    Driver,
    Outcome,
    Request,
    adapter_tensors,
    assert_same,
    load_from,
    make_engine,
    model,
    publish,
    ref_of,
    serve,
)

PROMPT = tuple(range(50, 70))


def test_churn_never_changes_a_running_row() -> None:
    """P01: greedy rows of two adapters, while others are loaded and evicted in every step."""
    store = AdapterStore(load_from(model()), 2)
    driver = Driver(make_engine(model(), store))
    running = [Request(task, PROMPT, SamplingParams(40, temperature=0), task) for task in ("t1", "t2")]
    driver.submit(*running)
    for step in range(30):
        churn = Request(f"churn {step}", PROMPT, SamplingParams(1, seed=step), f"t{3 + step % 6}")
        driver.submit(churn)
        driver.step()
        assert {ref_of(task).policy for task in ("t1", "t2")} <= set(store.resident)
    found = driver.run()
    assert store.num_loads >= 25, "the others did come and go"
    for request in driver.requests.values():
        assert_same(model(), request, found[request.request_id])


def test_random_traffic_of_many_adapters() -> None:
    """P07: eight adapters, a window of two."""
    rng, store = random.Random(1), AdapterStore(load_from(model()), 2)
    driver = Driver(make_engine(model(), store, max_rows=4), budget=3)
    for number in range(40):
        driver.submit(Request(str(number), PROMPT, SamplingParams(rng.randint(1, 8), seed=number), f"t{rng.randrange(8)}"))
        for _ in range(rng.randrange(4)):
            driver.step()
            assert len(store.resident) <= len({row.chunk.policy for row in driver.engine.rows}) + 2
    found = driver.run()
    for request in driver.requests.values():
        assert_same(model(), request, found[request.request_id])
    num_chunks = sum(len(outcome.results) for outcome in found.values())
    assert 8 <= store.num_loads <= num_chunks
    assert len(store.resident) <= 2


OPENED: list[str] = []
_is_counting = False


def _count_opens(event: str, arguments: tuple[object, ...]) -> None:
    if _is_counting and event == "open":
        OPENED.append(str(arguments[0]))


sys.addaudithook(_count_opens)


@pytest.fixture
def store_of_files(tmp_path: Path) -> tuple[AdapterStore, dict[tuple[str, int], AdapterRef]]:
    refs = {}
    for task in ("t0", "t1"):
        for version in (1, 2):
            lora = LORAS[int(task[1:])]
            tensors = adapter_tensors(model().config, lora, seed=100 * version + int(task[1:]))
            refs[task, version] = publish(tmp_path / task / str(version), lora, tensors, ref_of(task, version).policy)
    by_policy = {ref.policy: ref for ref in refs.values()}
    return AdapterStore(lambda ref: load_adapter(by_policy[ref.policy], model().decoder), 2), refs


def test_publishing_reads_each_file_once(store_of_files: tuple[AdapterStore, dict]) -> None:
    """P08: no file is opened in 100 decode steps after a publish; requests in flight finish on the version they began with."""
    global _is_counting
    store, refs = store_of_files
    driver = Driver(make_engine(model(), store))
    old = Request("old", PROMPT, SamplingParams(130, seed=1), "t0")
    driver.submit(old)
    driver.step()
    new = [Request(f"new {task}", PROMPT, SamplingParams(120, seed=2), task, 2) for task in ("t0", "t1")]
    driver.submit(*new)
    driver.step()
    OPENED.clear()
    _is_counting = True
    try:
        for _ in range(100):
            driver.step()
    finally:
        _is_counting = False
    assert driver.engine.num_decoded_rows == 3
    assert OPENED == []
    found = driver.run()
    assert store.num_loads == 3
    for request in (old, *new):
        assert_same(model(), request, found[request.request_id])
    assert set(store.resident) == {refs["t0", 2].policy, refs["t1", 2].policy}, "the old version has aged out"


def test_opens_are_seen(store_of_files: tuple[AdapterStore, dict]) -> None:
    """The check above does count what a load opens."""
    global _is_counting
    store, refs = store_of_files
    OPENED.clear()
    _is_counting = True
    try:
        store.acquire(refs["t0", 1])
    finally:
        _is_counting = False
    assert len(OPENED) >= 2


@pytest.mark.parametrize("beside", [(), ("t0", "t3")], ids=["alone", "among others"])
def test_pristine_adapter_is_the_base(beside: tuple[str, ...]) -> None:
    """P10, P31: B is zero, so a new task says what the base says; trained adapters do not."""
    lora = LoraConfig(rank=8, alpha=16.0, target_modules=(*ALL_LINEAR, "lm_head"), seed=3)
    pristine = FusedAdapter(lora, pristine_adapter(model().config, lora), model().config, model().decoder.dtype)
    store = AdapterStore(lambda ref: pristine if ref.policy.version == 0 else load_from(model())(ref), 2)
    params = SamplingParams(20, seed=4)
    found = serve(
        make_engine(model(), store),
        [Request(task, PROMPT, params, task) for task in ("base", *beside)] + [Request("new", PROMPT, params, "t8", 0)],
    )
    assert found["new"].tokens == found["base"].tokens
    assert found["new"].logprobs == found["base"].logprobs
    for task in beside:
        assert found[task].logprobs != found["base"].logprobs


def test_task_made_anew_in_the_place_of_another(tmp_path: Path) -> None:
    """P10: trained, deleted, created again under the same name: version 1 exists twice, with different weights."""
    refs = [
        publish(tmp_path / str(i), LORAS[0], adapter_tensors(model().config, LORAS[0], i), ref_of("t0").policy) for i in range(2)
    ]
    engine = make_engine(model(), AdapterStore(lambda ref: load_adapter(ref, model().decoder), 2))
    answers = []
    for ref in (refs[0], refs[1], refs[0]):
        request = Request("r", PROMPT, SamplingParams(12, seed=1), "t0")
        chunk = request.chunk()
        engine.submit(type(chunk)(chunk.request_id, chunk.policy, chunk.context_tokens, 12, chunk.sampling, ref))
        results = []
        while not engine.is_idle:
            results += engine.step()
        assert results[0].stop == StopReason.LENGTH
        answers.append(Outcome(results[0].tokens, results[0].logprobs, results))
    assert answers[0].logprobs == answers[2].logprobs != answers[1].logprobs
    assert answers[1].cached_tokens == 0
    assert answers[2].cached_tokens == len(PROMPT) - 1
