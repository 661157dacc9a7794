"""One run in this process: everything around the driver, from the lock to the report."""

import asyncio
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from plait.client.environments import start_environments
from plait.client.reports import write_run_report
from plait.cluster.groups.factory import PARKED_FOLDER, WorkerFactory
from plait.config.checks import check_settings
from plait.config.run import RunSettings
from plait.models.catalogue import find
from plait.models.tokenizer import Tokenizer
from plait.observe.events import AnyEvent, EvaluationDone, StepCommitted
from plait.observe.live import LiveView, say_at_once
from plait.observe.log import EventLog, read_latest_events
from plait.observe.trackers import make_followers
from plait.observe.under_way import UnderWay
from plait.state.recovery import TaskRecovery, clean_up, plan_recovery
from plait.state.rundir import RunDirectory
from plait.tasks.bases_compute import BasesCompute
from plait.tasks.compute import Compute
from plait.tasks.driver import Listener, RunDriver
from plait.tasks.own_compute import OwnCompute
from plait.tasks.past_run import past_run
from plait.tasks.run_models import describe_start
from plait.types.errors import ConfigError

TRACKING_FOLDER = "tracking"


@dataclass(slots=True)
class OpenRun:
    """A run directory in use by this process."""

    log: EventLog
    history: list[AnyEvent]
    """The events of the run so far, if it is resumed."""
    listeners: list[Listener] = field(default_factory=list)
    under_way: UnderWay = field(default_factory=UnderWay)


def run_file(settings: RunSettings, directory: RunDirectory, *, resume: bool = False, show_progress: bool = True) -> str:
    """Run to the end, with a live view, trackers and a report. Returns "done" or "failed" (a task failed)."""
    if show_progress:
        say_at_once(describe_start(settings, directory, resume))
    with open_run(settings, directory, resume) as run:
        if not show_progress:
            return asyncio.run(drive(settings, directory, run))
        with LiveView(history=run.history, under_way=run.under_way) as view:
            run.listeners.append(view.on_event)
            return asyncio.run(drive(settings, directory, run))


@contextmanager
def open_run(settings: RunSettings, directory: RunDirectory, resume: bool) -> Iterator[OpenRun]:
    """Take the directory, bring its log up to date, and start the trackers; write the report at the end, however it ends.

    A new run that ends before anything happened leaves no directory behind.
    """
    with directory.lock(), EventLog(directory.events) as log:
        run = OpenRun(log, _recover(settings, directory, log) if resume else [])
        followers = make_followers(settings.tracking, directory.path / TRACKING_FOLDER, log.append, lambda: list(run.history))
        run.listeners += [follower.on_event for follower in followers]
        try:
            yield run
        finally:
            for follower in followers:
                follower.close()
            log.sync()
            if directory.events.stat().st_size:
                write_run_report(directory)
            elif not resume:
                shutil.rmtree(directory.path)


async def drive(
    settings: RunSettings, directory: RunDirectory, run: OpenRun, on_start: Callable[[RunDriver], None] | None = None
) -> str:
    """The run itself."""
    problems = check_settings(settings)
    if problems:
        raise ConfigError("\n".join(problems))
    with run.under_way.doing("", "start", "preparing the model"):
        paths = {name: find(settings.of_model(name).model.path) for name in settings.used_models}
        tokenizers = {name: Tokenizer.load(path) for name, path in paths.items()}
    with run.under_way.doing("", "start", "starting the environments"):
        environments = await start_environments(settings, settings.workers.environment_processes)
    try:
        by_task = {task.name: tokenizers[settings.model_of(task)] for task in settings.tasks}
        workers = WorkerFactory(settings.workers, settings.model.device, directory.path / PARKED_FOLDER)
        compute = _compute(settings, paths, directory, workers)
        driver = RunDriver(
            settings, directory, compute, by_task, environments, run.log, past_run(run.history), under_way=run.under_way
        )
        driver.listeners += run.listeners
        if on_start is not None:
            on_start(driver)
        async with aclosing(workers), workers.placing(driver.emit):
            return await driver.run(resumed=bool(run.history))
    finally:
        await environments.close()


def _compute(settings: RunSettings, paths: Mapping[str, Path], directory: RunDirectory, workers: WorkerFactory) -> Compute:
    """Workers for each base model; `paths` tells where each lies."""
    folders = {name: directory.path / (f"kv-{number}" if number else "kv") for number, name in enumerate(paths)}
    computes: dict[str, Compute] = {}
    for name, path in paths.items():
        own = settings.of_model(name)
        make_workers = workers.of(name, own.model.max_slowdown)
        computes[name] = OwnCompute(own, str(path), kv_folder=folders[name], make_workers=make_workers)
    if len(computes) == 1:
        return next(iter(computes.values()))
    return BasesCompute(computes, {task.name: settings.model_of(task) for task in settings.tasks})


def _recover(settings: RunSettings, directory: RunDirectory, log: EventLog) -> list[AnyEvent]:
    """Bring the log up to the records; the events of the run so far."""
    names = [task.name for task in settings.tasks]
    clean_up(directory, names)
    recoveries = plan_recovery(directory, names, list(read_latest_events(directory.events)))
    for recovery in recoveries.values():
        for event in recovery.missing_events:
            log.append(event)
    return [event for event in read_latest_events(directory.events) if not _is_void(event, recoveries)]


def _is_void(event: AnyEvent, recoveries: Mapping[str, TaskRecovery]) -> bool:
    """A step whose record is lost is done again, and so is the evaluation of its version."""
    match event:
        case StepCommitted(task=task, step=version) | EvaluationDone(task=task, version=version):
            return task in recoveries and version > recoveries[task].version
    return False
