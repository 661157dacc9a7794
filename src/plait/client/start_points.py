"""Tasks with `start_from`: their shapes are those of the adapters they begin from, of which a run keeps copies of its own."""

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import ValidationError

from plait.client.policies import policy_ref
from plait.config.load import effective_toml
from plait.config.problems import raise_problems
from plait.config.run import RunSettings
from plait.config.task import LoraSettings, TaskSettings
from plait.state.records import ADAPTER_CONFIG_FILE, holds_model
from plait.state.rundir import RunDirectory, is_run, relative_start
from plait.state.start_point import keep_start, read_shape
from plait.types.errors import AdapterError, PlaitError
from plait.types.lora import LoraConfig

SHAPE = ("rank", "alpha", "target_modules")


def create_run(settings: RunSettings, root: Path) -> tuple[RunSettings, RunDirectory]:
    """A new run's directory, with copies of the adapters that its tasks begin from; the settings name the copies.

    Raises PlaitError if a copy cannot be made; then there is no directory. Settings are those of `with_shapes`.
    """
    directory = RunDirectory.create(root, settings.name, kept_toml(settings))
    try:
        for task, source in starts_of(settings).items():
            folder = find_start(Path(source))
            keep_start(folder, directory.start_folder(task), str(folder))
    except BaseException:
        shutil.rmtree(directory.path)
        raise
    return with_starts(settings, {task: str(directory.start_folder(task)) for task in starts_of(settings)}), directory


def kept_toml(settings: RunSettings) -> str:
    """Settings for the run's directory, whose tasks begin from the copies there."""
    return effective_toml(with_starts(settings, {task: relative_start(task) for task in starts_of(settings)}))


def starts_of(settings: RunSettings) -> dict[str, str]:
    """`start_from` of the tasks that have it."""
    return {task.name: task.start_from for task in settings.tasks if task.start_from is not None}


def with_starts(settings: RunSettings, starts: Mapping[str, str]) -> RunSettings:
    tasks = (t.model_copy(update={"start_from": starts[t.name]}) if t.name in starts else t for t in settings.tasks)
    return settings.model_copy(update={"tasks": tuple(tasks)})


def find_start(path: Path) -> Path:
    """The folder of an adapter's files: `path` itself or, of a run's task, the best version by held-out score, else the latest.

    Raises PlaitError that says what is there instead.
    """
    if (path / ADAPTER_CONFIG_FILE).is_file():
        return path
    if holds_model(path):
        raise AdapterError(f"{path} holds all weights, not an adapter.", "Name it as the base model, by model.path.")
    if is_run(path):
        return _of_run(RunDirectory(path))
    if path.parent.name == "tasks" and is_run(path.parents[1]):
        return find_start(Path(policy_ref(RunDirectory(path.parents[1]), path.name).path))
    raise AdapterError(
        f"{path} holds no adapter.",
        "Give a folder in PEFT format, a run's task (RUN/tasks/TASK), or a version in its folder steps.",
    )


def _of_run(directory: RunDirectory) -> Path:
    tasks = directory.list_tasks()
    if len(tasks) != 1:
        raise AdapterError(f"run {directory.path} has tasks {', '.join(tasks) or '(none)'}.", "Name one: RUN/tasks/TASK.")
    return find_start(directory.tasks_folder / tasks[0])


def with_shapes(settings: RunSettings, source: str = "settings") -> RunSettings:
    """What a task does not set of its adapter's shape is that of the adapter it begins from.

    Raises one ConfigError for all adapters that cannot be read, and all that are of another shape than a task sets.
    """
    problems: list[str] = []
    tasks = tuple(_with_shape(task, f'tasks[{i}] (name "{task.name}")', problems) for i, task in enumerate(settings.tasks))
    raise_problems(problems, source)
    return settings.model_copy(update={"tasks": tasks})


def _with_shape(task: TaskSettings, key: str, problems: list[str]) -> TaskSettings:
    if task.start_from is None:
        return task
    try:
        shape = read_shape(find_start(Path(task.start_from)))
        problems += [f"{key}.{text}" for text in shape_conflicts(task.lora, shape)]
        return task.model_copy(update={"lora": taken_over(task.lora, shape)})
    except PlaitError as error:
        problems.append(f'{key}.start_from = "{task.start_from}": {error.message} {error.remedy}'.rstrip("."))
        return task


def shape_conflicts(lora: LoraSettings, shape: LoraConfig) -> Iterator[str]:
    """What the task sets otherwise than the adapter has it."""
    for name in SHAPE:
        wanted, found = getattr(lora, name), getattr(shape, name)
        if name in lora.model_fields_set and (set(wanted) != set(found) if name == "target_modules" else wanted != found):
            yield f"lora.{name} = {_shown(wanted)}, and the adapter of start_from has {_shown(found)}: remove the key"


def taken_over(lora: LoraSettings, shape: LoraConfig) -> LoraSettings:
    """Raises AdapterError for a shape that Plait does not train."""
    values = {name: getattr(lora if name in lora.model_fields_set else shape, name) for name in SHAPE}
    try:
        return LoraSettings(**values)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        raise AdapterError(
            f"its {fault['loc'][0]} is not trained here: {fault['input']!r}: {fault['msg']}.", "Name another adapter."
        ) from error


def _shown(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
