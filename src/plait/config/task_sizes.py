"""What a task comes to, from its settings and the shape of its model: steps, tokens, parameters and time.

Pure arithmetic. "At most" figures are bounds by the settings; times are rough, from rates measured on two Zen 4 cores.
"""

import msgspec

from plait.config.environments import num_turns
from plait.config.run import RunSettings
from plait.config.task import LoraSettings, TaskSettings
from plait.types.model import ModelConfig

FLOPS_PER_S_PER_THREAD = {"bfloat16": 207e9, "float32": 95e9}
"""Measured peak of one core."""
ROLLOUT_EFFICIENCY = 0.35
"""Share of that peak which batched decoding reaches."""
TRAINING_EFFICIENCY = 0.5
"""Share which forward and backward passes reach."""
ROLLOUT_FLOPS_PER_PARAMETER = 2
TRAINING_FLOPS_PER_PARAMETER = 4
"""A frozen base needs no gradient of its weights: forward 2, backward 2."""
FULL_TRAINING_FLOPS_PER_PARAMETER = 6
PROMPT_TOKENS = 64
"""Assumed where the prompt's length is not known before the run."""


class TaskSizes(msgspec.Struct, frozen=True):
    """One task's derived numbers."""

    task: str
    steps: int
    """Warm start and RL."""
    trajectories_per_step: int
    sampled_tokens_per_step: int
    """At most."""
    evaluation_tokens: int
    """At most, over all evaluations."""
    adapter_parameters: int
    """0 where all weights are trained."""
    full_parameters: int
    """The model's, where all weights are trained; else 0."""
    rollout_s: float
    """Of the whole task, at most."""
    training_s: float


def count_adapter_parameters(lora: LoraSettings, model: ModelConfig) -> int:
    """A of (rank, in) and B of (out, rank) for each target module of each layer."""
    query, key_value = model.num_heads * model.head_dim, model.num_kv_heads * model.head_dim
    hidden, inner = model.hidden_size, model.intermediate_size
    sizes = {
        "q_proj": hidden + query,
        "k_proj": hidden + key_value,
        "v_proj": hidden + key_value,
        "o_proj": query + hidden,
        "gate_proj": hidden + inner,
        "up_proj": hidden + inner,
        "down_proj": inner + hidden,
    }
    in_layers = sum(sizes[name] for name in lora.target_modules if name in sizes) * model.num_layers
    in_head = hidden + model.vocab_size if "lm_head" in lora.target_modules else 0
    return lora.rank * (in_layers + in_head)


def size_task(task: TaskSettings, settings: RunSettings, model: ModelConfig) -> TaskSizes:
    turns = num_turns(task.environment)
    trajectories = task.groups_per_step * task.group_size
    sampled = trajectories * task.sampling.max_new_tokens * turns
    evaluations = count_evaluations(task)
    evaluation_tokens = evaluations * task.evaluation.questions * task.sampling.max_new_tokens * turns
    trained = task.steps * (sampled + task.groups_per_step * PROMPT_TOKENS) + _warm_start_tokens(task)
    flops_per_s = FLOPS_PER_S_PER_THREAD[settings.model.dtype]
    rollout_flops = (task.steps * sampled + evaluation_tokens) * ROLLOUT_FLOPS_PER_PARAMETER * model.num_parameters
    is_full = task.training == "full"
    per_parameter = FULL_TRAINING_FLOPS_PER_PARAMETER if is_full else TRAINING_FLOPS_PER_PARAMETER
    ranks = settings.train_ranks if is_full else 1
    training_flops = trained * per_parameter * model.num_parameters
    return TaskSizes(
        task=task.name,
        steps=task.steps + task.warm_start.steps,
        trajectories_per_step=trajectories,
        sampled_tokens_per_step=sampled,
        evaluation_tokens=evaluation_tokens,
        adapter_parameters=0 if is_full else count_adapter_parameters(task.lora, model),
        full_parameters=model.num_parameters if is_full else 0,
        rollout_s=rollout_flops / (ROLLOUT_EFFICIENCY * flops_per_s * _rollout_threads(settings)),
        training_s=training_flops / (TRAINING_EFFICIENCY * flops_per_s * settings.workers.train_threads * ranks),
    )


def _rollout_threads(settings: RunSettings) -> int:
    return settings.workers.rollout_engines * settings.workers.rollout_threads


def count_evaluations(task: TaskSettings) -> int:
    """Before, after, and every so many steps in between."""
    if not task.evaluation.questions:
        return 0
    every = task.evaluation.every_steps
    return 2 + ((task.steps - 1) // every if every else 0)


def _warm_start_tokens(task: TaskSettings) -> int:
    warm = task.warm_start
    return warm.steps * warm.examples_per_step * (PROMPT_TOKENS + task.sampling.max_new_tokens)
