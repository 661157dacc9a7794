from contextlib import ExitStack, closing
from pathlib import Path

import pytest
import torch
from rich.console import Console

from benchmarks.seer_cases import TINY, Case, engine_size
from benchmarks.seer_headlines import headlines_of
from benchmarks.seer_preempting import PreemptingEngine
from benchmarks.seer_run import EngineProcess
from benchmarks.seer_table import draw_figure, print_rows
from benchmarks.seer_workload import SHAPES, SHORTEST_TOKENS, Request, Workload, make_workload
from plait.engine.adapters import AdapterStore
from plait.engine.engine import Engine
from plait.engine.sampler import Sampler
from plait.models.decoder import Decoder
from plait.models.tiny import make_tiny_model
from plait.models.weights import load_model
from plait.types.chunks import Chunk
from plait.types.policy import PolicyVersion
from plait.types.sampling import SamplingParams


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_lengths_have_the_shapes_mean_and_are_alike_in_a_group(shape: object) -> None:
    workload = make_workload(shape, 200, 300, seed=1)  # type: ignore[arg-type]
    lengths = [request.length for request in workload.requests]
    assert sum(lengths) / len(lengths) == pytest.approx(workload.shape.mean_tokens, rel=0.02)
    assert SHORTEST_TOKENS <= min(lengths) <= max(lengths) <= workload.shape.max_tokens
    size = workload.shape.group_size
    groups = [lengths[start : start + size] for start in range(0, len(lengths), size)]
    within = sum(max(group) - min(group) for group in groups) / len(groups)
    assert within < max(lengths) - min(lengths)
    assert workload == make_workload(workload.shape, 200, 300, seed=1)


def chunk_of(request: Request) -> Chunk:
    params = SamplingParams(request.length, seed=request.seed)
    return Chunk(request.request_id, PolicyVersion("t", "t", 0), request.prompt, request.length, params)


def draw(engine: Engine, workload: Workload) -> dict[str, tuple[tuple[int, ...], tuple[float, ...]]]:
    for request in workload.requests:
        engine.submit(chunk_of(request))
    found: dict[str, tuple[tuple[int, ...], tuple[float, ...]]] = {}
    while not engine.is_idle:
        found |= {result.request_id: (result.tokens, result.logprobs) for result in engine.step()}
    return found


def test_a_row_that_was_given_up_draws_the_same(tmp_path: Path) -> None:
    config, weights = load_model(make_tiny_model(tmp_path / "model"), torch.float32, "cpu")
    workload = make_workload(SHAPES[0], 2, config.vocab_size, seed=3)
    longest = workload.longest_tokens

    def make(kind: type[Engine]) -> Engine:
        return kind(
            Decoder(config, weights), AdapterStore(lambda ref: None, 1), "test", max_rows=16, slot_tokens=16 * longest,  # type: ignore[arg-type, return-value]
            pool_tokens=1024, max_context_tokens=longest, sampler=Sampler(),
        )  # fmt: skip

    preempting = make(PreemptingEngine)
    assert isinstance(preempting, PreemptingEngine)
    preempting.cache_tokens = workload.peak_tokens // 3
    assert draw(preempting, workload) == draw(make(Engine), workload)
    assert preempting.num_preemptions > 0
    preempting.check_idle()


def test_all_systems_serve_all_requests_and_draw_the_same(tmp_path: Path) -> None:
    case = Case("test", TINY, "moonlight", 2, (0.3,), num_rounds=1)
    model = TINY.folder(tmp_path)
    with ExitStack() as stack:
        engines = [stack.enter_context(closing(EngineProcess(f"engine-{i}", model, TINY.dtype))) for i in range(2)]
        assert all(engine.wait_until_ready() for engine in engines)
        rows = case.rows(engines, model, Console(quiet=True))
    assert [row["system"] for row in rows][:2] == ["pinned groups", "+ divided"]
    assert all(row["same_outputs"] and row["tokens_per_s"] > 0 for row in rows)
    assert headlines_of(rows)["outputs_the_same"]["met"]
    print_rows(Console(quiet=True), rows)
    draw_figure(tmp_path / "figure.png", rows)
    assert (tmp_path / "figure.png").stat().st_size > 1000


def test_each_engine_holds_the_longest_request() -> None:
    workload = make_workload(SHAPES[0], 2, 300, seed=1)
    assert engine_size(workload, 0.0, 2).cache_tokens == workload.longest_tokens
    assert engine_size(workload, 2.0, 2).cache_tokens == workload.peak_tokens
