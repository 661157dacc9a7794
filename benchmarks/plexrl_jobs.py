"""The jobs of `benchmarks.plexrl`: base models of several sizes, LoRA and all weights, and different shares of tools, rollouts and
training in a step.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from plait.config.environments import DelaySettings, FunctionSettings
from plait.config.run import EngineSettings, ModelSettings, RunSettings, WorkerSettings
from plait.config.task import EvaluationSettings, LoraSettings, OptimizerSettings, SamplingSettings, TaskSettings
from plait.models.tiny import make_tiny_model
from plait.types.policy import Training

REWARDS = Path(__file__).with_name("marlaas_rewards.py")
MAX_STEPS = 100_000
"""Jobs are stopped long before."""
SHAPES: dict[str, dict[str, Any]] = {
    "small": {"hidden_size": 128, "intermediate_size": 256, "head_dim": 64},
    "middle": {"hidden_size": 192, "intermediate_size": 384, "head_dim": 64, "num_layers": 3},
    "large": {"hidden_size": 256, "intermediate_size": 512, "head_dim": 64, "num_layers": 4},
}
"""Of base models."""


@dataclass(frozen=True, slots=True)
class Job:
    name: str
    base: str
    training: Training
    reward: str
    groups: int
    group_size: int
    new_tokens: int
    tool_s: float
    """Mean wait for a tool before an answer is scored."""
    tool_kind: Literal["fixed", "long_tailed"] = "long_tailed"


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    jobs: tuple[Job, ...]


PAIR = Scenario(
    "two jobs",
    (
        Job("chat", "middle", "lora", "vowel_share", 4, 8, 12, 0.4),
        Job("code", "middle", "full", "variety", 4, 5, 8, 0.6, "fixed"),
    ),
)
"""The training worker of each alone is idle for about 80 % of the time."""
SIX = Scenario(
    "six jobs",
    (
        Job("chat", "small", "lora", "vowel_share", 2, 4, 16, 0.8),
        Job("code", "middle", "full", "variety", 2, 4, 8, 1.2, "fixed"),
        Job("search", "large", "lora", "digit_share", 1, 4, 12, 1.2),
        Job("maths", "small", "full", "space_share", 4, 4, 8, 0.9),
        Job("tools", "middle", "lora", "upper_share", 1, 8, 12, 1.0, "fixed"),
        Job("games", "small", "full", "variety", 2, 4, 12, 1.0),
    ),
)
SCENARIOS = (PAIR, SIX)


def make_models(folder: Path, jobs: Sequence[Job]) -> None:
    for base in {job.base for job in jobs}:
        if not (folder / base).exists():
            make_tiny_model(folder / base, seed=len(base), **SHAPES[base])


def settings_of(job: Job, models: Path, is_colocated: bool) -> RunSettings:
    """A thread for each worker."""
    return RunSettings(
        name=job.name,
        model=ModelSettings(path=str(models / job.base), device="cpu", max_context_tokens=128),
        workers=WorkerSettings(
            layout="shared" if is_colocated else "split", lend_threads=False, environment_processes=1, max_restarts=0
        ),
        engine=EngineSettings(max_rows=32, slot_tokens=4096, pool_tokens=4096, chunk_tokens=16, adaptive_concurrency=False),
        tasks=(_task(job),),
    )


def _task(job: Job) -> TaskSettings:
    seed = sum(job.name.encode())
    adapter = {"lora": LoraSettings(rank=8, alpha=16.0, seed=seed)} if job.training == "lora" else {}
    environment = FunctionSettings(
        function=f"{REWARDS}:{job.reward}", examples=f"{REWARDS}:examples", seed=seed, require_stop=False,
        delay=DelaySettings(kind=job.tool_kind, mean_s=job.tool_s, sigma=0.3), turn_timeout_s=120.0, score_timeout_s=120.0,
    )  # fmt: skip
    return TaskSettings(
        name=job.name, environment=environment, steps=MAX_STEPS, groups_per_step=job.groups, group_size=job.group_size,
        training=job.training, sampling=SamplingSettings(max_new_tokens=job.new_tokens),
        optimizer=OptimizerSettings(learning_rate=1e-3), evaluation=EvaluationSettings(questions=0), seed=seed, **adapter,
    )  # fmt: skip
