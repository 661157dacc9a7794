"""A task file as it comes over HTTP: the TOML of `plait run`, less what is the operator's to say. Pure.

- It may set `name`, `seed` and `tasks`. Base models, workers, engine and training are the server's. A task names its base model by
  any of its names; `model.path` is the one of tasks that name none, without it the server's first.
- A task may use the kinds of environments that the operator registered, and data that its tenant uploaded (`upload:NAME`). A path,
  a hub id or a Python callable is refused, and so is any adapter to start from but a checkpoint of the service. Everything that is
  wrong is told at once, by its key.
"""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from plait.config.check_tasks import check_tasks
from plait.config.environments import AnyEnvironmentSettings, DatasetSettings
from plait.config.load import validate
from plait.config.problems import raise_problems
from plait.config.run import RunSettings
from plait.config.server import ServerSettings
from plait.config.task import TaskSettings
from plait.server.managed.evaluating_tasks import EVALUATING_TASKS
from plait.server.managed.served_names import ServedNames
from plait.server.tinker_path import SCHEME
from plait.types.errors import ConfigError

SOURCE = "the task file"
UPLOAD = "upload:"
OWN_KEYS = ("name", "seed", "tasks")
SERVER_SECTIONS = ("model", "workers", "engine", "training")
MAX_TASKS = 64
MAX_TOGETHER = 4096
"""Trajectories of a step, or questions of an evaluation: they are under way at one time."""


@dataclass(frozen=True, slots=True)
class Submission:
    settings: RunSettings
    """Data sets are still called `upload:NAME`."""
    uploads: tuple[str, ...]
    """The names of all data that it uses."""


def read_submission(text: str, server: ServerSettings) -> Submission:
    """Raises ConfigError."""
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{SOURCE} is not TOML: {error}.", "See toml.io, and `plait run --example`.") from error
    models = ServedNames(server)
    raise_problems([*_foreign_keys(data, models), *_foreign_files(data, server), *models.unknown(data)], SOURCE)
    own = {key: data[key] for key in OWN_KEYS if key in data}
    sections = {name: getattr(server, name).model_dump(mode="json", exclude_none=True) for name in SERVER_SECTIONS}
    settings = models.named(validate({**own, **sections}, SOURCE), data)
    raise_problems([*check_tasks(settings), *check_limits(settings, server)], SOURCE)
    return Submission(settings, tuple(dict.fromkeys(name for task in settings.tasks for name in uploads_of(task))))


def uploads_of(task: TaskSettings) -> list[str]:
    return [path.removeprefix(UPLOAD) for path in _paths(task.environment) if path is not None]


def with_files(environment: AnyEnvironmentSettings, files: Mapping[str, str]) -> AnyEnvironmentSettings:
    """`upload:NAME` replaced by the path of its file."""
    if not isinstance(environment, DatasetSettings):
        return environment
    path, evaluation_path = (files[p.removeprefix(UPLOAD)] if p is not None else None for p in _paths(environment))
    return environment.model_copy(update={"path": path, "evaluation_path": evaluation_path})


def _paths(environment: AnyEnvironmentSettings) -> tuple[str | None, ...]:
    return (environment.path, environment.evaluation_path) if isinstance(environment, DatasetSettings) else ()


def _foreign_keys(data: Mapping[str, Any], models: ServedNames) -> Iterator[str]:
    for key in data:
        if key == "model" and isinstance(data[key], dict) and data[key].keys() <= {"path"}:
            path = models.default(data)
            if path not in models.names:
                yield f'model.path = "{path}": this server has {", ".join(models.names)}'
        elif key in (*SERVER_SECTIONS, "models", "state", "tracking"):
            yield f"{key}: this is the server's to set: remove it"
        elif key not in OWN_KEYS:
            yield f"{key}: unknown key; a task file sent over HTTP has {', '.join(OWN_KEYS)}"


def _foreign_files(data: Mapping[str, Any], server: ServerSettings) -> Iterator[str]:
    """Before anything else looks at them: not even whether a file exists is told."""
    tasks = data.get("tasks")
    for index, task in enumerate(tasks if isinstance(tasks, list) else ()):
        environment = task.get("environment") if isinstance(task, dict) else None
        if isinstance(environment, dict):
            yield from (f"tasks[{index}].environment.{text}" for text in _foreign_environment(environment, server))
        start = task.get("start_from") if isinstance(task, dict) else None
        if start is not None and not (isinstance(start, str) and start.startswith(SCHEME)):
            yield f'tasks[{index}].start_from = "{start}": only a checkpoint of this server is taken: "{SCHEME}MODEL/weights/NAME"'


def _foreign_environment(environment: Mapping[str, Any], server: ServerSettings) -> Iterator[str]:
    kind = environment.get("kind")
    if not isinstance(kind, str) or kind not in server.environments:
        yield f'kind = "{kind}": this server has {", ".join(server.environments)}'
    name = environment.get("name")
    if kind == "reasoning_gym" and isinstance(name, str) and name in EVALUATING_TASKS:
        yield f'name = "{name}": it scores answers by running them as Python, which is not done over HTTP'
    for key in ("function", "examples"):
        if key in environment:
            yield f"{key}: code is not taken over HTTP: remove it"
    for key in ("path", "evaluation_path"):
        value = environment.get(key)
        if value is not None and not (isinstance(value, str) and value.startswith(UPLOAD)):
            yield f'{key} = "{value}": only data that you uploaded is taken: POST /v1/uploads, then "{UPLOAD}NAME"'


def check_limits(settings: RunSettings, server: ServerSettings) -> Iterator[str]:
    if len(settings.tasks) > MAX_TASKS:
        yield f"tasks: {len(settings.tasks)} of them; at most {MAX_TASKS} go into one file"
    full, most = [task.name for task in settings.tasks if task.training == "full"], server.full.max_resident
    if len(full) > most:
        yield f'tasks: {len(full)} with training = "full" ({", ".join(full)}); this server takes {most} in one file'
    for index, task in enumerate(settings.tasks):
        key = f'tasks[{index}] (name "{task.name}")'
        if task.training == "lora" and task.lora.rank > server.lora.max_rank:
            yield f"{key}.lora.rank = {task.lora.rank} is above {server.lora.max_rank}, the highest of this server"
        sizes = {
            "groups_per_step x group_size": task.groups_per_step * task.group_size,
            "evaluation.questions": task.evaluation.questions,
            "warm_start.examples_per_step": task.warm_start.examples_per_step,
        }
        for name, size in sizes.items():
            if size > MAX_TOGETHER:
                yield f"{key}.{name} = {size} is above {MAX_TOGETHER}, the most of this server"
