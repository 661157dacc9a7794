"""What a run tells of itself and of its base models when it starts."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

from plait import __version__
from plait.cluster.messages import Ready
from plait.config.advice import advise
from plait.config.run import RunSettings
from plait.observe.events import AnyEvent, Note, RunStarted
from plait.observe.text import model_name
from plait.state.rundir import RunDirectory
from plait.state.start_point import read_start
from plait.tasks.plan import plan_of


def task_models(settings: RunSettings) -> dict[str, str]:
    """The base model's name by task, where there is more than one; else nothing."""
    names = {task.name: settings.model_of(task) for task in settings.tasks}
    return names if len(settings.used_models) > 1 else {}


def describe_models(settings: RunSettings) -> str:
    """The path of the one that there is, or the names of all."""
    used = settings.used_models
    return settings.of_model(used[0]).model.path if len(used) == 1 else ", ".join(used)


def describe_dtypes(settings: RunSettings) -> str:
    return ", ".join(dict.fromkeys(settings.of_model(name).model.dtype for name in settings.used_models))


def describe_start(settings: RunSettings, directory: RunDirectory, is_resumed: bool) -> str:
    """What begins, before anything of it is there."""
    verb = "resuming" if is_resumed else "starting"
    models = ", ".join(model_name(settings.of_model(name).model.path) for name in settings.used_models)
    tasks = ", ".join(task.name for task in settings.tasks)
    return f"{verb} run {directory.name}: {models} in {describe_dtypes(settings)}, tasks {tasks}, in {directory.path}"


def num_trainers(settings: RunSettings) -> int:
    """Training processes of all base models."""
    return sum(settings.of_model(name).workers.train_workers for name in settings.used_models)


def start_events(settings: RunSettings, run: str, ready: Ready, workers: tuple[str, ...], resumed: bool) -> Iterator[AnyEvent]:
    """What the log is told when the workers are up."""
    yield run_started(settings, run, ready, workers, resumed)
    for task in settings.tasks:
        yield from (Note(time_s=time.time(), level="warning", message=text, task=task.name) for text in advise(task))
    if not resumed:
        yield from (_start_note(task.name, Path(task.start_from)) for task in settings.tasks if task.start_from is not None)
    if not ready.batch_invariant and settings.engine.batch_invariant == "auto":
        yield Note(time_s=time.time(), level="warning", message=f"not batch invariant: {ready.invariance_detail}")


def _start_note(task: str, folder: Path) -> Note:
    start = read_start(folder)
    text = f"training begins from the adapter {start.source} (digest {start.digest})"
    return Note(time_s=time.time(), level="info", message=text, task=task)


def run_started(settings: RunSettings, run: str, ready: Ready, workers: tuple[str, ...], resumed: bool) -> RunStarted:
    """Of a run that this process carries on."""
    return RunStarted(
        time_s=time.time(), run=run, model=describe_models(settings), dtype=describe_dtypes(settings), device=ready.device,
        task_models=task_models(settings), tasks=tuple(task.name for task in settings.tasks), workers=workers,
        batch_invariant=ready.batch_invariant, plait_version=__version__, process_id=os.getpid(), resumed=resumed,
        total_steps={task.name: plan_of(task).total_steps for task in settings.tasks},
    )  # fmt: skip
