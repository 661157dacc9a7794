"""What a run will need, from its settings and the shape of its model: memory, disk and time.

Pure arithmetic. "At most" figures are bounds by the settings.
"""

from collections.abc import Iterator, Mapping

import msgspec

from plait.config.run import RunSettings
from plait.config.task_sizes import TaskSizes, size_task
from plait.types.model import ModelConfig

BYTES_PER_VALUE = {"bfloat16": 2, "float32": 4}
ADAPTER_BYTES_PER_VALUE = 4
"""Adapters, gradients and moments are float32."""
NUM_MOMENTS = 2
"""AdamW's."""
FULL_GRADIENTS = 2
"""Where all weights are trained: what a pass adds to, and what it adds."""
FULL_RECORDS = 4
"""Records of a whole model at one time: the last two, the best evaluated, and one that rolls out or is evaluated."""
HEAD_TOKENS, SOFTMAX_TOKENS = 1024, 128
"""Positions whose logits exist at once in the model's dtype, and of these in float32."""
LOGITS_COPIES = 3
"""Logits, their log-softmax and their gradient."""
SAMPLE_BYTES_PER_TOKEN = 24
"""A sampled token in a sample file: its id, its log-probability and its text."""


class Need(msgspec.Struct, frozen=True):
    """One thing that takes room, and how its size comes about."""

    name: str
    size_bytes: int
    derivation: str


class RunEstimate(msgspec.Struct, frozen=True):
    memory: tuple[Need, ...]
    disk: tuple[Need, ...]
    tasks: tuple[TaskSizes, ...]
    time_s: float | None
    """At most, roughly; None where no rates are known (GPUs)."""

    @property
    def memory_bytes(self) -> int:
        return sum(need.size_bytes for need in self.memory)

    @property
    def disk_bytes(self) -> int:
        return sum(need.size_bytes for need in self.disk)


def estimate_run(settings: RunSettings, model: ModelConfig, device: str = "cpu") -> RunEstimate:
    """What the run needs on `device` ("cpu" or "cuda")."""
    tasks = tuple(size_task(task, settings, model) for task in settings.tasks)
    return RunEstimate(
        memory=_memory(settings, model, tasks),
        disk=(*_disk(settings, tasks), *_cache_disk(settings, model)),
        tasks=tasks,
        time_s=_time_s(settings, tasks) if device == "cpu" else None,
    )


def combine(estimates: Mapping[str, RunEstimate]) -> RunEstimate:
    """Of a run on several base models at once, by their names."""
    if len(estimates) == 1:
        return next(iter(estimates.values()))
    times_s = [each.time_s for each in estimates.values()]
    return RunEstimate(
        memory=tuple(_of_model(need, name) for name, each in estimates.items() for need in each.memory),
        disk=tuple(_of_model(need, name) for name, each in estimates.items() for need in each.disk),
        tasks=tuple(sizes for each in estimates.values() for sizes in each.tasks),
        time_s=max((time_s for time_s in times_s if time_s is not None), default=None) if None not in times_s else None,
    )


def _of_model(need: Need, model: str) -> Need:
    return msgspec.structs.replace(need, derivation=f"{model}: {need.derivation}")


def _memory(settings: RunSettings, model: ModelConfig, tasks: tuple[TaskSizes, ...]) -> tuple[Need, ...]:
    value_bytes, engines = BYTES_PER_VALUE[settings.model.dtype], settings.workers.rollout_engines
    trainers, passes = settings.workers.train_workers, settings.workers.train_workers * settings.train_ranks
    is_multiplexed = settings.workers.is_multiplexed
    copies = 1 if settings.workers.layout == "shared" else engines + trainers + is_multiplexed
    counted = f"{copies} process{'es' * (copies > 1)}"
    if is_multiplexed:
        counted = f"{copies}: one laid out for each deployment, one for what is parked"
    weights = model.num_parameters * value_bytes
    adapter_bytes = sum(task.adapter_parameters for task in tasks) * ADAPTER_BYTES_PER_VALUE
    dtype, num_adapters = settings.model.dtype, sum(task.adapter_parameters > 0 for task in tasks)
    return (
        Need("model", copies * weights, f"{model.num_parameters:,} parameters in {dtype} x {counted}"),
        *_cache_memory(settings, model),
        Need(
            "adapters", (engines + 1) * adapter_bytes, f"{num_adapters} tasks, float32, for rollout{_times(engines)} and training"
        ),
        Need("optimizer", (NUM_MOMENTS + 1) * adapter_bytes, "two moments and a gradient of each adapter, float32"),
        *_full_memory(settings, tasks),
        Need(
            "activations",
            passes * _activation_bytes(settings, model),
            f"one micro-batch of {settings.training.micro_batch_tokens:,} tokens" + (f" x {passes}" if passes > 1 else ""),
        ),
    )


def _full_memory(settings: RunSettings, tasks: tuple[TaskSizes, ...]) -> Iterator[Need]:
    """Of tasks that train all weights: what the trainer has for each, and the versions that engines hold."""
    num_tasks, parameters = sum(task.full_parameters > 0 for task in tasks), max(task.full_parameters for task in tasks)
    held, engines, dtype = settings.engine.full_policies, settings.workers.rollout_engines, settings.model.dtype
    value_bytes = BYTES_PER_VALUE[dtype]
    trained_bytes = (1 + NUM_MOMENTS + FULL_GRADIENTS) * ADAPTER_BYTES_PER_VALUE + value_bytes
    text = f"{num_tasks} tasks, masters, moments and gradients in float32, weights in {dtype}"
    held_text = f"at most {held} versions of {num_tasks} tasks in {dtype}{_times(engines)} (engine.full_policies)"
    if num_tasks:
        yield Need("full tasks", num_tasks * parameters * trained_bytes, text)
        yield Need("full policies", engines * held * parameters * value_bytes, held_text)


def _cache_memory(settings: RunSettings, model: ModelConfig) -> Iterator[Need]:
    """Each engine's own cache, and the tier in main memory that they share."""
    engine, engines, dtype = settings.engine, settings.workers.rollout_engines, settings.model.dtype
    token_bytes = model.cache_bytes_per_token(BYTES_PER_VALUE[dtype])
    own_tokens = engine.slot_tokens + engine.pool_tokens
    yield Need("cache", engines * own_tokens * token_bytes, f"{own_tokens:,} tokens (slot + pool) in {dtype}{_times(engines)}")
    if engine.host_tokens:
        yield Need("host cache", engine.host_tokens * token_bytes, f"{engine.host_tokens:,} tokens in {dtype}, for all engines")
    yield from _store_need(settings, model, "mooncake")


def _times(engines: int) -> str:
    return f" x {engines} engines" if engines > 1 else ""


def _activation_bytes(settings: RunSettings, model: ModelConfig) -> int:
    """What the backward pass keeps; fits the measured peak of a step on SmolLM2 to about a quarter."""
    value_bytes = BYTES_PER_VALUE[settings.model.dtype]
    layer_values = 16 * model.hidden_size + 8 * model.intermediate_size
    if any(task.training == "full" for task in settings.tasks):  # What each matrix was multiplied with is kept too.
        layer_values += 3 * model.hidden_size + model.intermediate_size
    per_token = layer_values * model.num_layers
    if settings.training.checkpoint_layers:
        per_token = model.hidden_size * model.num_layers + layer_values
    head = model.vocab_size * (HEAD_TOKENS * value_bytes + SOFTMAX_TOKENS * 4 * LOGITS_COPIES)
    return settings.training.micro_batch_tokens * per_token * value_bytes + head


def _disk(settings: RunSettings, tasks: tuple[TaskSizes, ...]) -> tuple[Need, ...]:
    every = settings.state.keep_every_steps
    records = [min(task.steps, 2 + task.steps // every) for task in tasks]
    parameters = sum(count * task.adapter_parameters for count, task in zip(records, tasks, strict=True))
    num_records = sum(count for count, task in zip(records, tasks, strict=True) if task.adapter_parameters)
    tokens = sum(task.steps * task.sampled_tokens_per_step + task.evaluation_tokens for task in tasks)
    record_bytes = parameters * ADAPTER_BYTES_PER_VALUE * (1 + NUM_MOMENTS)
    num_full, full_parameters = sum(task.full_parameters > 0 for task in tasks), sum(task.full_parameters for task in tasks)
    full_bytes = FULL_RECORDS * full_parameters * ADAPTER_BYTES_PER_VALUE * (1 + NUM_MOMENTS)
    full = [Need("full records", full_bytes, f"the last two, the best and what is in use, of {num_full} tasks, in float32")]
    return (
        Need("records", record_bytes, f"the last two and every {every}-th step: {num_records} records of adapter and moments"),
        *(full if num_full else []),
        Need("samples", tokens * SAMPLE_BYTES_PER_TOKEN, f"at most {tokens:,} sampled tokens"),
    )


def _cache_disk(settings: RunSettings, model: ModelConfig) -> Iterator[Need]:
    tokens, dtype = settings.engine.disk_tokens, settings.model.dtype
    if tokens:
        token_bytes = model.cache_bytes_per_token(BYTES_PER_VALUE[dtype])
        yield Need("disk cache", tokens * token_bytes, f"{tokens:,} tokens in {dtype}, for all engines")
    yield from _store_need(settings, model, "file")


def _store_need(settings: RunSettings, model: ModelConfig, kind: str) -> Iterator[Need]:
    """The store between nodes, if it is of this kind: files, or memory that workers lend."""
    store, dtype = settings.engine.store, settings.model.dtype
    if store is not None and store.kind == kind:
        size_bytes = store.tokens * model.cache_bytes_per_token(BYTES_PER_VALUE[dtype])
        yield Need("cache store", size_bytes, f"{store.tokens:,} tokens in {dtype}, for all engines")


def _time_s(settings: RunSettings, tasks: tuple[TaskSizes, ...]) -> float:
    """Workers overlap over tasks; within one task rollout and training follow each other."""
    rollout_s = sum(task.rollout_s for task in tasks)
    training_s = sum(task.training_s for task in tasks) / settings.workers.train_workers
    if not settings.workers.rolls_out_apart:
        return rollout_s + training_s
    return max(rollout_s, training_s, *(task.rollout_s + task.training_s for task in tasks))
