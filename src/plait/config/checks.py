"""Settings that are each allowed but do not fit together. Every fault names the numbers it comes from."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from plait.config.check_groups import check_groups
from plait.config.environments import CalculatorSettings, DelaySettings, EnvironmentSettings
from plait.config.known_keys import suggest_value
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
from plait.config.task import EarlyStoppingSettings, TaskSettings


def check_settings(settings: RunSettings) -> list[str]:
    """One line for each thing that cannot work or would have no effect."""
    return [*check_deployments(settings, settings.models), *idle_ranks(settings), *check_tasks(settings)]


def check_tasks(settings: RunSettings) -> list[str]:
    """The same of tasks alone, for deployments that they share with others."""
    problems = list(_check_models(settings))
    for index, task in enumerate(settings.tasks):
        problems += [f'tasks[{index}] (name "{task.name}"){text}' for text in _check_task(task, settings)]
    return problems


def num_turns(environment: EnvironmentSettings) -> int:
    """Most answers of the policy in one episode."""
    return 2 if isinstance(environment, CalculatorSettings) else 1


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


def _check_models(settings: RunSettings) -> Iterator[str]:
    """Names of base models that there are not, and base models that nobody names."""
    names, used = settings.model_names, settings.used_models
    for index, task in enumerate(settings.tasks):
        if settings.model_of(task) not in names:
            known = suggest_value(task.model, names) or f": there is {', '.join(names)}"
            yield f'tasks[{index}] (name "{task.name}").model = "{task.model}" is no base model of this run{known}'
    for index, model in enumerate(settings.models):
        if model.name not in used:
            yield f'models[{index}] (name "{model.name}") is trained by no task: remove it, or set a task\'s model = "{model.name}"'


def _check_task(task: TaskSettings, settings: RunSettings) -> Iterator[str]:
    yield from _check_context(task, settings.of_model(settings.model_of(task)).model.max_context_tokens)
    yield from _check_loss(task)
    yield from _check_schedule(task)
    yield from _check_lora(task)
    if task.training == "full" and settings.of_model(settings.model_of(task)).engine.kind == "vllm":
        yield '.training = "full" cannot be rolled out by engine.kind = "vllm", which takes adapters only: choose "plait"'
    if task.early_stopping:
        yield from _check_early_stopping(task.early_stopping, task)
    yield from (f".environment{text}" for text in _check_environment(task.environment))


def _check_context(task: TaskSettings, context: int) -> Iterator[str]:
    turns, new = num_turns(task.environment), task.sampling.max_new_tokens
    if turns * new >= context:
        sampled = f"{new} x {turns} turns = {turns * new}" if turns > 1 else str(new)
        yield (
            f".sampling.max_new_tokens = {sampled} leaves no room for a prompt in model.max_context_tokens = {context}: "
            "lower the one or raise the other"
        )


def _check_loss(task: TaskSettings) -> Iterator[str]:
    low, high = task.loss.clip_low, task.loss.clip_high
    if low is not None and high is not None and low >= high:
        yield f".loss.clip_low = {low} must be below clip_high = {high}"


def _check_schedule(task: TaskSettings) -> Iterator[str]:
    if task.optimizer.warmup_steps > task.steps:
        yield f".optimizer.warmup_steps = {task.optimizer.warmup_steps} is more than steps = {task.steps}: lower it"


def _check_lora(task: TaskSettings) -> Iterator[str]:
    modules = task.lora.target_modules
    if not modules:
        yield ".lora.target_modules = []: nothing would be trained; name at least one"
    for name in sorted({name for name in modules if modules.count(name) > 1}):
        yield f'.lora.target_modules has "{name}" {modules.count(name)} times: name it once'


def _check_early_stopping(stopping: EarlyStoppingSettings, task: TaskSettings) -> Iterator[str]:
    if stopping.target is None and stopping.patience_evaluations is None:
        yield ".early_stopping has neither target nor patience_evaluations, so it would never stop: give one"
    if stopping.min_gain and stopping.patience_evaluations is None:
        yield f".early_stopping.min_gain = {stopping.min_gain} has no effect without patience_evaluations: give it"
    if task.evaluation.questions == 0:
        yield ".early_stopping needs held-out questions, and evaluation.questions = 0: raise it"
    if task.evaluation.every_steps > task.steps:
        every = task.evaluation.every_steps
        yield f".early_stopping needs an evaluation, and evaluation.every_steps = {every} is above steps = {task.steps}: lower it"


def _check_environment(environment: EnvironmentSettings) -> Iterator[str]:
    yield from _check_delay(environment.delay, environment)
    if isinstance(environment, CalculatorSettings):
        if environment.min_value > environment.max_value:
            yield f".min_value = {environment.min_value} is above max_value = {environment.max_value}"
        if not environment.operations:
            yield ".operations = []: name at least one"


def _check_delay(delay: DelaySettings, environment: EnvironmentSettings) -> Iterator[str]:
    if delay.kind == "none" and delay.mean_s:
        yield f'.delay.mean_s = {delay.mean_s} has no effect with delay.kind = "none": choose "fixed" or "long_tailed"'
    if delay.kind != "none" and not delay.mean_s:
        yield f'.delay.kind = "{delay.kind}" needs delay.mean_s above 0'
