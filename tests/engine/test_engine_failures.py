"""What cannot be served fails alone, says why, and leaves nothing behind."""

import json
from pathlib import Path

import msgspec
import pytest

from plait.cluster.rollout_role import load_adapter
from plait.engine.adapters import AdapterStore
from plait.lora.mix import FusedAdapter
from plait.types.chunks import Chunk, ChunkResult
from plait.types.policy import AdapterRef, PolicyVersion
from plait.types.sampling import SamplingParams, StopReason
from tests.engine.tiny import (
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
    serve,
)

PROMPT = tuple(range(50, 70))
HEALTHY = [Request(f"healthy {i}", PROMPT, SamplingParams(8, seed=i), f"t{i}") for i in range(3)]


def serve_beside(store: AdapterStore, *chunks: Chunk) -> dict[str, ChunkResult]:
    """The results of `chunks`, served beside healthy requests, which must not notice."""
    engine = make_engine(model(), store)
    engine.submit(HEALTHY[0].chunk())
    results = {result.request_id: result for result in engine.step()}
    for chunk in (*chunks, HEALTHY[1].chunk(), HEALTHY[2].chunk()):
        engine.submit(chunk)
    while not engine.is_idle:
        results |= {result.request_id: result for result in engine.step()}
    engine.check_idle()
    for request in HEALTHY:
        result = results[request.request_id]
        assert_same(model(), request, Outcome(result.tokens, result.logprobs, [result]))
    return results


def assert_failed(result: ChunkResult, words: str) -> None:
    assert result.stop == StopReason.FAILED
    assert (result.tokens, result.logprobs, result.cache_handle) == ((), (), "")
    assert words in result.error


def test_hopeless_chunks_fail_beside_others() -> None:
    good = Request("bad", PROMPT, SamplingParams(5), "t0").chunk()
    hopeless = {
        "too long": (
            msgspec.structs.replace(good, context_tokens=(1,) * 300),
            "context_tokens has 300 tokens and max_context_tokens is 256",
        ),
        "bad id": (msgspec.structs.replace(good, context_tokens=(1, 384)), "context_tokens holds the id 384"),
        "no tokenizer": (
            msgspec.structs.replace(good, sampling=SamplingParams(5, stop_strings=("x",))),
            "sampling.stop_strings is ('x',)",
        ),
    }
    chunks = [msgspec.structs.replace(chunk, request_id=name) for name, (chunk, _) in hopeless.items()]
    results = serve_beside(AdapterStore(load_from(model()), 4), *chunks)
    for name, (_, words) in hopeless.items():
        assert_failed(results[name], words)


def test_request_id_that_is_already_running() -> None:
    engine = make_engine(model(), max_rows=1)
    for request in HEALTHY[:2]:
        engine.submit(request.chunk())
    engine.step()
    engine.submit(HEALTHY[0].chunk())
    engine.submit(HEALTHY[1].chunk())
    refused = engine.step()
    assert [result.request_id for result in refused] == ["healthy 0", "healthy 1"]
    for result in refused:
        assert_failed(result, f"request_id '{result.request_id}' is already running")
    driver = Driver(engine)
    driver.expect(*HEALTHY[:2])
    found = driver.run()
    for request in HEALTHY[:2]:
        assert_same(model(), request, found[request.request_id])


@pytest.fixture
def files(tmp_path: Path) -> dict[str, AdapterRef]:
    """Real PEFT folders, most of them damaged."""
    refs = {}
    for name in ("whole", "torn", "changed", "no config", "config is no JSON", "other model", "gone"):
        refs[name] = publish(
            tmp_path / name, LORAS[0], adapter_tensors(model().config, LORAS[0], 1), PolicyVersion("local", name, 1)
        )
    (tmp_path / "torn" / "adapter_model.safetensors").write_bytes(b"\x08\x00\x00")
    changed = tmp_path / "changed" / "adapter_model.safetensors"
    content = bytearray(changed.read_bytes())
    content[-7] ^= 1
    changed.write_bytes(content)
    (tmp_path / "no config" / "adapter_config.json").unlink()
    (tmp_path / "config is no JSON" / "adapter_config.json").write_text("{")
    config = tmp_path / "other model" / "adapter_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "r": 4}))
    for file in (tmp_path / "gone").iterdir():
        file.unlink()
    return refs


def test_adapters_that_cannot_be_read(files: dict[str, AdapterRef]) -> None:
    """P32's engine side too: one changed byte, and the version is refused while others serve on."""

    def load(ref: AdapterRef) -> FusedAdapter:
        return load_adapter(ref, model().decoder) if ref in files.values() else load_from(model())(ref)

    chunks = [Chunk(name, ref.policy, PROMPT, 5, SamplingParams(5), ref) for name, ref in files.items()]
    results = serve_beside(AdapterStore(load, 4), *chunks)
    assert results["whole"].stop == StopReason.LENGTH
    for name, words in {
        "torn": "adapter_model.safetensors is damaged",
        "changed": "its digest is",
        "no config": "adapter_config.json",
        "config is no JSON": "cannot be read",
        "other model": "rank 4 on this model needs",
        "gone": "No such file",
    }.items():
        assert_failed(results[name], words)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 3e38])
def test_adapter_that_has_diverged_spoils_nobody(value: float) -> None:
    """Rows beside it, rows that take its slot, and rows that move out of its slot give the same bits as ever."""
    tensors = adapter_tensors(model().config, LORAS[0], 1)
    tensors["layers.0.v_proj.B"][:] = value
    broken = FusedAdapter(LORAS[0], tensors, model().config, model().decoder.dtype)
    store = AdapterStore(lambda ref: broken if ref.policy.task == "t9" else load_from(model())(ref), 4)
    sick = [Request(f"sick {i}", (*PROMPT, i), SamplingParams(5, seed=i), "t9").chunk() for i in range(9)]
    results = serve_beside(store, *sick)
    for chunk in sick:
        assert_failed(results[chunk.request_id], "policy local/t9@1 gives logits that are not finite")


def test_diverged_row_that_is_cancelled_leaves_a_clean_slot() -> None:
    tensors = adapter_tensors(model().config, LORAS[0], 1)
    tensors["layers.0.v_proj.B"][:] = float("nan")
    broken = FusedAdapter(LORAS[0], tensors, model().config, model().decoder.dtype)
    store = AdapterStore(lambda ref: broken if ref.policy.task == "t9" else load_from(model())(ref), 4)
    engine = make_engine(model(), store, max_rows=1)
    engine.submit(Request("sick", PROMPT * 3, SamplingParams(5), "t9").chunk())
    engine._start_rows()
    engine._prefill()
    engine.cancel("sick")
    assert [result.stop for result in engine.step()] == [StopReason.CANCELLED]
    found = serve(engine, HEALTHY[:1])
    assert_same(model(), HEALTHY[0], found["healthy 0"])
