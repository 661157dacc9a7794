"""Rollouts by a real vLLM, in an environment of its own that PLAIT_VLLM_PYTHON names (`make test-vllm`)."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from plait.client.runs import run_file
from plait.cluster.messages import FromWorker
from plait.cluster.rollout_deployment import RolloutDeployment
from plait.config.load import effective_toml
from plait.config.run import RunSettings
from plait.observe.events import EngineSample
from plait.rollout.request import GenerationRequest
from plait.state.rundir import RunDirectory
from plait.types.errors import ConfigError, WorkerFailure
from plait.types.policy import AdapterRef, PolicyVersion
from plait.types.sampling import SamplingParams
from plait.types.trajectory import Segment
from tests.runs import committed_steps, tiny_settings, tiny_task

PYTHON = os.environ.get("PLAIT_VLLM_PYTHON", "")
needs_vllm = pytest.mark.skipif(not PYTHON, reason="PLAIT_VLLM_PYTHON names no interpreter with vLLM: see make test-vllm")
BASE = PolicyVersion("local", "base", 0)


def settings(folder: Path, *tasks: dict[str, Any], **engine: Any) -> RunSettings:
    engine = {"kind": "vllm", "python": PYTHON, "max_rows": 8, "slot_tokens": 2048, "pool_tokens": 2048, **engine}
    model = {"path": str(folder / "model"), "max_context_tokens": 128, "dtype": "float32"}
    return tiny_settings(folder, *tasks, engine=engine, model=model)


class Deployment(RolloutDeployment):
    def __init__(self, run: RunSettings) -> None:
        super().__init__(run, run.model.path, 1, self)

    def on_message(self, worker: str, message: FromWorker) -> None: ...

    def on_engine(self, sample: EngineSample) -> None: ...

    def on_worker_lost(self, worker: str, roles: Any, failure: WorkerFailure) -> None: ...

    def on_adapters_lost(self, owners: Any, num_trainers: int) -> None: ...

    def on_reopen(self, owners: Any) -> None: ...

    def on_trainer_ready(self) -> None: ...

    def on_failed(self, error: Exception) -> None:
        raise error


async def generate(run: RunSettings, requests: list[GenerationRequest]) -> list[Segment]:
    deployment = Deployment(run)
    await deployment.start()
    try:
        return await asyncio.gather(*(deployment.rollout.generate(request) for request in requests))
    finally:
        await deployment.close()


def requests() -> list[GenerationRequest]:
    """Plain, tempered, truncated and greedy ones."""
    params = [
        SamplingParams(30, seed=1), SamplingParams(30, temperature=0.7, seed=2), SamplingParams(30, top_k=5, seed=3),
        SamplingParams(30, top_p=0.6, seed=4), SamplingParams(30, temperature=0.0),
    ]  # fmt: skip
    return [GenerationRequest(f"r{i}", "a", BASE, None, (5, 6, 7 + i), one) for i, one in enumerate(params)]


@pytest.mark.timeout(600)
@needs_vllm
def test_tokens_are_those_of_plaits_engine_wherever_chunks_are_cut(tmp_path: Path) -> None:
    own = settings(tmp_path, tiny_task("a"), kind="plait", python="", batch_invariant="off")
    reference = asyncio.run(generate(own, requests()))
    for chunk_tokens in (7, 128):
        found = asyncio.run(generate(settings(tmp_path, tiny_task("a"), chunk_tokens=chunk_tokens), requests()))
        for one, other in zip(found, reference, strict=True):
            assert (one.tokens, one.stop) == (other.tokens, other.stop)
            assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)


@pytest.mark.timeout(600)
@needs_vllm
def test_tasks_of_different_ranks_train_on_rollouts_of_vllm(tmp_path: Path) -> None:
    run = settings(tmp_path, tiny_task("a"), tiny_task("b", lora={"rank": 8, "target_modules": ["q_proj", "down_proj"]}))
    directory = RunDirectory.create(tmp_path / "runs", run.name, effective_toml(run))
    run_file(run, directory, show_progress=False)
    for task in ("a", "b"):
        steps = committed_steps(directory, task)
        assert [step.step for step in steps] == [1, 2, 3]
        assert all(step.logprob_gap_max is not None and step.logprob_gap_max < 1e-3 for step in steps)


@pytest.mark.timeout(600)
@needs_vllm
def test_an_adapter_that_cannot_be_read_fails_its_chunk_alone(tmp_path: Path) -> None:
    policy = PolicyVersion("local", "gone", 1)
    lost = GenerationRequest("lost", "a", policy, AdapterRef(policy, str(tmp_path / "nowhere"), "00"), (5, 6, 7), SamplingParams(4))

    async def both() -> list[Any]:
        deployment = Deployment(settings(tmp_path, tiny_task("a")))
        await deployment.start()
        try:
            calls = [deployment.rollout.generate(request) for request in (lost, requests()[0])]
            return await asyncio.gather(*calls, return_exceptions=True)
        finally:
            await deployment.close()

    failure, segment = asyncio.run(both())
    assert "nowhere" in str(failure)
    assert len(segment.tokens) == 30


@pytest.mark.parametrize(("key", "value"), [("drafting", "auto"), ("host_tokens", 1000), ("batch_invariant", "require")])
def test_what_vllm_does_for_itself_or_not_at_all_is_refused(tmp_path: Path, key: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"engine.{key} = "):
        settings(tmp_path, tiny_task("a"), **{key: value})
