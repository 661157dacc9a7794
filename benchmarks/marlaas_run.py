"""Runs one system on some tasks and says what happened.

The clock starts when all processes are up and have done everything once for a task that is not measured;
it ends with the last task.
"""

import asyncio
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import psutil

from benchmarks.marlaas_policies import AfterWarmUp, StagedRollout, exclusive_scheduler, police
from benchmarks.marlaas_systems import MAX_ROWS, System
from benchmarks.marlaas_tasks import warm_up_task
from plait.config.load import effective_toml
from plait.config.run import EngineSettings, ModelSettings, RunSettings, WorkerSettings
from plait.config.task import TaskSettings
from plait.environments.pool import EnvironmentPool
from plait.models.tokenizer import Tokenizer
from plait.observe.events import AnyEvent, RunStarted, TaskStateChanged
from plait.observe.log import EventLog
from plait.rollout.service import RolloutService
from plait.state.rundir import RunDirectory
from plait.tasks.driver import RunDriver
from plait.tasks.lifecycle import ENDED
from plait.tasks.own_compute import OwnCompute

CONTROLLER, ENVIRONMENTS = "controller", "environments"


@dataclass(slots=True)
class RunResult:
    events: list[AnyEvent] = field(default_factory=list)
    start_s: float = 0.0
    """All processes are up and warm; seconds since the epoch."""
    end_s: float = 0.0
    """The last task has ended."""
    cpu_s: dict[str, float] = field(default_factory=dict)
    """CPU seconds between the two, by process; those of the environments together."""
    is_batch_invariant: bool = False
    failures: list[str] = field(default_factory=list)


def run_settings(system: System, tasks: Sequence[TaskSettings], model_path: Path, num_threads: int = 1) -> RunSettings:
    """The settings of a run: a task to warm up with, then `tasks`.

    `num_threads` are all there are: one process that does both has them all, two share them and lend them to each other.
    A model so small that a second thread makes it slower runs with one.
    """
    threads = num_threads if system.is_shared else 1
    warm_up = warm_up_task(tasks[0].sampling.max_new_tokens)
    return RunSettings(
        name=system.name,
        model=ModelSettings(path=str(model_path), dtype="bfloat16", device="cpu", max_context_tokens=256),
        workers=WorkerSettings(
            layout="shared" if system.is_shared else "split", rollout_threads=threads, train_threads=threads, max_restarts=0
        ),
        engine=EngineSettings(max_rows=MAX_ROWS, adaptive_concurrency=False),
        tasks=(warm_up, *tasks),
    )


def run_system(system: System, settings: RunSettings, lend_threads: bool = False) -> RunResult:
    """Run to the end. Raises RuntimeError unless every task comes to its end. `lend_threads`: an idle trainer's thread decodes."""
    with tempfile.TemporaryDirectory(prefix="plait-bench-") as folder:
        directory = RunDirectory.create(Path(folder), settings.name, effective_toml(settings))
        with EventLog(directory.events) as log:
            result = asyncio.run(_drive(system, settings, directory, log, lend_threads))
    if result.failures:
        raise RuntimeError(f"{system.name}: {'; '.join(result.failures)}")
    return result


async def _drive(system: System, settings: RunSettings, directory: RunDirectory, log: EventLog, lend_threads: bool) -> RunResult:
    environments = await EnvironmentPool.start(
        {task.name: task.environment for task in settings.tasks}, settings.workers.environment_processes
    )
    try:
        tokenizer = Tokenizer.load(Path(settings.model.path))
        compute = OwnCompute(settings, settings.model.path, exclusive_scheduler() if system.is_exclusive else None)
        driver = RunDriver(
            settings, directory, compute, tokenizer, environments, log,
            manager=police(AfterWarmUp(settings.tasks[0].name, system.policy())),
        )  # fmt: skip
        if system.is_staged:
            staged = StagedRollout(compute.rollout)
            driver.collector.runner.rollout_of = lambda _: cast(RolloutService, staged)
        if not lend_threads:
            setattr(compute.workers, "lend_threads", lambda trainer_is_idle: None)  # noqa: B010
        stopwatch = _Stopwatch(driver)
        driver.listeners.append(stopwatch.on_event)
        await driver.run()
        return stopwatch.result
    finally:
        await environments.close()


class _Stopwatch:
    def __init__(self, driver: RunDriver) -> None:
        self.result = RunResult()
        self._driver = driver
        self._warm_up = driver.settings.tasks[0].name
        self._tasks_left = len(driver.settings.tasks)
        self._before_s: Mapping[str, float] = {}

    def on_event(self, event: AnyEvent) -> None:
        if self.result.start_s:
            self.result.events.append(event)
        if isinstance(event, RunStarted):
            self.result.is_batch_invariant = event.batch_invariant
        elif isinstance(event, TaskStateChanged) and event.state in ENDED:
            self._tasks_left -= 1
            if event.state != "done":
                self.result.failures.append(f"task {event.task} ended as {event.state}: {event.cause}")
            if event.task == self._warm_up:
                self._before_s, self.result.start_s = self._cpu_s(), time.time()
            elif self._tasks_left == 0:
                self.result.end_s = time.time()
                self.result.cpu_s = {name: spent_s - self._before_s[name] for name, spent_s in self._cpu_s().items()}

    def _cpu_s(self) -> dict[str, float]:
        assert isinstance(self._driver.compute, OwnCompute)
        me, pids = psutil.Process(), self._driver.compute.workers.pids
        others = [child for child in me.children() if child.pid not in pids.values()]
        spent_s = {name: _spent_s(psutil.Process(pid)) for name, pid in pids.items()}
        return {CONTROLLER: _spent_s(me), **spent_s, ENVIRONMENTS: sum(map(_spent_s, others))}


def _spent_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system
