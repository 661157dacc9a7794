"""One training task."""

from typing import Annotated, Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from plait.config.base import Settings
from plait.config.environments import AnyEnvironmentSettings
from plait.types.policy import Training

TargetModule = Literal["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head"]
ATTENTION_MODULES: tuple[TargetModule, ...] = ("q_proj", "k_proj", "v_proj", "o_proj")
MLP_MODULES: tuple[TargetModule, ...] = ("gate_proj", "up_proj", "down_proj")
UNEMBEDDING_MODULES: tuple[TargetModule, ...] = ("lm_head",)
ALL_LINEAR_MODULES: tuple[TargetModule, ...] = ATTENTION_MODULES + MLP_MODULES


class LoraSettings(Settings):
    rank: Annotated[int, Field(ge=1, le=512)] = 16
    """Inner width of the adapter."""
    alpha: Annotated[float, Field(gt=0)] = 32.0
    """The adapter's output is scaled by alpha / rank."""
    target_modules: tuple[TargetModule, ...] = ALL_LINEAR_MODULES
    """Layers that get an adapter; the default is all linear layers but the unembedding, `lm_head`."""
    seed: int = 0
    """Of the random half of the adapter (A); the other half (B) starts at zero."""


class SamplingSettings(Settings):
    """Training rollouts draw from the whole distribution: truncation (top-p, top-k) would bias the gradient."""

    temperature: Annotated[float, Field(gt=0, le=2)] = 1.0
    """Of training rollouts."""
    max_new_tokens: Annotated[int, Field(ge=1)] = 64
    """Per turn."""
    stop_strings: tuple[str, ...] = ()
    """An answer ends when its text comes to contain one of them."""


class LossSettings(Settings):
    kind: Literal["cross_entropy", "importance_sampling", "ppo", "cispo", "dro", "gspo", "stable_reinforce"] = "importance_sampling"
    """The loss of RL steps. The warm start always uses cross-entropy."""
    clip_low: float | None = None
    """Lower bound of the ratio (ppo, gspo: 0.8; cispo, stable_reinforce: 0)."""
    clip_high: float | None = None
    """Upper bound of the ratio (ppo, gspo: 1.2; cispo: 4; stable_reinforce: 2)."""
    beta: Annotated[float, Field(gt=0)] | None = None
    """Strength of dro's penalty (0.05)."""
    kl_coeff: Annotated[float, Field(ge=0)] | None = None
    """Strength of stable_reinforce's penalty towards the policy that sampled (0)."""
    kl_to_base: Annotated[float, Field(ge=0)] = 0.0
    """Weight of a penalty that pulls towards the frozen base."""

    @model_validator(mode="after")
    def _only_used_keys(self) -> "LossSettings":
        used = {
            "ppo": {"clip_low", "clip_high"},
            "gspo": {"clip_low", "clip_high"},
            "cispo": {"clip_low", "clip_high"},
            "dro": {"beta"},
            "stable_reinforce": {"clip_low", "clip_high", "kl_coeff"},
        }
        for name in ("clip_low", "clip_high", "beta", "kl_coeff"):
            if getattr(self, name) is not None and name not in used.get(self.kind, set()):
                raise ValueError(f"{name} has no effect on loss {self.kind!r}: remove it")
        return self


class OptimizerSettings(Settings):
    """AdamW."""

    learning_rate: Annotated[float, Field(gt=0)] = 5e-4
    """At its highest."""
    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Decay of the first moment."""
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.95
    """Decay of the second moment."""
    epsilon: Annotated[float, Field(gt=0)] = 1e-8
    """Added to the root of the second moment."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """Decoupled from the gradient."""
    max_grad_norm: Annotated[float, Field(ge=0)] = 1.0
    """Gradients longer than this are scaled to it; 0 is off."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """Course of the learning rate after the warm-up, over the RL steps."""
    warmup_steps: Annotated[int, Field(ge=0)] = 0
    """RL steps in which the learning rate grows to its full height."""


class WarmStartSettings(Settings):
    """Supervised steps on the environment's own worked answers before RL, for formats that start at zero reward."""

    steps: Annotated[int, Field(ge=0)] = 0
    """0: no warm start."""
    examples_per_step: Annotated[int, Field(ge=1)] = 16
    """Worked answers in a step."""
    learning_rate: Annotated[float, Field(gt=0)] = 5e-4
    """Of the warm start; constant."""


class EvaluationSettings(Settings):
    """Held-out questions, answered greedily unless `temperature` says otherwise."""

    questions: Annotated[int, Field(ge=0)] = 64
    """0 turns evaluation off."""
    every_steps: Annotated[int, Field(ge=0)] = 0
    """Also every so many steps; 0: only before and after."""
    temperature: Annotated[float, Field(ge=0, le=2)] = 0.0
    """0 is greedy."""


class EarlyStoppingSettings(Settings):
    """Ends the task when the held-out score is good enough or no longer improves; needs `evaluation.every_steps`."""

    target: float | None = None
    """Stop when a held-out accuracy of the RL phase reaches this."""
    patience_evaluations: Annotated[int, Field(ge=1)] | None = None
    """Stop when so many evaluations in a row bring no gain."""
    min_gain: Annotated[float, Field(ge=0)] = 0.0
    """A smaller gain than this counts as none."""


class TaskSettings(Settings):
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")]
    """Names the task everywhere; unique in the run."""
    model: str | None = None
    """Name of the base model that it trains; absent: the first."""
    environment: AnyEnvironmentSettings
    steps: Annotated[int, Field(ge=1)] = 20
    """RL steps, after the warm start's."""
    groups_per_step: Annotated[int, Field(ge=1)] = 8
    """Different questions in a step."""
    group_size: Annotated[int, Field(ge=1)] = 8
    """Answers to each question; a step has groups_per_step x group_size trajectories."""
    training: Training = "lora"
    """What is trained: "lora" an adapter on the frozen base, "full" all weights (float32 masters and moments: 16 bytes each)."""
    lora: LoraSettings = LoraSettings()
    start_from: Annotated[str, Field(min_length=1)] | None = None
    """Adapter to train further: a folder in PEFT format, a run's task (RUN/tasks/TASK: its best version), or a version of one. What
    `lora` does not set is taken from it. The run keeps a copy. Absent: a pristine adapter."""
    sampling: SamplingSettings = SamplingSettings()
    loss: LossSettings = LossSettings()
    advantage: Literal["group_centred", "group_standardised", "leave_one_out", "raw"] = "group_standardised"
    """What a reward is compared with: the other answers to the same question, or nothing (`raw`)."""
    optimizer: OptimizerSettings = OptimizerSettings()
    warm_start: WarmStartSettings = WarmStartSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    early_stopping: EarlyStoppingSettings | None = None
    max_staleness: Annotated[int, Field(ge=0)] = 0
    """0 is strictly on-policy: a step trains only on tokens of the latest version."""
    seed: int = 0
    """Part of the seed of every token that this task samples."""

    @model_validator(mode="after")
    def _keys_fit(self) -> "TaskSettings":
        if self.advantage in ("group_centred", "group_standardised", "leave_one_out") and self.group_size < 2:
            raise ValueError(
                f"advantage {self.advantage!r} needs group_size >= 2, not {self.group_size}: raise it or use advantage 'raw'"
            )
        if self.early_stopping and not self.evaluation.every_steps:
            raise ValueError("early_stopping needs evaluation.every_steps >= 1, not 0: set it")
        if self.training == "full" and "lora" in self.model_fields_set:
            given = ", ".join(f"lora.{name}" for name in sorted(self.lora.model_fields_set)) or "lora"
            raise ValueError(f'training "full" has no adapter, so {given} has no effect: remove it')
        if self.training == "full" and self.start_from is not None:
            raise ValueError(
                f'training "full" begins from no adapter, so start_from = "{self.start_from}" has no effect: remove it'
            )
        if self.start_from is not None and "seed" in self.lora.model_fields_set:
            raise ValueError(f"lora.seed = {self.lora.seed} has no effect on an adapter that starts from another: remove it")
        return self

    @model_serializer(mode="wrap")
    def _without_unused(self, to_plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """What is written can be read again: a table without effect is refused."""
        plain: dict[str, Any] = to_plain(self)
        if self.training == "full":
            plain.pop("lora", None)
        if self.start_from is not None:
            plain.get("lora", {}).pop("seed", None)
        return plain
