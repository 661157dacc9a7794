"""Relative paths in a settings file are taken from the file's own folder."""

from pathlib import Path
from typing import Any, TypeVar

from plait.config.environments import DatasetSettings, FunctionSettings
from plait.config.run import FurtherModelSettings, ModelSettings, RunSettings
from plait.config.task import TaskSettings

FILE_SUFFIXES = (".json", ".jsonl", ".gguf", ".py", ".safetensors")
"""What ends so, or starts with ".", "/" or "~", is a file for certain, not the name of a model or data set."""


def resolve_paths(settings: RunSettings, folder: Path) -> tuple[RunSettings, list[str]]:
    """Absolute paths for what lies on the disk; names and hub ids stay. Files that are missing are the second value."""
    problems: list[str] = []
    model = resolve_model(settings.model, folder, "model.path", problems)
    models = tuple(
        resolve_model(each, folder, f"{model_key(index, each)}.path", problems) for index, each in enumerate(settings.models)
    )
    tasks = tuple(
        _resolve_task(task, folder, f'tasks[{index}] (name "{task.name}")', problems) for index, task in enumerate(settings.tasks)
    )
    if settings.model.name is None:  # A task may name it as the file does.
        tasks = tuple(task.model_copy(update={"model": None}) if task.model == settings.model.path else task for task in tasks)
    return settings.model_copy(update={"model": model, "models": models, "tasks": tasks}), problems


def model_key(index: int, model: FurtherModelSettings) -> str:
    return f'models[{index}] (name "{model.name}")'


AnyModel = TypeVar("AnyModel", bound=ModelSettings)


def resolve_model(model: AnyModel, folder: Path, key: str, problems: list[str]) -> AnyModel:
    return model.model_copy(update={"path": resolve_path(model.path, folder, key, problems)})


def _resolve_task(task: TaskSettings, folder: Path, key: str, problems: list[str]) -> TaskSettings:
    environment = task.environment
    changes: dict[str, Any] = {}
    if isinstance(environment, DatasetSettings | FunctionSettings):
        names = ("path", "evaluation_path") if isinstance(environment, DatasetSettings) else ("path",)
        for name in names:
            if value := getattr(environment, name):
                changes[name] = resolve_path(value, folder, f"{key}.environment.{name}", problems)
    if isinstance(environment, FunctionSettings):
        for name in ("function", "examples"):
            if value := getattr(environment, name):
                changes[name] = _resolve_callable(value, folder, f"{key}.environment.{name}", problems)
    if changes:
        task = task.model_copy(update={"environment": environment.model_copy(update=changes)})
    return task if task.start_from is None else _resolve_start(task, task.start_from, folder, key, problems)


def _resolve_start(task: TaskSettings, start: str, folder: Path, key: str, problems: list[str]) -> TaskSettings:
    path = folder / Path(start).expanduser()
    if not path.is_dir():
        problems.append(f'{key}.start_from = "{start}": there is no folder {path}')
    return task.model_copy(update={"start_from": str(path.absolute())})


def _resolve_callable(value: str, folder: Path, key: str, problems: list[str]) -> str:
    module, _, name = value.rpartition(":")
    if not module or not name.isidentifier():
        problems.append(f'{key} = "{value}": must be "module:name" or "file.py:name"')
        return value
    return f"{resolve_path(module, folder, key, problems)}:{name}" if module.endswith(".py") else value


def resolve_path(value: str, folder: Path, key: str, problems: list[str]) -> str:
    """An absolute path if `value` is one that exists, else `value`; one that must be a path is then a problem of `key`."""
    path = folder / Path(value).expanduser()
    if path.exists():
        return str(path.absolute())
    if value.endswith(FILE_SUFFIXES) or value.startswith((".", "/", "~")):
        problems.append(f'{key} = "{value}": there is no file or folder {path}')
    return value
