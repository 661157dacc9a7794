"""One run in this process: everything around the driver, from the lock to the report."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack

from plait.client.reports import write_run_report
from plait.config.checks import check_settings
from plait.config.run import RunSettings
from plait.environments.pool import EnvironmentPool
from plait.models.catalogue import find
from plait.models.tokenizer import Tokenizer
from plait.observe.events import AnyEvent, EvaluationDone, StepCommitted
from plait.observe.live import LiveView
from plait.observe.log import EventLog, read_latest_events
from plait.observe.trackers import make_followers
from plait.state.recovery import TaskRecovery, clean_up, plan_recovery
from plait.state.rundir import RunDirectory
from plait.tasks.driver import Listener, RunDriver
from plait.tasks.past_run import past_run
from plait.types.errors import ConfigError

TRACKING_FOLDER = "tracking"


def run_file(settings: RunSettings, directory: RunDirectory, *, resume: bool = False, show_progress: bool = True) -> str:
    """Run to the end, with a live view, trackers and a report. Returns "done" or "failed" (a task failed)."""
    with ExitStack() as stack:
        stack.enter_context(directory.lock())
        log = stack.enter_context(EventLog(directory.events))
        history = recover(settings, directory, log) if resume else []
        listeners: list[Listener] = []
        if show_progress:
            listeners.append(stack.enter_context(LiveView(history=history)).on_event)
        for follower in make_followers(settings.tracking, directory.path / TRACKING_FOLDER, log.append, lambda: list(history)):
            stack.callback(follower.close)
            listeners.append(follower.on_event)
        status = asyncio.run(drive(settings, directory, log, listeners, history))
    write_run_report(directory)
    return status


async def drive(
    settings: RunSettings,
    directory: RunDirectory,
    log: EventLog,
    listeners: Iterable[Listener] = (),
    history: Iterable[AnyEvent] = (),
    on_start: Callable[[RunDriver], None] | None = None,
) -> str:
    """The run itself. The directory's lock must be held."""
    problems = check_settings(settings)
    if problems:
        raise ConfigError("\n".join(problems))
    model_path = find(settings.model.path)
    tokenizer = Tokenizer.load(model_path)
    history = list(history)
    by_task = {task.name: task.environment for task in settings.tasks}
    environments = await EnvironmentPool.start(by_task, settings.workers.environment_processes)
    try:
        driver = RunDriver(settings, directory, str(model_path), tokenizer, environments, log, past_run(history))
        driver.listeners += listeners
        if on_start is not None:
            on_start(driver)
        return await driver.run(resumed=bool(history))
    finally:
        await environments.close()


def recover(settings: RunSettings, directory: RunDirectory, log: EventLog) -> list[AnyEvent]:
    """Bring the log up to the records; the events of the run so far."""
    names = [task.name for task in settings.tasks]
    clean_up(directory, names)
    events = list(read_latest_events(directory.events))
    recoveries = plan_recovery(directory, names, events)
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
