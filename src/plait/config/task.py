"""One training task."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from plait.config.base import Settings
from plait.config.environments import AnyEnvironmentSettings

TargetModule = Literal["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head"]
ATTENTION_MODULES: tuple[TargetModule, ...] = ("q_proj", "k_proj", "v_proj", "o_proj")
MLP_MODULES: tuple[TargetModule, ...] = ("gate_proj", "up_proj", "down_proj")
UNEMBEDDING_MODULES: tuple[TargetModule, ...] = ("lm_head",)
ALL_LINEAR_MODULES: tuple[TargetModule, ...] = ATTENTION_MODULES + MLP_MODULES


class LoraSettings(Settings):
    rank: Annotated[int, Field(ge=1, le=512)] = 16
    alpha: Annotated[float, Field(gt=0)] = 32.0
    target_modules: tuple[TargetModule, ...] = ALL_LINEAR_MODULES
    seed: int = 0


class SamplingSettings(Settings):
    """Training rollouts draw from the whole distribution: truncation (top-p, top-k) would bias the gradient."""

    temperature: Annotated[float, Field(gt=0, le=2)] = 1.0
    max_new_tokens: Annotated[int, Field(ge=1)] = 64
    """Per turn."""
    stop_strings: tuple[str, ...] = ()


class LossSettings(Settings):
    kind: Literal["cross_entropy", "importance_sampling", "ppo", "cispo", "dro", "gspo"] = "importance_sampling"
    clip_low: float | None = None
    """Lower bound of the ratio (ppo, gspo: 0.8; cispo: 0)."""
    clip_high: float | None = None
    """Upper bound of the ratio (ppo, gspo: 1.2; cispo: 4)."""
    beta: Annotated[float, Field(gt=0)] | None = None
    """Strength of dro's penalty (0.05)."""
    kl_to_base: Annotated[float, Field(ge=0)] = 0.0
    """Weight of a penalty that pulls towards the frozen base."""

    @model_validator(mode="after")
    def _only_used_keys(self) -> "LossSettings":
        used = {
            "ppo": {"clip_low", "clip_high"},
            "gspo": {"clip_low", "clip_high"},
            "cispo": {"clip_low", "clip_high"},
            "dro": {"beta"},
        }
        for name in ("clip_low", "clip_high", "beta"):
            if getattr(self, name) is not None and name not in used.get(self.kind, set()):
                raise ValueError(f"{name} has no effect on loss {self.kind!r}: remove it")
        return self


class OptimizerSettings(Settings):
    """AdamW."""

    learning_rate: Annotated[float, Field(gt=0)] = 5e-4
    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.95
    epsilon: Annotated[float, Field(gt=0)] = 1e-8
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    max_grad_norm: Annotated[float, Field(ge=0)] = 1.0
    """Gradients longer than this are scaled to it; 0 is off."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    warmup_steps: Annotated[int, Field(ge=0)] = 0


class WarmStartSettings(Settings):
    """Supervised steps on the environment's own worked answers before RL, for formats that start at zero reward."""

    steps: Annotated[int, Field(ge=0)] = 0
    examples_per_step: Annotated[int, Field(ge=1)] = 16
    learning_rate: Annotated[float, Field(gt=0)] = 5e-4


class EvaluationSettings(Settings):
    """Held-out questions, answered greedily unless `temperature` says otherwise."""

    questions: Annotated[int, Field(ge=0)] = 64
    """0 turns evaluation off."""
    every_steps: Annotated[int, Field(ge=0)] = 0
    """Also every so many steps; 0: only before and after."""
    temperature: Annotated[float, Field(ge=0, le=2)] = 0.0


class EarlyStoppingSettings(Settings):
    """Ends the task when the held-out score is good enough or no longer improves; needs `evaluation.every_steps`."""

    target: float | None = None
    patience_evaluations: Annotated[int, Field(ge=1)] | None = None
    min_gain: Annotated[float, Field(ge=0)] = 0.0


class TaskSettings(Settings):
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")]
    environment: AnyEnvironmentSettings
    steps: Annotated[int, Field(ge=1)] = 20
    """RL steps, after the warm start's."""
    groups_per_step: Annotated[int, Field(ge=1)] = 8
    """Different questions in a step."""
    group_size: Annotated[int, Field(ge=1)] = 8
    """Answers to each question; a step has groups_per_step x group_size trajectories."""
    lora: LoraSettings = LoraSettings()
    sampling: SamplingSettings = SamplingSettings()
    loss: LossSettings = LossSettings()
    advantage: Literal["group_centred", "group_standardised", "leave_one_out", "raw"] = "group_standardised"
    optimizer: OptimizerSettings = OptimizerSettings()
    warm_start: WarmStartSettings = WarmStartSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    early_stopping: EarlyStoppingSettings | None = None
    max_staleness: Annotated[int, Field(ge=0)] = 0
    """0 is strictly on-policy: a step trains only on tokens of the latest version."""
    seed: int = 0

    @model_validator(mode="after")
    def _keys_fit(self) -> "TaskSettings":
        if self.advantage in ("group_centred", "group_standardised", "leave_one_out") and self.group_size < 2:
            raise ValueError(
                f"advantage {self.advantage!r} needs group_size >= 2, not {self.group_size}: raise it or use advantage 'raw'"
            )
        if self.early_stopping and not self.evaluation.every_steps:
            raise ValueError("early_stopping needs evaluation.every_steps >= 1, not 0: set it")
        return self
