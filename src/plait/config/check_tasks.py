"""Tasks whose settings are each allowed but do not fit together, or not to the base model that they name."""

from collections.abc import Iterator

from plait.config.environments import CalculatorSettings, DelaySettings, EnvironmentSettings, num_turns
from plait.config.known_keys import suggest_value
from plait.config.run import RunSettings
from plait.config.task import EarlyStoppingSettings, TaskSettings


def check_tasks(settings: RunSettings) -> list[str]:
    """One line for each thing that cannot work or would have no effect, whatever deployments they are on."""
    problems = list(_check_models(settings))
    for index, task in enumerate(settings.tasks):
        problems += [f'tasks[{index}] (name "{task.name}"){text}' for text in _check_task(task, settings)]
    return problems


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
