"""Settings that are each allowed but do not fit together. Every fault names the numbers it comes from."""

from collections.abc import Iterator

from plait.config.environments import CalculatorSettings, DelaySettings, EnvironmentSettings
from plait.config.run import EngineSettings, ModelSettings, RunSettings, TrainingSettings, WorkerSettings
from plait.config.task import EarlyStoppingSettings, TaskSettings


def check_settings(settings: RunSettings) -> list[str]:
    """One line for each thing that cannot work or would have no effect."""
    problems = list(check_sizes(settings.model, settings.engine, settings.training))
    problems += check_engines(settings.workers, settings.engine)
    for index, task in enumerate(settings.tasks):
        problems += [f'tasks[{index}] (name "{task.name}"){text}' for text in _check_task(task, settings)]
    return problems


def num_turns(environment: EnvironmentSettings) -> int:
    """Most answers of the policy in one episode."""
    return 2 if isinstance(environment, CalculatorSettings) else 1


def check_sizes(model: ModelSettings, engine: EngineSettings, training: TrainingSettings) -> Iterator[str]:
    """Memory that could not hold even one sequence."""
    context = model.max_context_tokens
    holders = {
        "engine.slot_tokens": engine.slot_tokens,
        "engine.pool_tokens": engine.pool_tokens,
        "engine.cache_tokens": context if engine.cache_tokens is None else engine.cache_tokens,
        "training.micro_batch_tokens": training.micro_batch_tokens,
    }
    for key, size in holders.items():
        if size < context:
            yield f"{key} = {size} cannot hold one sequence of model.max_context_tokens = {context}: raise it, or lower the context"


def check_engines(workers: WorkerSettings, engine: EngineSettings) -> Iterator[str]:
    """Engines that there cannot be, and caches of theirs that would not be used."""
    if workers.layout == "shared" and workers.rollout_engines > 1:
        yield f'workers.rollout_engines = {workers.rollout_engines} needs processes of their own: choose workers.layout = "split"'
    if workers.executor == "ray" and engine.host_tokens:
        yield f"engine.host_tokens = {engine.host_tokens} is memory of one machine, which engines on others cannot read: leave it 0"
    if workers.executor != "ray" and workers.ray_address != "auto":
        yield f'workers.ray_address = "{workers.ray_address}" has no effect without workers.executor = "ray": choose that'
    if engine.capacity_tokens > engine.slot_tokens:
        yield f"engine.cache_tokens = {engine.cache_tokens} has no effect above engine.slot_tokens = {engine.slot_tokens}: lower it"
    if engine.disk_tokens and not engine.host_tokens:
        yield f"engine.disk_tokens = {engine.disk_tokens} is reached through engine.host_tokens, which is 0: raise that"
    yield from _check_vllm(workers, engine) if engine.kind == "vllm" else ()
    if engine.python and engine.kind != "vllm":
        yield f'engine.python = "{engine.python}" has no effect on engine.kind = "{engine.kind}": remove it'
    if engine.python and workers.executor != "process":
        yield f'engine.python = "{engine.python}" has no effect on workers.executor = "{workers.executor}": remove it'


def _check_vllm(workers: WorkerSettings, engine: EngineSettings) -> Iterator[str]:
    """What Plait's own engine does and vLLM does for itself, or not at all."""
    if workers.layout == "shared":
        yield 'engine.kind = "vllm" needs processes of its own: choose workers.layout = "split"'
    if engine.host_tokens:
        yield f"engine.host_tokens = {engine.host_tokens} has no effect on vLLM, whose cache is its own: remove it"
    if engine.drafting != "off":
        yield f'engine.drafting = "{engine.drafting}" has no effect on vLLM: remove it'
    if engine.batch_invariant == "require":
        yield 'engine.batch_invariant = "require" is what vLLM does not give: choose "auto"'


def _check_task(task: TaskSettings, settings: RunSettings) -> Iterator[str]:
    yield from _check_context(task, settings.model.max_context_tokens)
    yield from _check_loss(task)
    yield from _check_schedule(task)
    yield from _check_lora(task)
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
