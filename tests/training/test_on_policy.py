"""A batch drawn by the engine, many adapters mixed, trains with a ratio of exactly 1 where batch invariance is granted."""

import pytest
import torch

from plait.config.task import LossSettings
from plait.engine.adapters import AdapterStore
from plait.engine.engine import Engine
from plait.engine.sampler import Sampler
from plait.lora.mix import FusedAdapter
from plait.models.decoder import Decoder
from plait.models.invariance import machine_self_test, random_weights
from plait.training.datums import trajectory_datums
from plait.training.trainer import AdapterTrainer
from plait.training.training_pass import PassSettings
from plait.types.chunks import Chunk, ChunkResult
from plait.types.lora import LoraConfig
from plait.types.policy import AdapterRef, PolicyVersion
from plait.types.sampling import SamplingParams
from plait.types.trajectory import Segment, Trajectory, TrajectoryBatch
from tests.training.test_bitwise import LORA, MODEL
from tests.training.tiny import make_adapter

OTHER_LORA = LoraConfig(rank=4, alpha=4.0, target_modules=("q_proj", "down_proj", "lm_head"))
TASKS = {"a": LORA, "b": OTHER_LORA}
GROUP_SIZE, NEW_TOKENS, TEMPERATURE = 5, 12, 0.8
PROMPTS = (tuple(range(5, 24)), tuple(range(40, 47)))


def policy(task: str) -> PolicyVersion:
    return PolicyVersion("local", task, 1)


def load(ref: AdapterRef) -> FusedAdapter:
    lora = TASKS[ref.policy.task]
    return FusedAdapter(lora, make_adapter(len(ref.policy.task), lora, MODEL), MODEL, torch.bfloat16)


def sample(weights: dict[str, torch.Tensor]) -> dict[str, ChunkResult]:
    """Every answer of every task, decoded in one changing batch."""
    engine = Engine(
        Decoder(MODEL, weights, prepack=True), AdapterStore(load, 2), "base",
        max_rows=16, slot_tokens=4096, pool_tokens=2048, max_context_tokens=256, sampler=Sampler(),
    )  # fmt: skip
    for index, (task, group, number) in enumerate((t, g, n) for g in range(len(PROMPTS)) for n in range(GROUP_SIZE) for t in TASKS):
        params = SamplingParams(NEW_TOKENS - number, temperature=TEMPERATURE, seed=index)
        name, ref = f"{task}/{group}/{number}", AdapterRef(policy(task), "", "digest")
        engine.submit(Chunk(name, policy(task), PROMPTS[group], NEW_TOKENS, params, ref))
    results: dict[str, ChunkResult] = {}
    while not engine.is_idle:
        results |= {result.request_id: result for result in engine.step()}
    return results


def batch_of(task: str, results: dict[str, ChunkResult]) -> TrajectoryBatch:
    trajectories = []
    for group, prompt in enumerate(PROMPTS):
        for number in range(GROUP_SIZE):
            result = results[f"{task}/{group}/{number}"]
            segments = (Segment(prompt), Segment(result.tokens, result.logprobs, result.policy))
            trajectories.append(Trajectory("e", str(group), group, number, segments, float(number % 2), "length"))
    return TrajectoryBatch("local", task, 1, tuple(trajectories))


def test_ratio_of_a_fresh_batch() -> None:
    report = machine_self_test(torch.bfloat16)
    if not report.granted:
        pytest.skip(report.detail)
    weights = random_weights(MODEL, torch.bfloat16)
    results = sample(weights)
    for task, lora in TASKS.items():
        batch = trajectory_datums(batch_of(task, results), "group_standardised", LossSettings(kind="ppo"), TEMPERATURE)
        assert batch.num_trained_tokens == batch.num_sampled_tokens > 50
        adapter = make_adapter(len(task), lora, MODEL)
        trainer = AdapterTrainer(Decoder(MODEL, weights), lora, adapter, PassSettings(micro_batch_tokens=64))
        metrics = trainer.forward_backward(batch.datums, LossSettings(kind="ppo")).metrics
        assert metrics["ratio_mean"] == 1.0
        assert metrics["logprob_gap_max"] == 0.0
        assert metrics["clip_fraction"] == 0.0
