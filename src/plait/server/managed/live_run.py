"""One managed run in this process: from the queue to its end, or to the end of the server.

- What its tasks came to (paused, cancelled, failed) is in its event log, so a restart takes each up as it was left.
- A server that stops interrupts its runs; only what comes from the run itself is its end.
"""

import asyncio
import logging
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from enum import StrEnum

from plait import __version__
from plait.client.runs import OpenRun, open_run
from plait.client.start_points import kept_toml
from plait.environments.pool import EnvironmentPool
from plait.models.tokenizer import Tokenizer
from plait.observe import events as e
from plait.observe.summary import RunSummary
from plait.server.errors import ServiceError
from plait.server.managed.event_stream import Signal
from plait.server.managed.submission import UPLOAD, Submission, with_files
from plait.state.durable import make_folder, replace_file
from plait.state.rundir import RunDirectory, is_run
from plait.tasks.compute import Compute
from plait.tasks.driver import RunDriver
from plait.tasks.identity import RunIdentity
from plait.tasks.lifecycle import ENDED, TaskState
from plait.tasks.past_run import past_run
from plait.tasks.run_models import describe_dtypes, describe_models, task_models
from plait.types.errors import PlaitError

log = logging.getLogger("plait.server")


class RunState(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    PAUSED = "paused"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


FindFiles = Callable[[Sequence[str]], Awaitable[Mapping[str, str]]]
"""Where uploads of the run's tenant lie, by name."""

OVER = (RunState.DONE, RunState.FAILED, RunState.CANCELLED)


class LiveRun:
    def __init__(self, identity: RunIdentity, submission: Submission, directory: RunDirectory) -> None:
        self.identity, self.settings, self.uploads, self.directory = identity, submission.settings, submission.uploads, directory
        self.state = RunState.QUEUED
        self.summary = RunSummary()
        self.signal = Signal()
        self.work: asyncio.Task[None] | None = None
        self._driver: RunDriver | None = None
        self._is_interrupted = False
        self._asked: list[tuple[str, str]] = []
        """What was asked of tasks (action, task) before there was a driver."""

    @property
    def run_id(self) -> str:
        return self.identity.run_id

    @property
    def tenant_id(self) -> str:
        return self.identity.tenant

    @property
    def task_names(self) -> tuple[str, ...]:
        return tuple(task.name for task in self.settings.tasks)

    @property
    def is_held(self) -> bool:
        """Paused before it began."""
        return self.work is None and self.state == RunState.PAUSED

    # ---- what is asked of it

    def act(self, action: str, task: str | None) -> None:
        """Pause, resume or cancel a task, or all that can be. Raises ServiceError if there is none."""
        names = [name for name in self.task_names if task in (None, name)]
        if not names:
            raise ServiceError(f"run {self.run_id!r} has no task {task!r}.", f"It has: {', '.join(self.task_names)}.")
        possible = [name for name in names if self._can(action, name)]
        if not possible:
            states = ", ".join(f"{name} is {self._state_of(name)}" for name in names)
            raise ServiceError(f"there is nothing to {action}: {states}.", "A running task is paused, a paused one resumed.")
        for name in possible:
            if self._driver is not None:
                getattr(self._driver, action)(name)
            else:
                self._asked.append((action, name))
        self._note_state()

    def _state_of(self, task: str) -> str:
        if self._driver is not None:
            return self._driver.manager.state(task)
        states = {"pause": TaskState.PAUSED, "resume": TaskState.RUNNING, "cancel": TaskState.CANCELLED}
        asked = [states[action] for action, name in self._asked if name == task]
        past = self.summary.tasks.get(task)
        return asked[-1] if asked else TaskState(past.state) if past and past.state in set(TaskState) else TaskState.CREATED

    def _can(self, action: str, task: str) -> bool:
        state = self._state_of(task)
        match action:
            case "pause":
                return state in (TaskState.CREATED, TaskState.RUNNING)
            case "resume":
                return state == TaskState.PAUSED
        return state not in ENDED

    def _note_state(self) -> None:
        """Paused if nothing of it goes on."""
        states = {self._state_of(name) for name in self.task_names} - ENDED
        if self.state not in OVER:
            going = RunState.RUNNING if self.work is not None else RunState.QUEUED
            self.state = RunState.PAUSED if states == {TaskState.PAUSED} else going
        self.signal.send()

    @property
    def is_given_up(self) -> bool:
        """All that it had to do was cancelled."""
        return all(self._state_of(name) in ENDED for name in self.task_names)

    def interrupt(self) -> None:
        """The server ends; a restart goes on from the records."""
        self._is_interrupted = True
        if self.work is not None:
            self.work.cancel()

    # ---- its life

    async def run(self, find_files: FindFiles, compute: Compute, tokenizers: Mapping[str, Tokenizer]) -> bool:
        """To the end. False if it was interrupted. `tokenizers` by task."""
        if self.state == RunState.QUEUED:
            self.state = RunState.RUNNING
        try:
            await asyncio.to_thread(self._prepare)
            opened = open_run(self.settings, self.directory, resume=True)
            run = await asyncio.to_thread(opened.__enter__)
        except Exception as error:
            return self._broke(None, error)
        try:
            return await self._drive(run, find_files, compute, tokenizers)
        finally:
            self._driver = None
            await self._close(opened)

    async def _close(self, opened: AbstractContextManager[OpenRun]) -> None:
        """Its end stands, also if its report cannot be written."""
        try:
            await asyncio.to_thread(opened.__exit__, None, None, None)
        except Exception:
            log.exception("run %s was not closed in good order", self.run_id)
        self.signal.send()

    def _prepare(self) -> None:
        if not is_run(self.directory.path):
            make_folder(self.directory.path)
            replace_file(self.directory.config, kept_toml(self.settings).encode())

    async def _drive(self, run: OpenRun, find_files: FindFiles, compute: Compute, tokenizers: Mapping[str, Tokenizer]) -> bool:
        files: Mapping[str, str] = {}
        for event in run.history:
            self.summary.apply(event)
        environments: EnvironmentPool | None = None
        try:
            files = await find_files(self.uploads)
            environments = await self._environments(files)
            past = past_run(run.history, keep_states=True)
            driver = RunDriver(
                self.settings, self.directory, compute, tokenizers, environments, run.log, past, identity=self.identity
            )
            driver.listeners.append(lambda event: self._on_event(driver, event))
            await driver.run(resumed=bool(run.history))
            self.state = self._outcome(driver)
            return True
        except asyncio.CancelledError:
            return False
        except Exception as error:
            return self._broke(run, _without_paths(error, files))
        finally:
            if environments is not None:
                await environments.close()

    async def _environments(self, files: Mapping[str, str]) -> EnvironmentPool:
        settings = {task.name: with_files(task.environment, files) for task in self.settings.tasks}
        return await EnvironmentPool.start(settings, min(self.settings.workers.environment_processes, len(settings)))

    def _on_event(self, driver: RunDriver, event: e.AnyEvent) -> None:
        self.summary.apply(event)
        if isinstance(event, e.RunStarted):  # Its tasks are added in the same turn of the event loop.
            asyncio.get_running_loop().call_soon(self._take_over, driver)
        self.signal.send()

    def _take_over(self, driver: RunDriver) -> None:
        self._driver = driver
        asked, self._asked = self._asked, []
        for action, task in asked:
            if self._can(action, task):
                getattr(driver, action)(task)
        self._note_state()

    def _outcome(self, driver: RunDriver) -> RunState:
        states = [driver.manager.state(name) for name in self.task_names]
        if TaskState.FAILED in states:
            return RunState.FAILED
        return RunState.CANCELLED if all(state == TaskState.CANCELLED for state in states) else RunState.DONE

    def _broke(self, run: OpenRun | None, error: Exception) -> bool:
        """What ends the run as a whole is told in its log as far as that can be written."""
        if self._is_interrupted:
            return False
        self.state = RunState.FAILED
        cause = str(error) if isinstance(error, PlaitError) else "".join(traceback.format_exception_only(error)).strip()
        log.warning("run %s failed: %s", self.run_id, cause, exc_info=None if isinstance(error, PlaitError) else error)
        now_s = time.time()
        begun = () if self.summary.status != "pending" else (self._started(now_s),)
        states = [e.TaskStateChanged(time_s=now_s, task=name, state=TaskState.FAILED, cause=cause) for name in self.task_names]
        for event in (*begun, *states, e.RunEnded(time_s=now_s, status="failed")):
            self.summary.apply(event)
            if run is not None:
                run.log.append(event)
        return True

    def _started(self, now_s: float) -> e.RunStarted:
        """Of a run that failed before its driver could say so."""
        settings = self.settings
        return e.RunStarted(
            time_s=now_s, run=self.run_id, model=describe_models(settings), dtype=describe_dtypes(settings),
            task_models=task_models(settings), device=settings.model.device, tasks=self.task_names,
            workers=(), batch_invariant=False, plait_version=__version__,
        )  # fmt: skip


def _without_paths(error: Exception, files: Mapping[str, str]) -> Exception:
    """The tenant knows its uploads by their names only."""
    if not isinstance(error, PlaitError):
        return error
    message, remedy = error.message, error.remedy
    for name, path in files.items():
        message, remedy = message.replace(path, f"{UPLOAD}{name}"), remedy.replace(path, f"{UPLOAD}{name}")
    return PlaitError(message, remedy)
