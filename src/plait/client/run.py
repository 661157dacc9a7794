"""A run from Python: submit tasks, watch steps go by, talk to what was trained. Works in a notebook.

from plait.client import Run

with Run(tasks=[{"name": "sums", "steps": 10, "environment": {...}}]) as run:
    for step in run.steps():
        print(step.task, step.step, step.reward_mean)
    print(run.policy("sums").sample("What is 3 + 4?"))
"""

import asyncio
import queue
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from plait.client.policies import Policy, export_policy, open_policy
from plait.client.reports import write_run_report
from plait.client.runs import drive, open_run
from plait.client.start_points import create_run, with_shapes
from plait.config.load import load_settings, make_settings
from plait.config.run import RunSettings
from plait.config.task import TaskSettings
from plait.observe.events import AnyEvent, EvaluationDone, StepCommitted
from plait.observe.log import read_latest_events
from plait.observe.summary import RunSummary
from plait.state.rundir import RunDirectory
from plait.tasks.driver import RunDriver


class Run:
    """One run, driven by a thread of its own. Leaving the `with` block before the end stops it; `Run.resume` goes on."""

    def __init__(
        self,
        tasks: Sequence[TaskSettings | dict[str, Any]] = (),
        *,
        settings: RunSettings | None = None,
        runs: Path | str = "runs",
        directory: RunDirectory | None = None,
        **more: Any,
    ) -> None:
        """Give `tasks` (and `name`, `model`, `workers`, ... as in a settings file), or whole `settings`.

        Raises ConfigError for settings that cannot work.
        """
        self.settings = settings or _settings(tasks, more)
        self._is_resumed = directory is not None
        if directory is None:
            self.settings, directory = create_run(with_shapes(self.settings), Path(runs))
        self.directory = directory
        self.summary = RunSummary()
        self._events: queue.SimpleQueue[AnyEvent | None] = queue.SimpleQueue()
        self._driver: RunDriver | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._work: asyncio.Task[str] | None = None
        self._has_begun = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"plait-{self.directory.name}", daemon=True)
        self._status: str | None = None
        self._error: BaseException | None = None
        self._is_error_told = False

    @classmethod
    def resume(cls, path: Path | str) -> "Run":
        """Go on with a run that was interrupted."""
        directory = RunDirectory.open(Path(path))
        return cls(settings=load_settings(directory.config), directory=directory)

    # ---- life

    def start(self) -> "Run":
        self._thread.start()
        return self

    def __enter__(self) -> "Run":
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()
        if error is None and not self._is_error_told:
            self._raise_error()

    def wait(self, timeout_s: float | None = None) -> str:
        """Wait for the end: "done", "failed" or "interrupted". Raises what ended the run as a whole, or TimeoutError."""
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            raise TimeoutError(f"run {self.directory.name!r} goes on after {timeout_s} s")
        self._raise_error()
        return self._status or "interrupted"

    def _raise_error(self) -> None:
        if self._error is not None:
            self._is_error_told = True
            raise self._error

    def stop(self) -> None:
        """End the run now; every finished step is kept."""
        self._has_begun.wait()
        if self._loop is not None and self._work is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._work.cancel)
        self._thread.join()

    # ---- what happens

    def events(self) -> Iterator[AnyEvent]:
        """Every event as it happens, until the run ends. Raises what ended the run as a whole."""
        while (event := self._events.get()) is not None:
            yield event
        self._events.put(None)  # a second reader ends at once
        self._raise_error()

    def steps(self, task: str | None = None) -> Iterator[StepCommitted]:
        """Optimizer steps as they become durable, of one task or of all."""
        return (e for e in self.events() if isinstance(e, StepCommitted) and task in (None, e.task))

    def accuracy(self, task: str) -> dict[int, float]:
        """Held-out accuracy by policy version, so far."""
        found = (e for e in read_latest_events(self.directory.events) if isinstance(e, EvaluationDone) and e.task == task)
        return {event.version: event.accuracy for event in found}

    # ---- what to do

    def pause(self, task: str) -> None:
        self._call("pause", task)

    def unpause(self, task: str) -> None:
        self._call("resume", task)

    def cancel(self, task: str) -> None:
        self._call("cancel", task)

    def policy(self, task: str, step: int | None = None) -> Policy:
        """A trained version, loaded into this process: the best by held-out accuracy unless `step` names one."""
        return open_policy(self.directory, task, step)

    def export(self, task: str, to: Path | str, *, step: int | None = None, merged: bool = False) -> Path:
        return export_policy(self.directory, task, step=step, merged=merged, to=Path(to))

    def report(self) -> Path:
        return write_run_report(self.directory)

    # ---- the thread

    def _call(self, action: str, task: str) -> None:
        if task not in {t.name for t in self.settings.tasks}:
            raise KeyError(f"no task {task!r}; there are {', '.join(t.name for t in self.settings.tasks)}")
        loop, driver = self._loop, self._driver
        if loop is None or driver is None or not self._thread.is_alive():
            raise RuntimeError("the run is not going on")
        asyncio.run_coroutine_threadsafe(_calling(driver, action, task), loop).result()

    def _run(self) -> None:
        try:
            self._status = asyncio.run(self._main())
        except asyncio.CancelledError:
            self._status = "interrupted"
        except BaseException as error:
            self._error = error
        finally:
            self._has_begun.set()
            self._events.put(None)

    async def _main(self) -> str:
        self._loop, self._work = asyncio.get_running_loop(), asyncio.current_task()
        self._has_begun.set()
        with open_run(self.settings, self.directory, self._is_resumed) as run:
            run.listeners += [self.summary.apply, self._events.put]
            return await drive(self.settings, self.directory, run, self._started)

    def _started(self, driver: RunDriver) -> None:
        self._driver = driver


async def _calling(driver: RunDriver, action: str, task: str) -> None:
    getattr(driver, action)(task)


def _settings(tasks: Sequence[TaskSettings | dict[str, Any]], more: dict[str, Any]) -> RunSettings:
    plain = [task.model_dump(mode="json", exclude_defaults=True) if isinstance(task, TaskSettings) else task for task in tasks]
    return make_settings({**more, "tasks": plain}, Path.cwd())
