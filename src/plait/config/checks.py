"""Settings that are each allowed but do not fit together. Every fault names the numbers it comes from."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from plait.config.check_groups import check_groups
from plait.config.check_tasks import check_tasks
from plait.config.rank_checks import idle_ranks, ranks_in_threads
from plait.config.run import (
    DeploymentWorkerSettings,
    EngineSettings,
    FurtherModelSettings,
    ModelSettings,
    RunSettings,
    TrainingSettings,
    WorkerSettings,
)
from plait.config.store import store_problems


def check_settings(settings: RunSettings) -> list[str]:
    """One line for each thing that cannot work or would have no effect."""
    return [*check_deployments(settings, settings.models), *idle_ranks(settings), *check_tasks(settings)]


class Deployable(Protocol):
    """The sections of a settings file that say how workers compute."""

    @property
    def model(self) -> ModelSettings: ...
    @property
    def workers(self) -> WorkerSettings: ...
    @property
    def engine(self) -> EngineSettings: ...
    @property
    def training(self) -> TrainingSettings: ...


def check_deployments(settings: Deployable, further: Sequence[FurtherModelSettings]) -> Iterator[str]:
    """Of each base model: memory that could not hold even one sequence, and workers that there cannot be."""
    yield from _check_sizes(settings.model, settings.engine, settings.training)
    yield from _check_workers(settings.workers, settings.engine)
    yield from _check_multiplexing(settings.workers, settings.model.device, further)
    yield from check_groups(settings.workers, settings.model, further)
    yield from _check_engine(settings.engine)
    for index, model in enumerate(further):
        own = f'models[{index}] (name "{model.name}").'
        engine, engine_key = (settings.engine, "") if model.engine is None else (model.engine, own)
        yield from _check_sizes(model, engine, settings.training, own, engine_key)
        if model.workers is not None:
            yield from _check_cluster(settings.workers, model.workers, own)
        if model.workers is not None or model.engine is not None:
            yield from _check_workers(model.workers or settings.workers, engine, "" if model.workers is None else own, engine_key)
        if model.engine is not None:
            yield from _check_engine(model.engine, own)


def _check_sizes(
    model: ModelSettings, engine: EngineSettings, training: TrainingSettings, model_key: str = "model.", engine_key: str = ""
) -> Iterator[str]:
    context = model.max_context_tokens
    holders = {
        f"{engine_key}engine.slot_tokens": engine.slot_tokens,
        f"{engine_key}engine.pool_tokens": engine.pool_tokens,
        f"{engine_key}engine.cache_tokens": context if engine.cache_tokens is None else engine.cache_tokens,
        "training.micro_batch_tokens": training.micro_batch_tokens,
    }
    for key, size in holders.items():
        if size < context:
            yield (
                f"{key} = {size} cannot hold one sequence of {model_key}max_context_tokens = {context}: "
                "raise it, or lower the context"
            )


def _check_workers(workers: DeploymentWorkerSettings, engine: EngineSettings, own: str = "", engine_key: str = "") -> Iterator[str]:
    yield from _check_executor(workers, engine, own, engine_key)
    if workers.layout == "split":
        return
    training_keys = ("train_workers", "train_ranks")
    for key in training_keys if workers.rolls_out_apart else ("rollout_engines", *training_keys):
        if (number := getattr(workers, key)) > 1:
            yield f'{own}workers.{key} = {number} needs processes of their own: choose {own}workers.layout = "split"'
    if engine.kind == "vllm" and not workers.rolls_out_apart:
        yield f'{engine_key}engine.kind = "vllm" needs processes of its own: choose {own}workers.layout = "split"'


def _check_executor(workers: DeploymentWorkerSettings, engine: EngineSettings, own: str, engine_key: str) -> Iterator[str]:
    """What child processes have and other workers have not."""
    yield from ranks_in_threads(workers, own)
    if workers.executor != "ray" and workers.ray_address != "auto":
        address = f'{own}workers.ray_address = "{workers.ray_address}"'
        yield f'{address} has no effect without {own}workers.executor = "ray": choose that'
    if workers.executor != "ray" and workers.ray_placement != "pack":
        placement = f'{own}workers.ray_placement = "{workers.ray_placement}"'
        yield f'{placement} has no effect without {own}workers.executor = "ray": choose that'
    if engine.python and workers.executor != "process":
        executor = f'{own}workers.executor = "{workers.executor}"'
        yield f'{engine_key}engine.python = "{engine.python}" has no effect on {executor}: remove it'


def _check_cluster(first: WorkerSettings, workers: DeploymentWorkerSettings, own: str) -> Iterator[str]:
    if first.executor == workers.executor == "ray" and first.ray_address != workers.ray_address:
        addresses = f'{own}workers.ray_address = "{workers.ray_address}" and workers.ray_address = "{first.ray_address}"'
        yield f"{addresses} are two clusters, and a controller is a node of one: choose one for both"


def _check_multiplexing(workers: WorkerSettings, device: str, further: Sequence[FurtherModelSettings]) -> Iterator[str]:
    is_multiplexed = workers.is_multiplexed
    if is_multiplexed and workers.device_bytes is None:
        yield f'workers.layout = "{workers.layout}" shares out what the device has: set workers.device_bytes'
    if is_multiplexed and workers.disk_bytes and workers.host_bytes is None:
        yield f"workers.disk_bytes = {workers.disk_bytes} is for what main memory has no room for: set workers.host_bytes"
    for key in ("device_bytes", "host_bytes", "disk_bytes", "order", "groups"):
        if not is_multiplexed and getattr(workers, key) != WorkerSettings.model_fields[key].default:
            yield f'workers.{key} has no effect with workers.layout = "{workers.layout}": remove it, or choose "multiplexed"'
    for index, model in enumerate(further):
        own = f'models[{index}] (name "{model.name}")'
        if model.workers is not None and (model.workers.is_multiplexed or is_multiplexed):
            yield f"{own}.workers has no effect where workers are multiplexed: remove it"
        if is_multiplexed and model.device != device:
            yield f'{own}.device = "{model.device}" and model.device = "{device}" cannot be multiplexed: choose one for both'


def _check_engine(engine: EngineSettings, own: str = "") -> Iterator[str]:
    key = f"{own}engine"
    if engine.capacity_tokens > engine.slot_tokens:
        yield f"{key}.cache_tokens = {engine.cache_tokens} has no effect above {key}.slot_tokens = {engine.slot_tokens}: lower it"
    if engine.disk_tokens and not engine.host_tokens and engine.kind == "plait":
        yield f"{key}.disk_tokens = {engine.disk_tokens} is reached through {key}.host_tokens, which is 0: raise that"
    if engine.store is not None and not engine.host_tokens and engine.kind == "plait":
        yield f'{key}.store.kind = "{engine.store.kind}" is reached through {key}.host_tokens, which is 0: raise that'
    if engine.store is not None:
        yield from store_problems(engine.store, f"{key}.store")
    if engine.drafting == "off" and engine.draft_paths != EngineSettings.model_fields["draft_paths"].default:
        yield f'{key}.draft_paths = {engine.draft_paths} has no effect with {key}.drafting = "off": choose "auto" there'
    if engine.drafting == "off" and engine.draft_history:
        yield f'{key}.draft_history = true has no effect with {key}.drafting = "off": choose "auto" there'
    if engine.kind == "vllm":
        yield from _check_vllm(engine, key)
    elif engine.python:
        yield f'{key}.python = "{engine.python}" has no effect on {key}.kind = "{engine.kind}": remove it'


def _check_vllm(engine: EngineSettings, key: str) -> Iterator[str]:
    """What Plait's own engine does and vLLM does for itself, or not at all."""
    for tier in ("host_tokens", "disk_tokens"):
        if tokens := getattr(engine, tier):
            yield f"{key}.{tier} = {tokens} has no effect on vLLM, whose cache is its own: remove it"
    if engine.store is not None:
        yield f'{key}.store.kind = "{engine.store.kind}" has no effect on vLLM, whose cache is its own: remove {key}.store'
    if engine.drafting != "off":
        yield f'{key}.drafting = "{engine.drafting}" has no effect on vLLM: remove it'
    if engine.batch_invariant == "require":
        yield f'{key}.batch_invariant = "require" is what vLLM does not give: choose "auto"'
